//! What the server promises: its version, whether it keeps what it has acknowledged, and whether it
//! throws keys away. Read from the server, not assumed.

use redis::{FromRedisValue, Value};
use windlass_core::store::Durability;
use windlass_core::{Error, ErrorKind, Result};

use super::connection::Link;
use super::error::strange;

/// The oldest version that has everything the scripts need.
const VERSION_MIN: (u64, u64) = (6, 2);

/// What a server tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub(super) version: String,
    /// How it treats its memory's end; unknown where it may not be asked.
    pub(super) eviction: Option<String>,
    pub(super) durability: Durability,
    /// Of the fullest node; nothing without a limit.
    pub(super) memory: Option<Memory>,
}

/// How full a server is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: u64,
    pub(super) max: u64,
}

impl Memory {
    fn read(info: &str) -> Option<Self> {
        let number = |name: &str| value_of(info, name)?.parse().ok();
        let (used, max) = (number("used_memory")?, number("maxmemory")?);
        (max > 0).then_some(Self { used, max })
    }

    pub(super) fn is_nearly_full(&self) -> bool {
        self.used >= self.max - self.max / 10
    }
}

impl ServerFacts {
    /// Asks the server.
    pub(super) async fn read(link: &Link) -> Result<Self> {
        let nodes = texts(link.command("ask for the version", &redis::cmd("INFO")).await?)?;
        let line = |name: &str| value_of(nodes.first()?, name);
        let fullness = |memory: &Memory| memory.used.saturating_mul(1_000) / memory.max;
        let memory = nodes.iter().filter_map(|info| Memory::read(info)).max_by_key(fullness);
        let version = line("redis_version").unwrap_or_default();
        // Where settings may not be asked for, some of them are told all the same.
        let off = line("aof_enabled").filter(|told| told == "0").map(|_| "no".to_owned());
        let append = ask(link, "appendonly").await.or(off);
        let fsync = ask(link, "appendfsync").await;
        let eviction = ask(link, "maxmemory-policy").await.or_else(|| line("maxmemory_policy"));
        let durability = durability(append.as_deref(), fsync.as_deref());
        Ok(Self { version, eviction, durability, memory })
    }

    /// The policy by which it throws keys away, if it may do so.
    pub(super) fn evicting(&self) -> Option<&str> {
        self.eviction.as_deref().filter(|policy| *policy != "noeviction")
    }

    /// Refuses a server on which windlass cannot keep its word.
    pub(super) fn check(&self, allows_eviction: bool) -> Result<()> {
        let mut numbers = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < VERSION_MIN {
            let (found, (major, minor)) = (&self.version, VERSION_MIN);
            let text = format!("redis {found} is too old: {major}.{minor} or newer is needed");
            return Err(Error::unsupported(text));
        }
        match self.evicting() {
            Some(policy) if !allows_eviction => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "this redis has maxmemory-policy {policy} and may throw tasks away: \
                     set noeviction, or add eviction=allow to the URL"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// The value of a setting; a managed server may keep it to itself.
async fn ask(link: &Link, setting: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(setting);
    let value = link.command("ask for a setting", &command).await.ok()?;
    let pairs = Vec::<String>::from_redis_value(first_node(value)).ok()?;
    pairs.into_iter().nth(1)
}

/// A Cluster answers for each of its nodes; the first stands for all.
fn first_node(value: Value) -> Value {
    match value {
        Value::Map(mut nodes)
            if matches!(nodes.first(), Some((_, Value::Array(_) | Value::Map(_)))) =>
        {
            nodes.swap_remove(0).1
        }
        Value::Map(pairs) => {
            Value::Array(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
        }
        other => other,
    }
}

/// What each node says.
fn texts(value: Value) -> Result<Vec<String>> {
    let nodes = match value {
        Value::Map(nodes) if !nodes.is_empty() => nodes.into_iter().map(|(_, text)| text).collect(),
        other => vec![other],
    };
    let read = |text| String::from_redis_value(text).map_err(|_| strange("ask for the version"));
    nodes.into_iter().map(read).collect()
}

/// The value of a line of `INFO`.
fn value_of(info: &str, name: &str) -> Option<String> {
    let mut lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn durability(append: Option<&str>, fsync: Option<&str>) -> Durability {
    let window = |loss: &str| Durability::Window { loss: loss.into() };
    match (append, fsync) {
        (Some("yes"), Some("always")) => Durability::Durable,
        (Some("yes"), Some("everysec")) => window(
            "a crash of machine or server may lose the last second or two (appendfsync everysec)",
        ),
        (Some("yes"), _) => window(
            "a crash of the machine may lose all that its system had not written (appendfsync no)",
        ),
        (Some(_), _) => window(
            "a restart of the server loses everything since its last snapshot (appendonly no)",
        ),
        (None, _) => window("the server does not tell whether it keeps what it has acknowledged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(version: &str, eviction: &str) -> ServerFacts {
        ServerFacts {
            version: version.into(),
            eviction: Some(eviction.into()),
            durability: Durability::Durable,
            memory: None,
        }
    }

    #[test]
    fn an_old_server_or_one_that_evicts_is_refused() {
        assert!(facts("6.2.0", "noeviction").check(false).is_ok());
        assert!(facts("10.0.1", "noeviction").check(false).is_ok());
        assert!(facts("6.0.16", "noeviction").check(true).is_err());
        assert!(facts("7.0.15", "allkeys-lru").check(false).is_err());
        assert!(facts("7.0.15", "allkeys-lru").check(true).is_ok());
    }

    #[test]
    fn only_a_server_that_always_waits_for_the_disk_is_durable() {
        assert_eq!(durability(Some("yes"), Some("always")), Durability::Durable);
        for (append, fsync) in
            [(Some("yes"), Some("everysec")), (Some("no"), Some("always")), (None, None)]
        {
            assert_ne!(durability(append, fsync), Durability::Durable);
        }
    }
}
