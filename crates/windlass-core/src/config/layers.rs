//! Settings from several places, one over the other, and where each value came from.

use std::collections::BTreeMap;

use super::{Config, DEFAULT_TOML, STEP, STEP_DEFAULT, overlay};
use crate::error::{Error, Result};

/// What variables of the environment that are settings begin with.
const PREFIX: &str = "WINDLASS_";

/// Settings from one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Where they come from, in words for people.
    pub origin: String,
    /// The settings themselves.
    pub table: toml::Table,
}

/// Settings that were put together, each with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Layered {
    /// What holds.
    pub config: Config,
    /// Every setting by its dotted name, with its value and where that came from.
    pub values: BTreeMap<String, (toml::Value, String)>,
}

impl Layer {
    /// Settings that a text in TOML holds.
    pub fn parse(origin: impl Into<String>, text: &str) -> Result<Self> {
        let origin = origin.into();
        let table = toml::from_str(text)
            .map_err(|cause| Error::invalid(format!("read {origin}")).because(cause))?;
        Ok(Self { origin, table })
    }

    /// One setting by its dotted name.
    pub fn of_one(origin: impl Into<String>, name: &str, value: impl Into<toml::Value>) -> Self {
        let mut table = toml::Table::new();
        put(&mut table, name, value.into());
        Self { origin: origin.into(), table }
    }

    /// The settings among the variables of an environment: `worker.lease` is
    /// `WINDLASS_WORKER_LEASE`. Each has a layer of its own, so that it can be named.
    pub fn of_environment(variables: impl Iterator<Item = (String, String)>) -> Result<Vec<Self>> {
        let known = variables_by_name();
        let mut layers = Vec::new();
        let mut variables: Vec<_> = variables.collect();
        // The shape of backoff first: it decides which other settings of backoff there are.
        variables.sort_by_key(|(name, _)| name != "WINDLASS_TASK_RETRY_SHAPE");
        for (variable, text) in variables {
            if let Some((name, default)) = known.get(&variable) {
                let value = as_typed(default, &text).ok_or_else(|| {
                    let sort = default.type_str();
                    Error::invalid(format!("{variable} must be of type {sort}, not {text:?}"))
                })?;
                layers.push(Self::of_one(format!("environment {variable}"), name, value));
            }
        }
        Ok(layers)
    }
}

/// A variable that looks like a setting and is none: a slip of the pen, most likely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisspeltVariable {
    /// As it was given.
    pub name: String,
    /// The variable that was most likely meant.
    pub nearest: Option<String>,
}

/// Finds out whether a variable looks like a setting and is none.
pub fn misspelt(variable: &str) -> Option<MisspeltVariable> {
    // What the command line reads, what tests and a command that a worker runs are given.
    const OTHERS: [&str; 11] = [
        "URL",
        "TOKEN",
        "CA_CERT",
        "TASK_ID",
        "EPOCH",
        "ATTEMPT",
        "TYPE",
        "QUEUE",
        "CONTROL_FD",
        "SEED",
        "BLESS",
    ];
    let rest = variable.strip_prefix(PREFIX)?;
    let known = variables_by_name();
    // Kubernetes gives every pod variables about services, of which one may be called windlass.
    let is_of_service =
        ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|w| rest.contains(w))
            || rest.starts_with("SERVICE_")
            || rest.starts_with("PORT_");
    if known.contains_key(variable) || OTHERS.contains(&rest) || is_of_service {
        return None;
    }
    let sections = known.values().filter_map(|(name, _)| Some(name.split_once('.')?.0));
    let is_in_section = sections
        .map(|section| format!("{}_", section.to_uppercase()))
        .any(|section| rest.starts_with(&section));
    let names: Vec<_> = known.keys().map(String::as_str).collect();
    let nearest = nearest(variable, &names).map(str::to_owned);
    (is_in_section || nearest.is_some())
        .then(|| MisspeltVariable { name: variable.into(), nearest })
}

/// The name among these that takes the fewest letters to be made of another; nothing where that is too many.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // Beyond the prefix, which all share.
    let steps_max = |name: &str| 2.max((name.len() - PREFIX.len()) / 4);
    let nearest = known.iter().map(|known| (letters_between(name, known), *known)).min()?;
    (nearest.0 <= steps_max(nearest.1)).then_some(nearest.1)
}

/// How many letters must be added, removed or replaced to make one text of the other.
fn letters_between(from: &str, to: &str) -> usize {
    let to: Vec<_> = to.chars().collect();
    let mut row: Vec<_> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Puts layers over the defaults, the last on top.
pub fn layered(layers: Vec<Layer>) -> Result<Layered> {
    let mut table: toml::Table = toml::from_str(DEFAULT_TOML)
        .map_err(|cause| Error::invalid("read the defaults").because(cause))?;
    let mut origins: BTreeMap<String, String> =
        flat(&table).into_keys().map(|name| (name, String::from("default"))).collect();
    let mut last = String::from("the defaults");
    for Layer { origin, table: over } in layers {
        for name in flat(&over).into_keys() {
            origins.insert(name, origin.clone());
        }
        overlay(&mut table, over);
        // Read after each layer: so an unknown or wrong setting is blamed on the layer it is in.
        let _: Config = table.clone().try_into().map_err(|cause: toml::de::Error| {
            Error::invalid(format!("settings from {origin}")).because(cause)
        })?;
        last = origin;
    }
    let config: Config = table
        .clone()
        .try_into()
        .map_err(|cause: toml::de::Error| Error::invalid("read the settings").because(cause))?;
    config
        .validate()
        .map_err(|cause| Error::invalid(format!("settings up to {last}")).because(cause))?;
    let values = flat(&table)
        .into_iter()
        .map(|(name, value)| {
            let origin = origins.remove(&name).unwrap_or_else(|| String::from("default"));
            (name, (value, origin))
        })
        .collect();
    Ok(Layered { config, values })
}

/// The variable of the environment for a setting.
pub(super) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('.', "_").to_uppercase())
}

