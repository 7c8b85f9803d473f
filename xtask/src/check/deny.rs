//! Rules about the crates that windlass is built from, read from `deny.toml`: licences, sources, several versions of one crate.
//!
//! The file is in the format of cargo-deny, which can be run with it where it is installed. To build cargo-deny takes
//! minutes of CI, so what needs no network is checked here. Advisories need a database from the network: only
//! cargo-deny or cargo-audit can check them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::files::LOCKED_SOURCE;
use crate::metadata::{host_platform, list, metadata};
use crate::{Result, shell};

const FILE: &str = "deny.toml";

/// The parts of `deny.toml` that are checked here.
#[derive(Debug, Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that is allowed beside another one.
#[derive(Debug, Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    /// By default the one that Cargo.lock names on every machine, as in cargo-deny.
    #[serde(default = "usual_registry")]
    allow_registry: Vec<String>,
}

fn usual_registry() -> Vec<String> {
    LOCKED_SOURCE.strip_prefix("registry+").map(String::from).into_iter().collect()
}

/// A crate that windlass is built from.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    license: String,
    /// Nothing for a crate of the workspace.
    source: Option<String>,
}

/// Finds crates that the policy forbids.
pub(super) fn crates() -> Result<Vec<String>> {
    let policy = toml::from_str(&std::fs::read_to_string(shell::repository_root().join(FILE))?)?;
    Ok(judge(&policy, &packages()?))
}

fn packages() -> Result<Vec<Package>> {
    // Without a platform, cargo would have to fetch the crates of every platform first.
    let metadata = metadata(&["--filter-platform", &host_platform()?])?;
    let reached: BTreeSet<_> = list(&metadata["resolve"], "nodes")?
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let is_reached = |id: Option<&str>| id.is_some_and(|id| reached.contains(id));
    let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
    let packages = list(&metadata, "packages")?.iter();
    Ok(packages
        .filter(|package| is_reached(package["id"].as_str()))
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            license: text(&package["license"]).unwrap_or_default(),
            source: text(&package["source"]),
        })
        .collect())
}

fn judge(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut offences = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, license, source } in packages {
        versions.entry(name).or_default().insert(version);
        if !is_allowed(license, &policy.licenses.allow) {
            offences.push(format!("{name} {version} has the licence {license:?}, not in {FILE}"));
        }
        let is_known = |url: &String| source.as_deref() == Some(format!("registry+{url}").as_str());
        if source.is_some() && !policy.sources.allow_registry.iter().any(is_known) {
            offences
                .push(format!("{name} {version} comes from {}", source.as_deref().unwrap_or("")));
        }
    }
    for Skip { package, reason } in &policy.bans.skip {
        let (name, version) = package.split_once('@').unwrap_or((package, ""));
        let removed = versions.get_mut(name).is_some_and(|versions| versions.remove(version));
        if !removed {
            offences.push(format!("{FILE} skips {package}, which is not built"));
        }
        if reason.is_empty() {
            offences.push(format!("{FILE} skips {package} without a reason"));
        }
    }
    let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
    offences.extend(several.map(|(name, versions)| {
        let versions: Vec<_> = versions.iter().copied().collect();
        format!("{name} is built in several versions: {}", versions.join(", "))
    }));
    offences
}

/// True when an expression of licences (SPDX) can be satisfied with these.
fn is_allowed(expression: &str, allow: &BTreeSet<String>) -> bool {
    // An old way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allow) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allow: &BTreeSet<String>) -> bool {
    let mut is_allowed = all_of(words, allow);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_allowed |= all_of(words, allow);
    }
    is_allowed
}

fn all_of(words: &mut &[&str], allow: &BTreeSet<String>) -> bool {
    let mut is_allowed = one(words, allow);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_allowed &= one(words, allow);
    }
    is_allowed
}

fn one(words: &mut &[&str], allow: &BTreeSet<String>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let is_allowed = any_of(words, allow);
            let [")", rest @ ..] = *words else { return false };
            *words = rest;
            is_allowed
        }
        [license, "WITH", exception, rest @ ..] => {
            *words = rest;
            allow.contains(&format!("{license} WITH {exception}"))
        }
        [license, rest @ ..] => {
            *words = rest;
            allow.contains(*license)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES: &str = "https://crates.example/index";

    fn policy() -> Policy {
        let text = format!(
            "[licenses]\nallow = [\"MIT\", \"ISC\"]\n[sources]\nallow-registry = [\"{CRATES}\"]\n\
             [bans]\nskip = [{{ crate = \"old@1.0.0\", reason = \"b needs it\" }}]"
        );
        toml::from_str(&text).unwrap()
    }

    fn package(name: &str, version: &str, license: &str, source: &str) -> Package {
        let source = (!source.is_empty()).then(|| source.to_owned());
        Package { name: name.into(), version: version.into(), license: license.into(), source }
    }

    fn check(package: Package, told: &[&str]) {
        let registry = format!("registry+{CRATES}");
        let old = ["1.0.0", "2.0.0"].map(|version| self::package("old", version, "MIT", &registry));
        let packages: Vec<_> = old.into_iter().chain([package]).collect();
        let offences = judge(&policy(), &packages);
        assert_eq!(offences.len(), told.len(), "{offences:?}");
        for (offence, told) in offences.iter().zip(told) {
            assert!(offence.contains(told), "{offence}");
        }
    }

    #[test]
    fn what_the_policy_forbids_is_found() {
        check(package("ours", "0.1.0", "MIT", ""), &[]);
        check(package("a", "1.0.0", "GPL-3.0", &format!("registry+{CRATES}")), &["GPL-3.0"]);
        check(package("a", "1.0.0", "MIT", "git+https://git.example/a"), &["comes from git+"]);
        check(package("a", "1.0.0", "MIT", "registry+https://other.example"), &["comes from"]);
        check(package("old", "3.0.0", "MIT", ""), &["several versions: 2.0.0, 3.0.0"]);
    }

    #[test]
    fn a_skip_of_what_is_not_built_is_found() {
        let offences = judge(&policy(), &[]);
        assert_eq!(offences, ["deny.toml skips old@1.0.0, which is not built"]);
    }

    #[test]
    fn an_expression_of_licences_is_judged_as_spdx_says() {
        let allow = policy().licenses.allow;
        for (expression, is_fine) in [
            ("MIT", true),
            ("GPL-3.0 OR MIT", true),
            ("MIT/GPL-3.0", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0", false),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("GPL-3.0 AND MIT OR ISC", true),
            ("MIT WITH exception", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allow), is_fine, "{expression}");
        }
    }
}
