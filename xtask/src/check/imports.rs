//! Who may import whom, as data, held against `cargo metadata` and the `use` lines.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::files;
use crate::Result;
use crate::metadata::{host_platform, list, metadata};

/// Every crate of the workspace, and the others of the workspace that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("windlass-core", &[]),
    ("windlass-engine", &["windlass-core"]),
    ("windlass-stores", &["windlass-core"]),
    ("windlass-server", &["windlass-core", "windlass-engine"]),
    ("windlass", &["windlass-core", "windlass-engine", "windlass-stores"]),
    ("windlass-cli", &["windlass", "windlass-server"]),
    ("windlass-mistakes", &["windlass"]),
    ("windlass-testkit", &["windlass-core", "windlass-engine", "windlass-stores"]),
    ("xtask", &["windlass-core", "windlass-engine", "windlass-stores", "windlass-testkit"]),
];

/// May be a dev-dependency of anyone.
const TESTKIT: &str = "windlass-testkit";

/// Runtimes, drivers and sockets: none of them may be anywhere below core.
const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "deadpool",
    "fred",
    "hyper",
    "libsqlite3-sys",
    "mio",
    "postgres",
    "redis",
    "reqwest",
    "rusqlite",
    "rustls",
    "smol",
    "socket2",
    "sqlx",
    "tokio",
    "tokio-postgres",
];

/// Folders of the stores crate that must not know each other. (`hybrid` may know two of them.)
const STRANGERS: &[&str] = &["memory", "sqlite", "postgres", "redis"];

/// One dependency of a workspace crate on another.
struct Edge {
    from: String,
    to: String,
    is_dev: bool,
}

/// Finds dependencies between our crates that are not in [`ALLOWED`].
pub(super) fn crates() -> Result<Vec<String>> {
    let metadata = metadata(&["--no-deps"])?;
    let names: BTreeSet<_> = list(&metadata, "packages")?
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let known: BTreeSet<_> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let mut offences: Vec<_> = names
        .symmetric_difference(&known)
        .map(|name| format!("{name} is in the workspace or in the table, but not in both"))
        .collect();
    let edges = edges(&metadata, &names)?;
    offences.extend(edges.iter().filter_map(judge));
    Ok(offences)
}

fn judge(edge: &Edge) -> Option<String> {
    let Edge { from, to, is_dev } = edge;
    let (_, allowed) = ALLOWED.iter().find(|(name, _)| name == from)?;
    // A crate may name itself to have features for its tests that its users must ask for.
    let is_fine = allowed.contains(&to.as_str()) || (*is_dev && (to == TESTKIT || to == from));
    (!is_fine).then(|| format!("{from} depends on {to}"))
}

fn edges(metadata: &Value, names: &BTreeSet<&str>) -> Result<Vec<Edge>> {
    let mut edges = Vec::new();
    for package in list(metadata, "packages")? {
        let from = package["name"].as_str().unwrap_or_default();
        for dependency in list(package, "dependencies")? {
            let to = dependency["name"].as_str().unwrap_or_default();
            if names.contains(to) {
                edges.push(Edge {
                    from: from.to_owned(),
                    to: to.to_owned(),
                    is_dev: dependency["kind"] == "dev",
                });
            }
        }
    }
    Ok(edges)
}

/// Finds runtimes and drivers among everything that core is built from.
pub(super) fn core_is_pure() -> Result<Vec<String>> {
    // Without a platform, cargo would have to fetch the crates of every platform first.
    let host = host_platform()?;
    let metadata = metadata(&["--filter-platform", &host])?;
    let nodes: BTreeMap<_, _> = list(&metadata["resolve"], "nodes")?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let names: BTreeMap<_, _> = list(&metadata, "packages")?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let core = names
        .iter()
        .find(|(_, name)| **name == "windlass-core")
        .map(|(id, _)| *id)
        .ok_or("no windlass-core in cargo metadata")?;
    let mut reached = BTreeSet::from([core]);
    let mut to_visit = vec![core];
    while let Some(id) = to_visit.pop() {
        let node = nodes.get(id).ok_or("a package that is not resolved")?;
        for dependency in list(node, "deps")? {
            let is_normal =
                list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"].is_null());
            if let Some(next) = dependency["pkg"].as_str()
                && is_normal
                && reached.insert(next)
            {
                to_visit.push(next);
            }
        }
    }
    Ok(reached
        .iter()
        .filter_map(|id| names.get(id))
        .filter(|name| IMPURE.contains(name))
        .map(|name| format!("windlass-core is built from {name}"))
        .collect())
}

/// Finds `use` of one store in the folder of another.
pub(super) fn stores_are_strangers() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in files::all()? {
        let Some(owner) = STRANGERS.iter().find(|store| is_part_of(&file.path, store)) else {
            continue;
        };
        for other in STRANGERS.iter().filter(|other| *other != owner) {
            for (line, text) in file.lines() {
                if names_module(text, other) {
                    offences.push(format!("{}:{line} names {other}", file.path));
                }
            }
        }
    }
    Ok(offences)
}

fn is_part_of(path: &str, store: &str) -> bool {
    path.strip_prefix("crates/windlass-stores/src/")
        .and_then(|rest| rest.strip_prefix(store))
        .is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

fn names_module(text: &str, module: &str) -> bool {
    let code = text.split("//").next().unwrap_or_default();
    ["crate::", "super::"]
        .iter()
        .flat_map(|parent| code.match_indices(&format!("{parent}{module}")).collect::<Vec<_>>())
        .any(|(at, found)| {
            let rest = &code[at + found.len()..];
            !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_edge(from: &str, to: &str, is_dev: bool, is_fine: bool) {
        let edge = Edge { from: from.into(), to: to.into(), is_dev };
        assert_eq!(judge(&edge).is_none(), is_fine, "{from} -> {to}");
    }

    #[test]
    fn the_table_judges_as_the_design_says() {
        check_edge("windlass-engine", "windlass-core", false, true);
        check_edge("windlass-engine", "windlass-stores", false, false);
        check_edge("windlass-server", "windlass-stores", true, false);
        check_edge("windlass-core", "windlass-engine", false, false);
        check_edge("windlass-stores", "windlass-testkit", true, true);
        check_edge("windlass-stores", "windlass-testkit", false, false);
        check_edge("windlass-cli", "windlass-stores", false, false);
        check_edge("windlass", "windlass", true, true);
    }

    #[test]
    fn a_store_that_names_another_is_found() {
        assert!(names_module("use crate::memory::Book;", "memory"));
        assert!(names_module("use super::sqlite;", "sqlite"));
        assert!(!names_module("use crate::memory_map::Book;", "memory"));
        assert!(!names_module("// unlike crate::memory, this one", "memory"));
        assert!(is_part_of("crates/windlass-stores/src/sqlite/claim.rs", "sqlite"));
        assert!(is_part_of("crates/windlass-stores/src/sqlite.rs", "sqlite"));
        assert!(!is_part_of("crates/windlass-stores/src/lib.rs", "sqlite"));
    }
}
