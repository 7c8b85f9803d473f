//! From a URL to the options of a PostgreSQL store. Nothing of a URL but names of parameters is ever
//! repeated in an error: it may hold a password.

use tokio_postgres::Config as Server;
use tokio_postgres::config::SslMode;
use windlass_core::{Error, Result};

use super::options::{PostgresOptions, Trust};

/// Parameters that the driver knows and windlass leaves to it.
const DRIVERS: &[&str] = &[
    "user",
    "password",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "application_name",
    "connect_timeout",
    "target_session_attrs",
    "options",
];

impl PostgresOptions {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`. Beside the parameters of libpq there are
    /// `schema`, `durability` (`durable` or `fast`), `wakeups` (`listen` or `poll`) and `pooler` (`none`,
    /// `session` or `transaction`).
    pub fn of_url(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        let mut own = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Error::invalid(format!("parameter {pair:?} of a postgres URL needs a value"))
            })?;
            match name {
                name if DRIVERS.contains(&name) => rest.push(pair),
                "schema" | "durability" | "wakeups" | "pooler" | "sslmode" | "sslrootcert" => {
                    own.push((name, decode(name, value)?));
                }
                _ => {
                    let text = format!(
                        "unknown parameter {name:?} in a postgres URL; known: schema, durability, \
                         wakeups, pooler, sslmode, sslrootcert, {}",
                        DRIVERS.join(", ")
                    );
                    return Err(Error::invalid(text));
                }
            }
        }
        let plain = match rest.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", rest.join("&")),
        };
        let server: Server = plain.parse().map_err(|_| {
            Error::invalid("store URL: write postgres://USER@HOST/DATABASE, with %-escapes")
        })?;
        if server.get_hosts().is_empty() && server.get_hostaddrs().is_empty() {
            return Err(Error::invalid(
                "a postgres URL needs a host, or host=/folder for a socket",
            ));
        }
        let mut options = Self::at(server);
        for (name, value) in own {
            options = options.set(name, value)?;
        }
        Ok(options)
    }

    fn set(mut self, name: &str, value: String) -> Result<Self> {
        match (name, value.as_str()) {
            ("schema", "") => return Err(Error::invalid("schema needs a name")),
            ("schema", name) if name.len() > 63 || name.contains('\0') => {
                return Err(Error::invalid("schema: a name has at most 63 bytes"));
            }
            ("schema", _) => self = self.schema(value),
            ("durability", "durable") => self = self.durable(),
            ("durability", "fast") => self = self.fast(),
            ("durability", other) => {
                return Err(Error::invalid(format!("durability {other:?}: use durable or fast")));
            }
            ("wakeups", "listen") => {}
            ("wakeups", "poll") => self = self.polling(),
            ("wakeups", other) => {
                return Err(Error::invalid(format!("wakeups {other:?}: use listen or poll")));
            }
            ("pooler", "none") => {}
            ("pooler", "session") => self = self.pooled_by_session(),
            ("pooler", "transaction") => self = self.pooled(),
            ("pooler", other) => {
                let known = "none, session or transaction";
                return Err(Error::invalid(format!("pooler {other:?}: use {known}")));
            }
            ("sslrootcert", _) => self.trust.authorities = Some(value.into()),
            (_, mode) => {
                let (mode, checks_authority, checks_name) = match mode {
                    "disable" => (SslMode::Disable, false, false),
                    "prefer" => (SslMode::Prefer, false, false),
                    "require" => (SslMode::Require, false, false),
                    "verify-ca" => (SslMode::Require, true, false),
                    "verify-full" => (SslMode::Require, true, true),
                    other => {
                        let known = "disable, prefer, require, verify-ca or verify-full";
                        return Err(Error::invalid(format!("sslmode {other:?}: use {known}")));
                    }
                };
                self.server.ssl_mode(mode);
                self.trust = Trust { checks_authority, checks_name, ..self.trust };
            }
        }
        Ok(self)
    }
}

/// Undoes %-escapes.
fn decode(name: &str, value: &str) -> Result<String> {
    let broken =
        || Error::invalid(format!("parameter {name:?} of a postgres URL is badly escaped"));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(broken)?;
        let digits = std::str::from_utf8(digits).map_err(|_| broken())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_and_no_password_repeated() {
        for (url, word) in [
            ("postgres://u:secret@h/d?colour=blue", "unknown parameter \"colour\""),
            ("postgres://u:secret@h/d?schema=", "schema needs a name"),
            ("postgres://u:secret@h/d?schema", "needs a value"),
            ("postgres://u:secret@h/d?schema=%4", "badly escaped"),
            ("postgres://u:secret@h/d?durability=maybe", "durable or fast"),
            ("postgres://u:secret@h/d?pooler=statement", "session or transaction"),
            ("postgres://u:secret@h/d?sslmode=perhaps", "verify-full"),
            ("postgres://u:secret@h:port/d", "postgres://USER@HOST/DATABASE"),
            ("postgres:///d", "needs a host"),
        ] {
            let error = PostgresOptions::of_url(url).unwrap_err();
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!error.chain().contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn a_certificate_to_trust_is_never_for_nothing() {
        for (query, is_verified) in [
            ("", false),
            ("?sslmode=require", false),
            ("?sslmode=require&sslrootcert=/ca.pem", true),
            ("?sslrootcert=/ca.pem&sslmode=require", true),
            ("?sslrootcert=/ca.pem", true),
            ("?sslmode=verify-ca", true),
        ] {
            let options = PostgresOptions::of_url(&format!("postgres://u@h/d{query}")).unwrap();
            assert_eq!(options.trust.is_verified(), is_verified, "{query}");
        }
    }

    #[test]
    fn hosts_on_the_network_are_verified_or_named() {
        for (url, is_named) in [
            ("postgres://u@db.example.org/d", true),
            ("postgres://u@10.0.0.7/d?sslmode=require", true),
            ("postgres://u@10.0.0.7/d?sslmode=disable", true),
            // A man in the middle says that the server speaks no TLS.
            ("postgres://u@10.0.0.7/d?sslrootcert=/ca.pem", true),
            ("postgres://u@10.0.0.7/d?sslmode=require&sslrootcert=/ca.pem", false),
            ("postgres://u@db.example.org/d?sslmode=verify-full", false),
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1,[::1]/d", false),
            ("postgres://u@127.0.0.1,db.example.org/d", true),
            ("postgres://u@db.example.org/d?hostaddr=127.0.0.1", false),
            ("postgres:///d?host=/run/pg&user=u", false),
        ] {
            let hosts = PostgresOptions::of_url(url).unwrap().unverified_hosts();
            assert_eq!(!hosts.is_empty(), is_named, "{url}: {hosts:?}");
        }
    }

    #[test]
    fn an_error_names_hosts_and_ports() {
        for (url, places) in [
            ("postgres://u:canary@db.example.org/d", "db.example.org:5432"),
            ("postgres://u@127.0.0.1:1,[::1]:2/d", "127.0.0.1:1, [::1]:2"),
            ("postgres:///d?host=/run/pg&user=u", "/run/pg"),
        ] {
            let connecting = PostgresOptions::of_url(url).unwrap().connecting();
            assert_eq!(connecting, format!("connect to postgres at {places}"), "{url}");
        }
    }

    #[test]
    fn the_parts_of_a_url_are_read() {
        let url = "postgres://u:secret@h/d?schema=other%20one&durability=fast&sslmode=verify-full\
                   &sslrootcert=/ca.pem&wakeups=poll&connect_timeout=3";
        let options = PostgresOptions::of_url(url).unwrap();
        assert_eq!(options.schema, "other one");
        assert!(!options.is_durable && !options.listens);
        assert!(options.trust.checks_authority && options.trust.checks_name);
        assert_eq!(options.server.get_dbname(), Some("d"));
        assert!(!format!("{options:?}").contains("secret"));
        let socket = PostgresOptions::of_url("postgres:///d?host=/run/pg&user=u").unwrap();
        assert_eq!(socket.schema, "windlass");
    }
}
