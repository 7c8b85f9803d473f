//! What each setting is called and does, read from the comments of `default.toml`: for `windlass config show`, for the
//! sample file, and for `docs/settings.md`.

use super::layers::variable;
use super::{DEFAULT_TOML, STEP, STEP_DEFAULT};

/// A setting as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its dotted name, e.g. `worker.lease`.
    pub name: String,
    /// The variable of the environment that sets it.
    pub variable: String,
    /// Its default, as TOML.
    pub default: String,
    /// What it does.
    pub description: String,
}

/// Every setting, in the order of the file.
pub fn settings() -> Vec<Setting> {
    let (mut settings, mut section, mut comment) = (Vec::new(), String::new(), Vec::new());
    for line in DEFAULT_TOML.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            comment.push(text);
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, default)) = line.split_once(" = ") {
            let name = format!("{section}{key}");
            settings.push(setting(name, default.to_owned(), comment.join(" ")));
            if settings.last().is_some_and(|it| it.name == "task.retry.shape") {
                let text = "What each retry adds to the pause; only where the shape is linear.";
                settings.push(setting(STEP.into(), format!("{STEP_DEFAULT:?}"), text.into()));
            }
        }
        comment.clear();
    }
    settings
}

fn setting(name: String, default: String, description: String) -> Setting {
    Setting { variable: variable(&name), name, default, description }
}

/// A file of settings to begin with: all of them with their defaults, commented out.
pub fn sample() -> String {
    let mut sample = String::from(
        "# Settings of windlass, with their defaults. Remove the # before those that you change.\n\
         # Commands read ./windlass.toml, or the file that --config names, and the user's own\n\
         # ($XDG_CONFIG_HOME/windlass/windlass.toml). Flags and WINDLASS_* variables win over files.\n\
         # Durations are written \"30s\", \"5m\", \"1h 30m\", \"7d\", \"PT30S\", or as a number of seconds.\n",
    );
    // The first paragraph is about the defaults as such.
    let settings = DEFAULT_TOML.split_once("\n\n").map_or(DEFAULT_TOML, |(_, rest)| rest);
    sample.push('\n');
    for line in settings.lines() {
        let is_setting = !line.starts_with(['#', '[']) && !line.is_empty();
        sample.push_str(if is_setting { "#" } else { "" });
        sample.push_str(line);
        sample.push('\n');
    }
    sample
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Config, Layer, Layered, layered};

    /// Another value for each setting, as a variable of the environment has it.
    const OTHERS: &[(&str, &str)] = &[
        ("store", "sqlite:other.db"),
        ("broker", "redis://127.0.0.1"),
        ("log.level", "debug"),
        ("log.format", "json"),
        ("server.bind", "::1"),
        ("server.port", "9000"),
        ("server.hosts", "queue.example"),
        ("server.connections_max", "7"),
        ("server.waits_max", "7"),
        ("server.new_names_per_minute", "7"),
        ("server.names_max", "7"),
        ("server.tls_cert", "cert.pem"),
        ("server.tls_key", "key.pem"),
        ("metrics.port", "9100"),
        ("metrics.bind", "::1"),
        ("statistics.enabled", "false"),
        ("worker.lease", "1m"),
        ("worker.heartbeat", "2s"),
        ("worker.concurrency_per_core", "7"),
        ("worker.shutdown_timeout", "7s"),
        ("worker.idle_poll_min", "70ms"),
        ("worker.idle_poll_max", "7s"),
        ("upkeep.leader_term", "1m"),
        ("upkeep.leader_renewal", "2s"),
        ("upkeep.sweep", "7s"),
        ("upkeep.batch", "7"),
        ("task.max_retries", "7"),
        ("task.max_crashes", "7"),
        ("task.timeout", "7s"),
        ("task.retention", "7d"),
        ("task.dead_letter_retention", "1w"),
        ("task.retry.shape", "fixed"),
        ("task.retry.step", "7s"),
        ("task.retry.initial", "7s"),
        ("task.retry.factor", "7.5"),
        ("task.retry.max", "7s"),
        ("task.retry.jitter", "0.7"),
        ("webhook.allow", "10.0.0.0/8"),
        ("webhook.secrets", "secrets"),
        ("webhook.timeout", "7s"),
        ("limits.payload_bytes_max", "7"),
        ("limits.result_bytes_max", "7"),
        ("limits.error_bytes_max", "7"),
        ("limits.json_depth_max", "7"),
    ];

    /// Settings that make sense together with others only.
    fn companions(name: &str) -> &'static [(&'static str, &'static str)] {
        match name {
            "server.tls_cert" => &[("server.tls_key", "key.pem")],
            "server.tls_key" => &[("server.tls_cert", "cert.pem")],
            "task.retry.step" => &[("task.retry.shape", "linear")],
            _ => &[],
        }
    }

    fn by_environment(settings: &[(&str, &str)]) -> Layered {
        let variables = settings.iter().map(|(name, value)| (variable(name), (*value).into()));
        layered(Layer::of_environment(variables).unwrap()).unwrap()
    }

    fn by_file(settings: &[(&str, &str)]) -> Layered {
        let line = |(name, value): &(&str, &str)| {
            let is_bare = value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok();
            if is_bare { format!("{name} = {value}\n") } else { format!("{name} = {value:?}\n") }
        };
        let text: String = settings.iter().map(line).collect();
        layered(vec![Layer::parse("a file", &text).unwrap()]).unwrap()
    }

    #[test]
    fn every_setting_changes_by_environment_and_by_file() {
        let others: BTreeMap<_, _> = OTHERS.iter().copied().collect();
        let (settings, defaults) = (settings(), by_file(&[]));
        assert_eq!(settings.len(), others.len());
        for Setting { name, .. } in settings {
            let other = others.get(name.as_str()).unwrap_or_else(|| panic!("no value for {name}"));
            let own = [(name.as_str(), *other)];
            let given: Vec<_> = companions(&name).iter().copied().chain(own).collect();
            let (environment, file) = (by_environment(&given), by_file(&given));
            assert_eq!(environment.config, file.config, "{name}");
            assert_ne!(file.config, defaults.config, "{name} changes nothing");
            let value =
                |layered: &Layered| layered.values.get(&name).map(|(value, _)| value.clone());
            assert_ne!(value(&file), value(&defaults), "{name} keeps its value");
        }
    }

    #[test]
    fn every_setting_is_described_in_sentences() {
        for Setting { name, description, .. } in settings() {
            assert!(description.ends_with('.'), "{name}: {description}");
        }
    }

    #[test]
    fn the_sample_sets_nothing_and_names_everything() {
        let sample = sample();
        assert_eq!(Config::parse(&sample).unwrap(), Config::default());
        let uncommented: String = sample
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let table: toml::Table = toml::from_str(&uncommented).unwrap();
        assert_eq!(table, toml::from_str(DEFAULT_TOML).unwrap());
    }
}