/// The variable of every setting, with the setting's name and its default.
fn variables_by_name() -> BTreeMap<String, (String, toml::Value)> {
    let defaults: toml::Table = toml::from_str(DEFAULT_TOML).unwrap_or_default();
    let step = (STEP.to_owned(), STEP_DEFAULT.into());
    let all = flat(&defaults).into_iter().chain([step]);
    all.map(|(name, value)| (variable(&name), (name, value))).collect()
}

/// A text read as a value of the same type as another.
fn as_typed(like: &toml::Value, text: &str) -> Option<toml::Value> {
    match like {
        toml::Value::Integer(_) => text.trim().parse().ok().map(toml::Value::Integer),
        toml::Value::Float(_) => text.trim().parse().ok().map(toml::Value::Float),
        toml::Value::Boolean(_) => text.trim().parse().ok().map(toml::Value::Boolean),
        _ => Some(toml::Value::String(text.to_owned())),
    }
}

/// Every value of a table by its dotted name.
fn flat(table: &toml::Table) -> BTreeMap<String, toml::Value> {
    let mut values = BTreeMap::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                values
                    .extend(flat(inner).into_iter().map(|(name, v)| (format!("{key}.{name}"), v)));
            }
            other => {
                values.insert(key.clone(), other.clone());
            }
        }
    }
    values
}

fn put(table: &mut toml::Table, name: &str, value: toml::Value) {
    match name.split_once('.') {
        None => {
            table.insert(name.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner =
                table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Result<Vec<Layer>> {
        let owned = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Layer::of_environment(owned)
    }

    #[track_caller]
    fn check(layered: &Layered, name: &str, value: &str, origin: &str) {
        let (found, from) = &layered.values[name];
        assert_eq!((found.to_string().trim_matches('"'), from.as_str()), (value, origin), "{name}");
    }

    #[test]
    fn the_last_layer_wins_and_every_value_has_an_origin() {
        let file =
            Layer::parse("windlass.toml", "store = \"sqlite:a.db\"\n[server]\nport = 1").unwrap();
        let mut layers = vec![file];
        layers.extend(environment(&[("WINDLASS_SERVER_PORT", "2"), ("HOME", "/")]).unwrap());
        layers.push(Layer::of_one("flag --bind", "server.bind", "::1"));
        let layered = layered(layers).unwrap();
        check(&layered, "store", "sqlite:a.db", "windlass.toml");
        check(&layered, "server.port", "2", "environment WINDLASS_SERVER_PORT");
        check(&layered, "server.bind", "::1", "flag --bind");
        check(&layered, "worker.lease", "15s", "default");
        assert_eq!(layered.config.server.port, 2);
    }

    #[test]
    fn a_mistake_is_blamed_on_the_layer_it_is_in() {
        let bad = Layer::parse("windlass.toml", "[worker]\nleese = \"1s\"").unwrap();
        let good = Layer::of_one("flag --port", "server.port", 5);
        let error = layered(vec![bad, good]).unwrap_err();
        assert!(error.chain().contains("windlass.toml") && error.chain().contains("leese"));
        let error = environment(&[("WINDLASS_SERVER_PORT", "many")]).unwrap_err();
        assert!(error.to_string().contains("WINDLASS_SERVER_PORT"), "{error}");
    }

    #[test]
    fn another_shape_of_backoff_leaves_no_field_of_the_old_one() {
        let text = "[task.retry]\nshape = \"fixed\"\ninitial = \"9s\"\njitter = 0.0";
        let layered = layered(vec![Layer::parse("file", text).unwrap()]).unwrap();
        assert!(!layered.values.contains_key("task.retry.factor"));
        check(&layered, "task.retry.initial", "9s", "file");
    }

    #[test]
    fn variables_give_backoff_another_shape_in_any_order() {
        let given = [("WINDLASS_TASK_RETRY_STEP", "7s"), ("WINDLASS_TASK_RETRY_SHAPE", "linear")];
        for given in [given, [given[1], given[0]]] {
            let layered = layered(environment(&given).unwrap()).unwrap();
            check(&layered, "task.retry.step", "7s", "environment WINDLASS_TASK_RETRY_STEP");
            check(&layered, "task.retry.max", "5m", "default");
        }
    }

    #[test]
    fn a_misspelt_variable_is_noticed() {
        for (variable, meant) in [
            ("WINDLASS_WORKER_LEESE", Some("WINDLASS_WORKER_LEASE")),
            ("WINDLASS_WORKR_LEASE", Some("WINDLASS_WORKER_LEASE")),
            ("WINDLASS_STATISTICS_ENABLE", Some("WINDLASS_STATISTICS_ENABLED")),
            ("WINDLASS_STOR", Some("WINDLASS_STORE")),
            ("WINDLASS_STATISTICS_COLOUR_OF_THE_PAGE", Some("")),
            ("WINDLASS_WORKER_LEASE", None),
            ("WINDLASS_STATISTICS_ENABLED", None),
            ("WINDLASS_TASK_ID", None),
            ("WINDLASS_URL", None),
            ("WINDLASS_SERVER_SERVICE_HOST", None),
            ("WINDLASS_PORT_8080_TCP_ADDR", None),
            ("WINDLASS_DASHBOARD_TITLE", None),
            ("PATH", None),
        ] {
            let found = misspelt(variable).map(|found| found.nearest.unwrap_or_default());
            assert_eq!(found.as_deref(), meant, "{variable}");
        }
    }
}
