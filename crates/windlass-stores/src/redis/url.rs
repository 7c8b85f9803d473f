//! From a URL to the options of a Redis store. Nothing of a URL but names of parameters is ever
//! repeated in an error: it may hold a password.

use redis::{ConnectionInfo, IntoConnectionInfo};
use windlass_core::{Error, Result};

use super::options::RedisOptions;

/// Longest prefix of keys: it stands in front of every one of them.
const PREFIX_BYTES_MAX: usize = 64;

impl RedisOptions {
    /// Reads `redis://USER:PASSWORD@HOST:PORT/DATABASE?…`, `rediss://…` for TLS, or
    /// `redis+cluster://HOST:PORT,HOST:PORT?…`. With `+asynq` behind `redis` or `rediss` the same names data
    /// that are shared with Go's asynq. The parameters are `prefix`, `durability` (`durable` or
    /// `fast`), `eviction` (`refuse` or `allow`) and `sslrootcert`, a file of authorities to trust.
    pub fn of_url(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = place.split_once("://").unwrap_or_default();
        // Which layout is meant is for the caller to see; but asynq's has its names.
        let is_asynq = scheme.contains("+asynq");
        let scheme = scheme.replacen("+asynq", "", 1);
        let mut options = match scheme.as_str() {
            "redis" | "rediss" => Self::at(server(&format!("{scheme}://{rest}"))?),
            "redis+cluster" | "rediss+cluster" => {
                let plain = scheme.trim_end_matches("+cluster");
                let (login, hosts) = rest.rsplit_once('@').map_or(("", rest), |(l, h)| (l, h));
                let at = if login.is_empty() { "" } else { "@" };
                let node = |host: &str| server(&format!("{plain}://{login}{at}{host}"));
                Self::cluster(hosts.split(',').map(node).collect::<Result<_>>()?)
            }
            _ => return Err(Error::invalid("redis URL: write redis://HOST:PORT/DATABASE")),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Error::invalid(format!("parameter {pair:?} of a redis URL needs a value"))
            })?;
            if is_asynq && name == "prefix" {
                let text = "prefix: the keys of asynq have fixed names; leave it out of the URL";
                return Err(Error::invalid(text));
            }
            options = options.set(name, value)?;
        }
        Ok(options)
    }

    fn set(self, name: &str, value: &str) -> Result<Self> {
        match (name, value) {
            ("prefix", prefix) if is_prefix(prefix) => Ok(self.prefix(prefix)),
            ("prefix", _) => {
                let text =
                    format!("prefix: use 1 to {PREFIX_BYTES_MAX} letters, digits or _ . : -");
                Err(Error::invalid(text))
            }
            ("durability", "durable") | ("eviction", "refuse") => Ok(self),
            ("durability", "fast") => Ok(self.fast()),
            ("durability", other) => {
                Err(Error::invalid(format!("durability {other:?}: use durable or fast")))
            }
            ("eviction", "allow") => Ok(self.allow_eviction()),
            ("eviction", other) => {
                Err(Error::invalid(format!("eviction {other:?}: use refuse or allow")))
            }
            ("sslrootcert", "") => Err(Error::invalid("sslrootcert needs a path")),
            ("sslrootcert", path) => Ok(self.authorities(path)),
            (name, _) => Err(Error::invalid(format!(
                "unknown parameter {name:?} in a redis URL; known: prefix, durability, eviction, \
                 sslrootcert"
            ))),
        }
    }
}

fn server(place: &str) -> Result<ConnectionInfo> {
    place.into_connection_info().map_err(|_| {
        Error::invalid("redis URL: write redis://USER:PASSWORD@HOST:PORT/DATABASE, with %-escapes")
    })
}

/// Braces would choose the slot of a key on a Cluster.
fn is_prefix(text: &str) -> bool {
    (1..=PREFIX_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_and_no_password_repeated() {
        for (url, word) in [
            ("redis://u:secret@h?colour=blue", "unknown parameter \"colour\""),
            ("redis://u:secret@h?prefix=", "prefix: use"),
            ("redis://u:secret@h?prefix={x}", "prefix: use"),
            ("redis://u:secret@h?prefix", "needs a value"),
            ("redis://u:secret@h?durability=maybe", "durable or fast"),
            ("redis://u:secret@h?eviction=maybe", "refuse or allow"),
            ("redis://u:secret@h:port/1", "redis://USER:PASSWORD@HOST"),
            ("redis://u:secret@h/one", "redis://USER:PASSWORD@HOST"),
            ("redis:h", "redis://HOST"),
            ("redis+asynq://u:secret@h?prefix=other", "fixed names"),
            ("rediss+asynq+cluster://u:secret@a:1,b:2?prefix=other", "fixed names"),
        ] {
            let error = RedisOptions::of_url(url).unwrap_err();
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!error.chain().contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn the_parts_of_a_url_are_read() {
        let url = "redis://u:secret@h:7000/3?prefix=other&durability=fast&eviction=allow";
        let options = RedisOptions::of_url(url).unwrap();
        assert_eq!(options.key_prefix(), "other");
        assert!(!options.expects_durable && options.allows_eviction && !options.is_cluster());
        let shown = format!("{options:?}");
        assert!(shown.contains("h:7000") && !shown.contains("secret"), "{shown}");
        let cluster = RedisOptions::of_url("redis+cluster://u:secret@a:1,b:2?prefix=p").unwrap();
        assert!(cluster.is_cluster());
        let shown = format!("{cluster:?}");
        assert!(shown.contains("a:1") && shown.contains("b:2"), "{shown}");
    }
}
