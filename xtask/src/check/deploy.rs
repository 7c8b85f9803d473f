//! Rules about `deploy/` and what is said about metrics: whatever names one must name one that there is.

use std::path::Path;
use std::process::Command;

use windlass_core::metric::{Metric, MetricKind, TABLE};
use yaml_rust2::YamlLoader;

use super::files;
use crate::{Result, shell};

const ALERTS: &str = "deploy/prometheus";
const DASHBOARD: &str = "deploy/grafana/windlass.json";
const MANUAL: &str = "docs/monitoring.md";
const UNITS: &str = "deploy/systemd/";
const CONTAINER: &str = "deploy/Dockerfile";
const COMPOSE: &str = "deploy/compose/";
const MANIFESTS: &str = "deploy/kubernetes/";
/// Each has a compose file.
const STORES: [&str; 5] = ["asynq", "hybrid", "postgres", "redis", "sqlite"];
/// Where units expect the binary; it need not be there for a check.
const INSTALLED: &str = "/usr/bin/windlass";

/// Finds files that are not of the form that their names promise.
pub(super) fn parsed() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in files::all()?.iter().filter(|file| file.path.starts_with("deploy/")) {
        let told = match file.path.rsplit('.').next() {
            Some("yaml" | "yml") => {
                YamlLoader::load_from_str(file.text()).map(drop).map_err(|error| error.to_string())
            }
            Some("json") => serde_json::from_str::<serde_json::Value>(file.text())
                .map(drop)
                .map_err(|error| error.to_string()),
            _ => Ok(()),
        };
        offences.extend(told.err().map(|error| format!("{}: {error}", file.path)));
    }
    Ok(offences)
}

/// Finds what a container, a manifest, a unit or a compose file lacks that all of their sort have here.
pub(super) fn complete() -> Result<Vec<String>> {
    let files = files::all()?;
    let text =
        |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| file.text());
    let mut offences = Vec::new();
    let container = text(CONTAINER);
    offences.extend(lacks(container).into_iter().map(|what| format!("{CONTAINER} {what}")));
    for store in STORES {
        let path = format!("{COMPOSE}{store}.yaml");
        for service in ["server", "worker"] {
            let has_it = text(&path).contains(&format!("\n  {service}:\n"));
            offences.extend((!has_it).then(|| format!("{path} has no {service}")));
        }
    }
    for file in files.iter().filter(|file| file.path.starts_with(UNITS)) {
        let is_notifying =
            !file.path.ends_with(".service") || file.text().contains("\nType=notify\n");
        offences.extend((!is_notifying).then(|| format!("{} is not of Type=notify", file.path)));
    }
    let manifests = files.iter().filter(|file| file.path.starts_with(MANIFESTS));
    for file in manifests.filter(|file| file.path.ends_with(".yaml")) {
        let told = unprobed(file.text())?.into_iter();
        offences.extend(told.map(|what| format!("{} {what}", file.path)));
    }
    Ok(offences)
}

/// Finds servers that ask nobody for a token, and images whose tag may mean another image tomorrow.
pub(super) fn careful() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in files::all()?.iter().filter(|file| file.path.starts_with("deploy/")) {
        for (line, text) in file.lines() {
            let image = image(text).filter(|image| !is_exact(image));
            let told = image.map(|image| format!("names {image} without an exact version"));
            let told = told.or(text.contains("--insecure").then(|| "says --insecure".into()));
            offences.extend(told.map(|told| format!("{}:{line} {told}", file.path)));
        }
    }
    Ok(offences)
}

/// The image that a line of a compose file, a manifest or a container's file names; ours is built here.
fn image(line: &str) -> Option<&str> {
    let line = line.trim().trim_start_matches("- ");
    let named = line.strip_prefix("image: ").or_else(|| line.strip_prefix("FROM "))?;
    let name = named.split_whitespace().next()?;
    (name != "windlass" && !name.starts_with("windlass:")).then_some(name)
}

