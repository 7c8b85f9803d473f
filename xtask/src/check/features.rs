//! What xtask is built of has the features that the tests of all crates ask for: else cargo builds it twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Result, shell};

/// A version of a crate, and the features that it is built with.
type Builds = BTreeMap<String, BTreeSet<String>>;

/// Finds crates that are built for xtask, and with other features again for the tests.
pub(super) fn built_twice() -> Result<Vec<String>> {
    let own = builds(&["--package", "xtask", "--edges", "normal,build"])?;
    let all = builds(&["--workspace", "--edges", "normal,build,dev"])?;
    Ok(differences(&own, &all))
}

fn differences(own: &Builds, all: &Builds) -> Vec<String> {
    let mut offences = Vec::new();
    for (name, features) in own {
        let shared = all.get(name);
        for features in features.iter().filter(|one| !shared.is_some_and(|all| all.contains(*one)))
        {
            let wanted = shared.map_or(String::new(), |all| format!("{all:?}"));
            offences.push(format!(
                "{name} is built for xtask with {features:?} and for the tests with {wanted}: \
                 name it in xtask/Cargo.toml"
            ));
        }
    }
    offences
}

fn builds(words: &[&str]) -> Result<Builds> {
    let form = ["--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"];
    Ok(read(&shell::output(shell::cargo().arg("tree").args(words).args(form))?))
}

/// Reads lines such as `slab v0.4.12|default,std`; of our own crates a path follows the version.
fn read(tree: &str) -> Builds {
    let mut builds = Builds::new();
    for (package, features) in tree.lines().filter_map(|line| line.split_once('|')) {
        let name: Vec<_> = package.split(' ').take(2).collect();
        let features = features.split(' ').next().unwrap_or_default();
        builds.entry(name.join(" ")).or_default().insert(features.to_owned());
    }
    builds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_other_features_is_found() {
        let all =
            read("slab v0.4.12|default,std\nours v0.1.0 (/some/where)|otel\nsyn v2.0.0|full (*)\n");
        let same =
            read("slab v0.4.12|default,std\nours v0.1.0 (/some/where)|otel (*)\nsyn v2.0.0|full\n");
        assert!(differences(&same, &all).is_empty());
        let other = read("slab v0.4.12|std\nours v0.1.0 (/some/where)|\n");
        let found = differences(&other, &all);
        assert!(found.len() == 2 && found[1].contains("slab v0.4.12"), "{found:?}");
    }
}
