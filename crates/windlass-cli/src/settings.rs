//! Settings of this process: flag > environment > `./windlass.toml` > user config > default.

use std::io::Read;
use std::path::{Path, PathBuf};

use windlass::core::config::{Config, Layer, Layered, LogConfig, layered, misspelt};

use crate::cmd::Globals;
use crate::exit::{Done, Failure};
use crate::output::tell;

/// The project's own settings.
const PROJECT_FILE: &str = "windlass.toml";
/// The user's settings, in the folder for such things.
const USER_FILE: &str = "windlass/windlass.toml";

/// Longest file of settings.
const SETTINGS_BYTES_MAX: usize = 1 << 20;
const BLANKS_MAX: usize = 4 * 1024;

/// Everything that a command goes by.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Each setting with its origin, for `windlass config show`.
    pub(crate) layered: Layered,
    /// A server to talk to in place of a store.
    pub(crate) server: Option<Server>,
}

/// A server to talk to.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// Whom to trust in place of those whom the system trusts.
    pub(crate) ca_cert: Option<PathBuf>,
}

impl Server {
    pub(crate) fn new(url: String, token: Option<String>, globals: &Globals) -> Self {
        let from_environment = || variable("WINDLASS_CA_CERT").map(PathBuf::from);
        Self { url, token, ca_cert: globals.ca_cert.clone().or_else(from_environment) }
    }
}

impl Settings {
    /// The store's URL as it may be shown.
    pub(crate) fn store_shown(&self) -> String {
        without_password(&self.config.store)
    }

    /// The URLs of the brokers in front of the store.
    pub(crate) fn brokers(&self) -> Vec<String> {
        let named = self.config.broker.split(',').map(str::trim);
        named.filter(|broker| !broker.is_empty()).map(String::from).collect()
    }

    /// Settings of the log, which begins before anything else. What is wrong with them is said when the command
    /// gathers its settings.
    pub(crate) fn log(globals: &Globals) -> LogConfig {
        let gathered = || {
            let mut layers = files(globals).ok()?;
            layers.extend(Layer::of_environment(variables()).ok()?);
            Some(layered(layers).ok()?.config.log)
        };
        gathered().unwrap_or_else(|| Config::default().log)
    }

    /// Puts all sources together; `flags` are those of the command itself.
    pub(crate) fn gather(globals: &Globals, flags: Vec<Layer>) -> Done<Self> {
        let mut layers = files(globals)?;
        for wrong in variables().filter_map(|(name, _)| misspelt(&name)) {
            let meant = wrong.nearest.map(|name| format!("; did you mean {name}?"));
            let meant = meant.unwrap_or_else(|| " (see `windlass config show`)".into());
            tell!("warning: {} is no setting of windlass{meant}", wrong.name);
        }
        layers.extend(Layer::of_environment(variables())?);
        layers.extend(flags);
        if let Some(format) = globals.log_format {
            layers.push(Layer::of_one("flag --log-format", "log.format", format.as_str()));
        }
        if let Some(store) = &globals.store {
            layers.push(Layer::of_one("flag --store", "store", store.as_str()));
        }
        if !globals.broker.is_empty() {
            if globals.broker.iter().any(|broker| broker.trim().is_empty()) {
                return Err(Failure::usage("--broker is empty: give a URL, or leave it out"));
            }
            let brokers = globals.broker.join(",");
            layers.push(Layer::of_one("flag --broker", "broker", brokers.as_str()));
        }
        warn_of_passwords(globals);
        let layered = layered(layers)?;
        // A store that was named by a flag is meant, whatever the environment says.
        let from_environment = || variable("WINDLASS_URL").filter(|_| globals.store.is_none());
        let server = globals.server.clone().or_else(from_environment);
        let server = server.map(|url| Server::new(url, variable("WINDLASS_TOKEN"), globals));
        Ok(Self { config: layered.config.clone(), layered, server })
    }
}

/// The settings in files: those of the user, and those of the project.
fn files(globals: &Globals) -> Done<Vec<Layer>> {
    let mut layers = Vec::new();
    layers.extend(user_file().map(|path| file(&path)).transpose()?.flatten());
    match &globals.config {
        Some(path) => {
            let missing = || Failure::usage(format!("no settings at {}", path.display()));
            layers.push(file(path)?.ok_or_else(missing)?);
        }
        None => layers.extend(file(Path::new(PROJECT_FILE))?),
    }
    Ok(layers)
}

/// The variables of the environment that are text.
fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text)
}

/// Says once that a password that came as an argument can be read by everybody on this machine.
fn warn_of_passwords(globals: &Globals) {
    let has_password = |url: &&str| without_password(url) != **url;
    let store = globals.store.iter().map(|url| ("--store", url.as_str(), "WINDLASS_STORE"));
    let brokers = globals.broker.iter().map(|url| ("--broker", url.as_str(), "WINDLASS_BROKER"));
    if let Some((flag, _, variable)) = store.chain(brokers).find(|(_, url, _)| has_password(url)) {
        tell!(
            "warning: the password in {flag} can be read in the list of processes: \
             give it by {variable} or in windlass.toml instead"
        );
    }
}

/// Reads a file of settings; nothing when there is none.
fn file(path: &Path) -> Done<Option<Layer>> {
    match std::fs::File::open(path) {
        Ok(file) => {
            let name = path.display().to_string();
            let text = read_bounded(&name, file, SETTINGS_BYTES_MAX)?;
            Ok(Some(Layer::parse(name, &text)?))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("read {}: {error}", path.display()))),
    }
}

/// Reads a text that someone else provides, and no more of it than makes sense.
pub(crate) fn read_bounded(name: &str, source: impl Read, bytes_max: usize) -> Done<String> {
    String::from_utf8(read_bytes(name, source, bytes_max)?)
        .map_err(|_| Failure::usage(format!("{name} is not UTF-8 text")))
}

/// Reads bytes that someone else provides, and no more of them than makes sense.
pub(crate) fn read_bytes(name: &str, source: impl Read, bytes_max: usize) -> Done<Vec<u8>> {
    // Room for the blanks around what counts.
    let most = bytes_max.saturating_add(BLANKS_MAX);
    let mut bytes = Vec::new();
    source
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| Failure::usage(format!("read {name}: {cause}")))?;
    if bytes.len() > most {
        return Err(Failure::usage(format!("{name} has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn user_file() -> Option<PathBuf> {
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(folder.join(USER_FILE))
}

/// A variable of the environment; an empty one counts as absent.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A URL with stars in place of the password and of every parameter that may be one.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let hidden = match authority.rsplit_once('@') {
        None => authority.to_owned(),
        Some((user, host)) => match user.split_once(':') {
            None => authority.to_owned(),
            Some((name, _)) => format!("{name}:***@{host}"),
        },
    };
    let path = match path.split_once('?') {
        Some((path, query)) if query.to_lowercase().contains("password") => format!("{path}?***"),
        _ => path.to_owned(),
    };
    format!("{scheme}://{hidden}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("sqlite:windlass.db", "sqlite:windlass.db"),
            ("postgres://ann:se@cret@db/x", "postgres://ann:***@db/x"),
            ("postgres://db/x?password=secret", "postgres://db/x?***"),
            ("redis://:secret@h:6379/0", "redis://:***@h:6379/0"),
            ("redis://h:6379", "redis://h:6379"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