/// True for a digest, or a tag with two numbers at least, as in `postgres:15.14` or `debian:12.11-slim`.
fn is_exact(image: &str) -> bool {
    let Some((_, tag)) = image.rsplit_once(':') else { return false };
    let version = tag.trim_start_matches('v').split('-').next().unwrap_or_default();
    let numbers: Vec<_> = version.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    image.contains("@sha256:") || (numbers.len() >= 2 && numbers.iter().all(is_number))
}

/// What a container's file lacks.
fn lacks(container: &str) -> Vec<&'static str> {
    let starting = |word: &str| container.lines().filter(|line| line.starts_with(word)).count();
    let user = container.lines().rev().find_map(|line| line.strip_prefix("USER "));
    let is_root = user.is_none_or(|user| matches!(user.trim(), "root" | "0"));
    let rules = [
        (starting("FROM ") < 2, "builds and runs in one image"),
        (starting("HEALTHCHECK ") != 1, "has no health check"),
        (is_root, "runs as root"),
        (!container.contains("\nENTRYPOINT [\"tini\", "), "has no init as process 1"),
    ];
    rules.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, what)| what).collect()
}

/// The containers of deployments without a probe, and pods that may run as root.
fn unprobed(manifest: &str) -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for document in YamlLoader::load_from_str(manifest)? {
        let pod = &document["spec"]["template"]["spec"];
        let Some(containers) = pod["containers"].as_vec() else { continue };
        if pod["securityContext"]["runAsNonRoot"].as_bool() != Some(true) {
            offences.push("has a pod that may run as root".into());
        }
        let is_deployment = document["kind"].as_str() == Some("Deployment");
        for container in containers.iter().filter(|_| is_deployment) {
            let name = container["name"].as_str().unwrap_or("?");
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                if container[probe].is_badvalue() {
                    offences.push(format!("has no {probe} for {name}"));
                }
            }
        }
    }
    Ok(offences)
}

/// Finds names of metrics that there are not, and metrics that are not shown, or not told as they are.
pub(super) fn metrics() -> Result<Vec<String>> {
    let files = files::all()?;
    let mut offences = Vec::new();
    let is_looked_at = |path: &str| path.starts_with("deploy/") || path == MANUAL;
    for file in files.iter().filter(|file| is_looked_at(&file.path)) {
        for (line, text) in file.lines() {
            for name in named(text).filter(|name| !is_metric(name)) {
                offences.push(format!("{}:{line} names {name}, which there is not", file.path));
            }
        }
    }
    let text =
        |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| file.text());
    for metric in TABLE {
        if !named(text(DASHBOARD)).any(|name| family(name) == metric.name) {
            offences.push(format!("{DASHBOARD} does not show {}", metric.name));
        }
        let row = row(metric);
        if !text(MANUAL).contains(&row) {
            offences.push(format!("{MANUAL} does not say: {row}"));
        }
    }
    Ok(offences)
}

/// Finds what Prometheus would not take, and alerts that do not fire when they should.
pub(super) fn alerts() -> Result<Vec<String>> {
    let calls = [
        &["check", "rules", "alerts.yml"][..],
        // The token is a file of the container.
        &["check", "config", "--syntax-only", "prometheus.yml"],
        &["test", "rules", "alerts.test.yml"],
    ];
    let mut offences = Vec::new();
    for words in calls {
        let mut promtool = shell::program("promtool")?;
        promtool.args(words).current_dir(shell::repository_root().join(ALERTS));
        offences.extend(shell::output(&mut promtool).err().map(|error| error.to_string()));
    }
    Ok(offences)
}

/// Finds what systemd would not take.
pub(super) fn units() -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let mut offences = Vec::new();
    for file in files::all()?.iter().filter(|file| file.path.starts_with(UNITS)) {
        let name = file.path.trim_start_matches(UNITS);
        if !name.ends_with(".service") {
            continue;
        }
        let path = folder.path().join(name.replace('@', "@mail"));
        std::fs::write(&path, file.text().replace(INSTALLED, "/bin/true"))?;
        offences.extend(verify(&path)?.map(|told| format!("{}: {told}", file.path)));
    }
    Ok(offences)
}

