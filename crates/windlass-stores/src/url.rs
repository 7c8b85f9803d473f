//! From a URL to a store.

use std::sync::Arc;

use windlass_core::config::Config;
use windlass_core::limits::Limits;
use windlass_core::{Error, Result, Store, SystemClock};

use crate::memory::MemoryStore;
use crate::schema::SchemaStatus;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Makes what is not there yet; otherwise its absence is [`windlass_core::ErrorKind::NotFound`].
    pub creates: bool,
    /// Upper bounds of what it takes.
    pub limits: Limits,
    /// Brokers in front of a PostgreSQL store: a URL for all priorities, or `high=URL` and `low=URL`.
    pub brokers: Vec<String>,
}

impl Default for Opening {
    fn default() -> Self {
        Self { creates: true, limits: Config::default().limits, brokers: Vec::new() }
    }
}

/// Opens the store that a URL names.
///
/// - `sqlite:PATH` a file, made when it is not there
/// - `sqlite::memory:` SQLite in memory, gone with the process
/// - `postgres://USER@HOST/DATABASE` a schema in a PostgreSQL database, `?schema=windlass` unless
///   it is told otherwise, made when it is not there
/// - `redis://HOST:PORT/DATABASE` keys in a Redis, `?prefix=wl` unless it is told otherwise; `rediss://`
///   with TLS, `redis+cluster://HOST:PORT,HOST:PORT` (or `rediss+cluster://`) for a Cluster
/// - `redis+asynq://HOST:PORT/DATABASE` the keys of Go's asynq in a Redis, shared with programs in Go;
///   `rediss+asynq://` with TLS, `redis+asynq+cluster://…` for a Cluster
/// - `memory:` no database at all, gone with the process
///
/// `?durability=durable` (the default) or `?durability=fast` may follow the path of a file or the name
/// of a database; a Redis has its own setting, which is reported. Unknown schemes and parameters are errors.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_as(url, Opening::default()).await
}

/// Opens the store that a URL names, in a way of the caller's own.
pub async fn open_as(url: &str, opening: Opening) -> Result<Arc<dyn Store>> {
    let place = Place::of(url)?;
    if !opening.brokers.is_empty() && !place.takes_brokers() {
        return Err(Error::invalid("a broker can stand in front of a postgres:// store only"));
    }
    match place {
        Place::Memory => Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock)))),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(options) => {
            let options = options.limits(opening.limits);
            let options = if opening.creates { options } else { options.existing() };
            Ok(Arc::new(crate::sqlite::SqliteStore::open(options).await?))
        }
        #[cfg(feature = "postgres")]
        Place::Postgres(options) => {
            let options = options.limits(opening.limits);
            let options = if opening.creates { options } else { options.existing() };
            #[cfg(feature = "redis")]
            if !opening.brokers.is_empty() {
                use crate::hybrid::{HybridOptions, HybridStore};
                let options = HybridOptions::of_urls(options, &opening.brokers)?;
                return Ok(Arc::new(HybridStore::open(options).await?));
            }
            Ok(Arc::new(crate::postgres::PostgresStore::open(options).await?))
        }
        #[cfg(feature = "redis")]
        Place::Redis(options) => {
            let options = options.limits(opening.limits);
            let options = if opening.creates { options } else { options.existing() };
            Ok(Arc::new(crate::redis::streams::StreamsStore::open(options).await?))
        }
        #[cfg(feature = "redis")]
        Place::Asynq(options) => {
            let options = options.limits(opening.limits);
            let options = if opening.creates { options } else { options.existing() };
            Ok(Arc::new(crate::redis::asynq::AsynqStore::open(options).await?))
        }
    }
}

/// How the schema of a store stands, without changing it.
pub async fn schema_status(url: &str) -> Result<SchemaStatus> {
    match Place::of(url)? {
        Place::Memory => Ok(SchemaStatus { applied: 0, migrations: &[] }),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(options) => crate::sqlite::schema_status(options).await,
        #[cfg(feature = "postgres")]
        Place::Postgres(options) => crate::postgres::schema_status(*options).await,
        // Keys have no schema to migrate.
        #[cfg(feature = "redis")]
        Place::Redis(_) | Place::Asynq(_) => Ok(SchemaStatus { applied: 0, migrations: &[] }),
    }
}

/// What brings the schema of a store up to date, as a script for who may do so; changes nothing.
pub async fn schema_script(url: &str) -> Result<String> {
    match Place::of(url)? {
        Place::Memory => Ok(String::new()),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(_) => Ok(crate::sqlite::schema_script()),
        #[cfg(feature = "postgres")]
        Place::Postgres(options) => crate::postgres::schema_script(*options).await,
        #[cfg(feature = "redis")]
        Place::Redis(_) | Place::Asynq(_) => Ok(String::new()),
    }
}

/// What a URL names.
enum Place {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite(crate::sqlite::SqliteOptions),
    #[cfg(feature = "postgres")]
    Postgres(Box<crate::postgres::PostgresOptions>),
    #[cfg(feature = "redis")]
    Redis(Box<crate::redis::RedisOptions>),
    #[cfg(feature = "redis")]
    Asynq(Box<crate::redis::RedisOptions>),
}

