//! All keys of asynq in a database, to compare and to judge.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use redis::{Value, cmd, from_redis_value};

use super::peer::Peer;

/// Everything of asynq's in a database, by key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dump(pub BTreeMap<String, Content>);

/// What a key holds.
#[derive(Clone, PartialEq)]
pub enum Content {
    /// A text.
    Text(Vec<u8>),
    /// From left to right.
    List(Vec<String>),
    /// In no order.
    Set(BTreeSet<String>),
    /// With scores.
    Scores(BTreeMap<String, f64>),
    /// By field.
    Hash(BTreeMap<String, Vec<u8>>),
}

impl fmt::Debug for Content {
    /// Bytes as text: most of them are, and messages are nearly so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", String::from_utf8_lossy(text)),
            Self::List(members) => members.fmt(f),
            Self::Set(members) => members.fmt(f),
            Self::Scores(members) => members.fmt(f),
            Self::Hash(fields) => {
                let text = |value| String::from_utf8_lossy(value).into_owned();
                f.debug_map()
                    .entries(fields.iter().map(|(field, value)| (field, text(value))))
                    .finish()
            }
        }
    }
}

impl Peer {
    /// Everything of asynq's in the database; windlass has further keys, of which Go knows nothing.
    pub async fn dump(&self) -> Dump {
        let keys: Vec<String> = self.plain(cmd("KEYS").arg("asynq:*")).await;
        let ask = |name: &str, key: &str| cmd(name).arg(key).clone();
        let sorts: Vec<String> = self.many(keys.iter().map(|key| ask("TYPE", key))).await;
        let read = keys.iter().zip(&sorts).map(|(key, sort)| match sort.as_str() {
            "list" => ask("LRANGE", key).arg(0).arg(-1).clone(),
            "set" => ask("SMEMBERS", key),
            "zset" => ask("ZRANGE", key).arg(0).arg(-1).arg("WITHSCORES").clone(),
            "hash" => ask("HGETALL", key),
            _ => ask("GET", key),
        });
        let values: Vec<Value> = self.many(read).await;
        let contents = sorts.iter().zip(values).map(|(sort, value)| content(sort, value));
        let found = keys.into_iter().zip(contents);
        Dump(found.filter_map(|(key, content)| Some((key, content?))).collect())
    }

    /// How long a key has, in seconds; -1 for ever, -2 for a key that is not there.
    pub async fn ttl(&self, key: &str) -> i64 {
        self.plain(cmd("TTL").arg(key)).await
    }
}

/// What a value is of this sort; nothing for a key that has run out meanwhile.
fn content(sort: &str, value: Value) -> Option<Content> {
    Some(match sort {
        "none" => return None,
        "string" => Content::Text(from_redis_value::<Option<_>>(value).unwrap()?),
        "list" => Content::List(from_redis_value(value).unwrap()),
        "set" => Content::Set(from_redis_value(value).unwrap()),
        "zset" => Content::Scores(from_redis_value(value).unwrap()),
        "hash" => Content::Hash(from_redis_value(value).unwrap()),
        other => panic!("asynq has no keys of sort {other}"),
    })
}

impl Dump {
    /// The same without the fields that windlass adds to hashes.
    #[must_use]
    pub fn without_own_fields(mut self) -> Self {
        for content in self.0.values_mut() {
            if let Content::Hash(fields) = content {
                fields.retain(|field, _| field != "wl" && !field.starts_with("wl_"));
            }
        }
        self
    }

    /// The fields of a hash; none when it is not there.
    pub fn hash(&self, key: &str) -> BTreeMap<String, Vec<u8>> {
        match self.0.get(key) {
            Some(Content::Hash(fields)) => fields.clone(),
            None => BTreeMap::new(),
            Some(other) => panic!("{key} should be a hash, not {other:?}"),
        }
    }

    /// The members of a list, a set or a sorted set; none when it is not there.
    pub fn members(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            Some(Content::List(members)) => members.clone(),
            Some(Content::Set(members)) => members.iter().cloned().collect(),
            Some(Content::Scores(members)) => members.keys().cloned().collect(),
            None => Vec::new(),
            Some(other) => panic!("{key} should have members, not {other:?}"),
        }
    }

    /// The number that a key holds; 0 when it is not there.
    pub fn number(&self, key: &str) -> i64 {
        match self.0.get(key) {
            Some(Content::Text(text)) => String::from_utf8_lossy(text).parse().unwrap(),
            None => 0,
            Some(other) => panic!("{key} should be a number, not {other:?}"),
        }
    }
}
