//! `cargo xtask sbom`: the bill of materials of the binary, as CycloneDX: every crate that it is built from, with licence and
//! checksum. The same sources give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::metadata::{host_platform, list, metadata};
use crate::{Result, shell};

/// The crate of the binary.
const BINARY: &str = "windlass-cli";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write it into this file in place of the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result {
    let text = format!("{:#}\n", document()?);
    match &args.output {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

/// The part of a lock file that says what was fetched.
#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

fn document() -> Result<Value> {
    let metadata = metadata(&["--filter-platform", &host_platform()?])?;
    let lock = std::fs::read_to_string(shell::repository_root().join("Cargo.lock"))?;
    let lock: LockFile = toml::from_str(&lock)?;
    let checksums = lock.package.into_iter();
    let checksums = checksums.filter_map(|one| Some(((one.name, one.version), one.checksum?)));
    bill(&metadata, &checksums.collect())
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let packages: BTreeMap<_, _> = list(metadata, "packages")?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let built = built_from(metadata)?;
    let root = packages.iter().find(|(_, package)| package["name"] == BINARY);
    let (root, _) = root.ok_or("no crate of the binary in cargo metadata")?;
    let reached = reached(root, &built);
    let component = |id: &&str| -> Result<Value> {
        let package = packages.get(*id).ok_or("a crate that cargo metadata does not describe")?;
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": if id == root { "application" } else { "library" },
            "bom-ref": reference(package),
            "name": name,
            "version": version,
            "purl": reference(package),
            "licenses": [{"expression": text(&package["license"]).replace('/', " OR ")}],
        });
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        Ok(component)
    };
    let others: BTreeSet<_> = reached.iter().copied().filter(|id| id != root).collect();
    let depends = |id: &&str| {
        let names = built.get(*id).into_iter().flatten().filter_map(|id| packages.get(id));
        let names: BTreeSet<_> = names.map(|package| reference(package)).collect();
        json!({"ref": packages.get(*id).map(|package| reference(package)), "dependsOn": names})
    };
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root)?},
        "components": others.iter().map(component).collect::<Result<Vec<_>>>()?,
        "dependencies": reached.iter().map(depends).collect::<Vec<_>>(),
    }))
}

/// What each crate is built from, tests aside.
fn built_from(metadata: &Value) -> Result<BTreeMap<&str, BTreeSet<&str>>> {
    let mut built = BTreeMap::new();
    for node in list(&metadata["resolve"], "nodes")? {
        let mut from = BTreeSet::new();
        for dependency in list(node, "deps")? {
            let is_built = list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"] != "dev");
            from.extend(dependency["pkg"].as_str().filter(|_| is_built));
        }
        built.insert(node["id"].as_str().ok_or("a node without an id")?, from);
    }
    Ok(built)
}

fn reached<'a>(root: &'a str, built: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut to_visit) = (BTreeSet::from([root]), vec![root]);
    while let Some(id) = to_visit.pop() {
        for next in built.get(id).into_iter().flatten() {
            if reached.insert(*next) {
                to_visit.push(*next);
            }
        }
    }
    reached
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_names_what_the_binary_is_built_from() {
        let bill = document().unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], BINARY);
        let components = bill["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|component| component["name"] == name);
        let tokio = find("tokio").unwrap();
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
        assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(find("windlass-core").is_some() && find("windlass-testkit").is_none());
        let references: BTreeSet<_> = components.iter().map(|one| text(&one["bom-ref"])).collect();
        assert_eq!(references.len(), components.len());
        let root = text(&bill["metadata"]["component"]["bom-ref"]);
        for dependency in bill["dependencies"].as_array().unwrap() {
            for name in dependency["dependsOn"].as_array().unwrap() {
                let name = text(name);
                assert!(references.contains(&name) || name == root, "{name}");
            }
        }
    }
}