/// What systemd has to say of a unit; nothing when it is fine.
fn verify(unit: &Path) -> Result<Option<String>> {
    let place = shell::find_program("systemd-analyze")
        .ok_or("no program systemd-analyze: `cargo xtask setup` installs it")?;
    let output = Command::new(place).args(["verify", "--man=no"]).arg(unit).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    // Of other units of this machine it complains, too.
    let name = unit.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let its: Vec<_> = told.lines().filter(|line| line.contains(&name)).collect();
    Ok((!its.is_empty()).then(|| its.join("; ")))
}

/// How the manual tells of a metric.
fn row(metric: &Metric) -> String {
    let labels = match metric.labels {
        [] => String::new(),
        labels => format!("{{{}}}", labels.join(",")),
    };
    format!("| `{}{labels}` | {} | {} |", metric.name, metric.kind.as_str(), metric.help)
}

/// The words of a text that could be metrics.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(move |c| !is_part(c))
        .filter(|word| word.starts_with("windlass_") || word.starts_with("taskqueue_"))
}

fn is_metric(name: &str) -> bool {
    TABLE.iter().any(|metric| metric.name == family(name))
}

/// The metric that a series is of.
fn family(name: &str) -> &str {
    let is_histogram = |stem: &&str| {
        TABLE.iter().any(|metric| metric.kind == MetricKind::Histogram && metric.name == *stem)
    };
    let ends = ["_bucket", "_sum", "_count"];
    ends.iter().find_map(|end| name.strip_suffix(end).filter(is_histogram)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_there_is_not_is_found() {
        let text = "rate(windlass_task_wait_seconds_bucket{x=\"1\"}[5m]) / windlass_lader + up";
        let names: Vec<_> = named(text).collect();
        assert_eq!(names, ["windlass_task_wait_seconds_bucket", "windlass_lader"]);
        assert!(is_metric(names[0]) && !is_metric(names[1]));
        assert!(!is_metric("windlass_leader_count"), "a gauge has no such part");
    }

    #[test]
    fn a_container_that_runs_as_root_or_is_never_asked_is_found() {
        let start = "ENTRYPOINT [\"tini\", \"--\", \"x\"]\n";
        let fine = format!("FROM a AS build\nFROM b\nUSER 7\nHEALTHCHECK CMD x\n{start}");
        assert!(lacks(&fine).is_empty());
        assert_eq!(lacks(&format!("FROM a\nHEALTHCHECK CMD x\nUSER root\n{start}")).len(), 2);
        assert_eq!(lacks(&fine.replace("tini", "x")), ["has no init as process 1"]);
        assert_eq!(lacks(&fine.replace("HEALTHCHECK", "# HEALTHCHECK")), ["has no health check"]);
    }

    #[test]
    fn an_image_without_an_exact_version_is_found() {
        for (line, is_found) in [
            ("    image: postgres:15", true),
            ("    image: postgres:15.14", false),
            ("    image: redis", true),
            ("    image: redis:latest", true),
            ("FROM debian:bookworm-slim", true),
            ("FROM debian:12.11-slim AS run", false),
            ("  - image: prom/prometheus:v3.5.0", false),
            ("    image: redis@sha256:0123", false),
            ("    image: windlass", false),
            ("    image: windlass:0.1.0", false),
        ] {
            let inexact = image(line).filter(|image| !is_exact(image));
            assert_eq!(inexact.is_some(), is_found, "{line}");
        }
    }

    #[test]
    fn a_deployment_without_probes_is_found() {
        let pod = "{containers: [{name: a, livenessProbe: {}, startupProbe: {}}]}";
        let manifest = format!("kind: Deployment\nspec: {{template: {{spec: {pod}}}}}");
        let told = unprobed(&manifest).unwrap();
        assert_eq!(told, ["has a pod that may run as root", "has no readinessProbe for a"]);
        assert!(unprobed("kind: Secret").unwrap().is_empty());
    }

    #[test]
    fn a_unit_that_systemd_would_not_take_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken.service");
        std::fs::write(&path, "[Service]\nExecStart=/bin/true\nWatchdogSec=soon\n").unwrap();
        assert!(verify(&path).unwrap().is_some_and(|told| told.contains("soon")));
    }
}
