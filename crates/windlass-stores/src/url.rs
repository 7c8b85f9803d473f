//! From a URL to a store.

use std::sync::Arc;

use windlass_core::{Error, Result, Store, SystemClock};

use crate::memory::MemoryStore;

/// Opens the store that a URL names.
///
/// - `sqlite:PATH` a file, made when it is not there
/// - `sqlite::memory:` SQLite in memory, gone with the process
/// - `memory:` no database at all, gone with the process
///
/// `?durability=durable` (the default) or `?durability=fast` may follow the path of a file. Unknown
/// schemes and parameters are errors.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::invalid(format!(
            "store URL {url:?} has no scheme: try sqlite:windlass.db"
        )));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock)))),
        "memory" => Err(Error::invalid("store URL memory: takes no path and no parameters")),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(crate::sqlite::SqliteStore::open(sqlite_options(rest)?).await?)),
        // The rest of the URL may hold a password: it is never repeated.
        other => Err(Error::invalid(format!("no store for URLs that begin with {other:?}"))),
    }
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

    #[tokio::test]
    async fn the_documented_urls_are_opened() {
        for (url, name) in [("memory:", "memory"), ("sqlite::memory:", "sqlite")] {
            assert_eq!(open(url).await.unwrap().profile().name, name);
        }
    }
}