impl Place {
    /// True for a place that brokers can stand in front of.
    #[cfg(all(feature = "postgres", feature = "redis"))]
    fn takes_brokers(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    #[cfg(not(all(feature = "postgres", feature = "redis")))]
    fn takes_brokers(&self) -> bool {
        false
    }

    fn of(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::invalid(format!(
                "store URL {url:?} has no scheme: try sqlite:windlass.db"
            )));
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(Error::invalid("store URL memory: takes no path and no parameters")),
            #[cfg(feature = "sqlite")]
            "sqlite" => sqlite_options(rest).map(Self::Sqlite),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = crate::postgres::PostgresOptions::of_url(url)?;
                Ok(Self::Postgres(Box::new(options)))
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => {
                let options = crate::redis::RedisOptions::of_url(url)?;
                Ok(Self::Redis(Box::new(options)))
            }
            #[cfg(feature = "redis")]
            "redis+asynq" | "rediss+asynq" | "redis+asynq+cluster" | "rediss+asynq+cluster" => {
                let options = crate::redis::RedisOptions::of_url(url)?;
                Ok(Self::Asynq(Box::new(options)))
            }
            other => Err(no_store(other)),
        }
    }
}

/// The error for a scheme that this build has no store for. It repeats nothing else of the URL, which may hold a
/// password.
fn no_store(scheme: &str) -> Error {
    let feature = match scheme {
        "sqlite" => "sqlite",
        "postgres" | "postgresql" => "postgres",
        redis if redis == "redis" || redis == "rediss" => "redis",
        redis if redis.starts_with("redis+") || redis.starts_with("rediss+") => "redis",
        _ => {
            let text = format!(
                "no store for URLs that begin with {scheme:?}: use sqlite:, postgres://, redis://, redis+cluster:// \
                 or redis+asynq://"
            );
            return Error::invalid(text);
        }
    };
    if cfg!(feature = "redis") && feature == "redis" {
        return Error::invalid(format!(
            "no store for URLs that begin with {scheme:?}: use redis://, redis+cluster:// or redis+asynq://, \
             or rediss… for TLS"
        ));
    }
    Error::unsupported(format!(
        "windlass was built without the feature {feature:?}: add features = [{feature:?}] to windlass in Cargo.toml"
    ))
}

#[cfg(feature = "sqlite")]
fn sqlite_options(rest: &str) -> Result<crate::sqlite::SqliteOptions> {
    use crate::sqlite::SqliteOptions;
    let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
    let mut options = match path {
        "" | " " => {
            return Err(Error::invalid("store URL sqlite: needs a path, e.g. sqlite:windlass.db"));
        }
        // `sqlite://tasks.db` would be a file in the root folder, which nobody means; `file:` would be
        // read by SQLite as a URI of its own.
        path if path.starts_with("//") || path.starts_with("file:") => {
            let text =
                "store URL: write sqlite:PATH, e.g. sqlite:windlass.db or sqlite:/data/windlass.db";
            return Err(Error::invalid(text));
        }
        ":memory:" => SqliteOptions::in_memory(),
        path => SqliteOptions::at(path),
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("durability", "durable")) => options = options.durable(),
            Some(("durability", "fast")) => options = options.fast(),
            Some(("durability", other)) => {
                let text = format!("durability {other:?}: use durable or fast");
                return Err(Error::invalid(text));
            }
            None if pair == "durability" => {
                return Err(Error::invalid("durability needs a value: use durable or fast"));
            }
            _ => {
                let name = pair.split('=').next().unwrap_or(pair);
                let text = format!("unknown parameter {name:?} in a sqlite URL; known: durability");
                return Err(Error::invalid(text));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_opened_is_refused_with_the_reason() {
        for (url, word) in [
            ("tasks.db", "no scheme"),
            ("mongodb://user:secret@host", "mongodb"),
            ("memory:x", "takes no path"),
            ("sqlite:", "needs a path"),
            ("sqlite://tasks.db", "write sqlite:PATH"),
            ("sqlite:file:tasks.db", "write sqlite:PATH"),
            ("sqlite:a.db?durability", "needs a value"),
            ("sqlite:a.db?durability=maybe", "durable or fast"),
            ("sqlite:a.db?sync=off", "unknown parameter \"sync\""),
        ] {
            let error = open(url).await.err().unwrap_or_else(|| panic!("{url} was opened"));
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn who_only_reads_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("tasks.db").display());
        let opening = Opening { creates: false, ..Opening::default() };
        let error = open_as(&url, opening).await.err().unwrap();
        assert_eq!(error.kind(), windlass_core::ErrorKind::NotFound);
        let error = schema_status(&url).await.unwrap_err();
        assert_eq!(error.kind(), windlass_core::ErrorKind::NotFound);
        assert!(!folder.path().join("tasks.db").exists());
        drop(open(&url).await.unwrap());
        let status = schema_status(&url).await.unwrap();
        assert!(status.applied > 0);
        assert_eq!(status.applied, status.migrations.len());
    }

    #[tokio::test]
    async fn the_documented_urls_are_opened() {
        for (url, name) in [("memory:", "memory"), ("sqlite::memory:", "sqlite")] {
            assert_eq!(open(url).await.unwrap().profile().name, name);
        }
    }
}
