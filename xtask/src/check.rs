//! `cargo xtask check`: format, lints, and the rules of this repository.
//!
//! The rules are functions that answer a list of offences. They run here and, one test each, in
//! `cargo test`, so that breaking one fails in the usual place.

mod deny;
mod deploy;
mod features;
mod files;
mod imports;

use crate::{Result, schema, settings, shell};

/// A rule of the repository: its name and a function that finds what breaks it.
type Rule = (&'static str, fn() -> Result<Vec<String>>);

const RULES: &[Rule] = &[
    ("crates import only what the table allows", imports::crates),
    ("core reaches no runtime and no driver", imports::core_is_pure),
    ("stores do not import each other", imports::stores_are_strangers),
    ("what xtask and the tests share is built once", features::built_twice),
    ("deny.toml allows every crate that is built", deny::crates),
    ("no source file is over 600 lines", files::short),
    ("every .rs file opens with //!", files::introduced),
    ("no query text in .rs files", files::queries_elsewhere),
    ("no crate embeds a file from outside of it", files::embedded),
    ("nothing names this machine or a registry", files::portable),
    ("schema dumps are up to date", schema::up_to_date),
    ("the page of settings is up to date", settings::up_to_date),
    ("what is in deploy/ can be read", deploy::parsed),
    ("what is in deploy/ is complete", deploy::complete),
    ("what is in deploy/ asks for tokens and names exact images", deploy::careful),
    ("every metric that is named exists, and is shown and told", deploy::metrics),
    ("Prometheus takes the alert rules, and they fire when they should", deploy::alerts),
    ("systemd takes the units", deploy::units),
];

pub(crate) fn run() -> Result {
    let mut broken = Vec::new();
    let format = shell::run(shell::cargo().args(["fmt", "--all", "--check"]));
    report("format", format.map_err(|error| error.to_string()), &mut broken);
    let lints = shell::run(
        shell::cargo()
            .args(["clippy", "--workspace", "--all-targets", "--quiet"])
            .args(["--", "-D", "warnings"]),
    );
    report("lints", lints.map_err(|error| error.to_string()), &mut broken);
    for (name, rule) in RULES {
        let offences = rule()?;
        let verdict = if offences.is_empty() { Ok(()) } else { Err(offences.join("\n       ")) };
        report(name, verdict, &mut broken);
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("broken: {}", broken.join("; ")).into())
}

fn report(name: &'static str, verdict: Result<(), String>, broken: &mut Vec<&'static str>) {
    match verdict {
        Ok(()) => println!("ok     {name}"),
        Err(why) => {
            println!("BROKEN {name}\n       {why}");
            broken.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn() -> Result<Vec<String>>) {
        let offences = rule().unwrap();
        assert!(offences.is_empty(), "{}", offences.join("\n"));
    }

    #[test]
    fn crates_import_only_what_the_design_allows() {
        check(imports::crates);
    }

    #[test]
    fn core_reaches_no_runtime_and_no_driver() {
        check(imports::core_is_pure);
    }

    #[test]
    fn stores_do_not_import_each_other() {
        check(imports::stores_are_strangers);
    }

    #[test]
    fn what_xtask_and_the_tests_share_is_built_once() {
        check(features::built_twice);
    }

    #[test]
    fn deny_toml_allows_every_crate_that_is_built() {
        check(deny::crates);
    }

    #[test]
    fn what_is_in_deploy_asks_for_tokens_and_names_exact_images() {
        check(deploy::careful);
    }

    #[test]
    fn no_source_file_is_over_600_lines() {
        check(files::short);
    }

    #[test]
    fn every_rust_file_opens_with_what_lives_there() {
        check(files::introduced);
    }

    #[test]
    fn query_text_is_in_files_of_its_own() {
        check(files::queries_elsewhere);
    }

    #[test]
    fn no_crate_embeds_a_file_from_outside_of_it() {
        check(files::embedded);
    }

    #[test]
    fn nothing_names_this_machine_or_a_registry() {
        check(files::portable);
    }

    #[test]
    fn schema_dumps_are_up_to_date() {
        check(schema::up_to_date);
    }

    #[test]
    fn the_page_of_settings_is_up_to_date() {
        check(settings::up_to_date);
    }

    #[test]
    fn what_is_in_deploy_can_be_read() {
        check(deploy::parsed);
    }

    #[test]
    fn what_is_in_deploy_is_complete() {
        check(deploy::complete);
    }

    #[test]
    fn every_metric_that_is_named_exists_and_is_shown_and_told() {
        check(deploy::metrics);
    }

    #[test]
    fn prometheus_takes_the_alert_rules_and_they_fire_when_they_should() {
        check(deploy::alerts);
    }

    #[test]
    fn systemd_takes_the_units() {
        check(deploy::units);
    }
}
