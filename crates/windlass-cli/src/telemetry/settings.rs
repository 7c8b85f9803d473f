//! The environment of OpenTelemetry: whether traces are wanted, and whether what is said of them makes sense. The
//! libraries read most of it themselves, and pass over what they cannot read; here it is refused.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::exit::{Done, Failure};

const TIMEOUT: Duration = Duration::from_secs(10);
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
/// Whole numbers that the libraries read.
const NUMBERS: [&str; 8] = [
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_CONCURRENT_EXPORTS",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
];

/// Traces are wanted, and so.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Host and port of the collector: no more of its URL may be shown.
    pub(super) collector: String,
    pub(super) timeout: Duration,
    /// A file of certificates to trust in place of those that the system trusts.
    pub(super) certificate: Option<PathBuf>,
    pub(super) has_service_name: bool,
}

/// Reads the environment; nothing where no traces are wanted.
pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Done<Option<Wanted>> {
    // What is said of traces alone wins.
    let of_exporter = |name: &str| {
        let names =
            [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| Some((variable(&name)?, name)))
    };
    let is_disabled =
        variable("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let Some((endpoint, name)) = of_exporter("ENDPOINT").filter(|_| !is_disabled) else {
        return Ok(None);
    };
    match variable("OTEL_TRACES_EXPORTER").as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => return Err(wrong("OTEL_TRACES_EXPORTER", other, "use otlp or none")),
    }
    // Told without what was given, which may hold a password.
    let text = || format!("{name} is no URL such as http://127.0.0.1:4318");
    let collector = host_and_port(&endpoint).ok_or_else(|| Failure::usage(text()))?;
    only(of_exporter("PROTOCOL"), "http/protobuf")?;
    only(of_exporter("COMPRESSION"), "none")?;
    if let Some((headers, name)) = of_exporter("HEADERS") {
        check_headers(&name, &headers)?;
    }
    check_sampler(variable("OTEL_TRACES_SAMPLER"), variable("OTEL_TRACES_SAMPLER_ARG"))?;
    for name in NUMBERS {
        variable(name).map(|value| number(name, &value)).transpose()?;
    }
    let timeout = of_exporter("TIMEOUT").map(|(value, name)| number(&name, &value)).transpose()?;
    let certificate = of_exporter("CERTIFICATE").map(|(path, _)| PathBuf::from(path));
    let has_service_name = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="));
    let timeout = timeout.map_or(TIMEOUT, Duration::from_millis);
    Ok(Some(Wanted { collector, timeout, certificate, has_service_name }))
}

fn host_and_port(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The one value that there is for a variable.
fn only(given: Option<(String, String)>, value: &str) -> Done {
    match given {
        Some((other, name)) if other != value => {
            Err(wrong(&name, &other, &format!("windlass knows only {value}")))
        }
        _ => Ok(()),
    }
}

/// `name=value` with commas between. What is wrong is told without the values, which may be secrets.
fn check_headers(variable: &str, text: &str) -> Done {
    for (at, pair) in text.split(',').enumerate() {
        let is_fine = pair.trim().split_once('=').is_some_and(|(name, value)| {
            HeaderName::from_str(name.trim()).is_ok() && HeaderValue::from_str(value.trim()).is_ok()
        });
        if !is_fine {
            let text = format!("{variable}: part {} is not like name=value", at + 1);
            return Err(Failure::usage(text));
        }
    }
    Ok(())
}

fn check_sampler(sampler: Option<String>, argument: Option<String>) -> Done {
    let Some(sampler) = sampler else { return Ok(()) };
    if !SAMPLERS.contains(&sampler.as_str()) {
        let known = format!("use one of {}", SAMPLERS.join(", "));
        return Err(wrong("OTEL_TRACES_SAMPLER", &sampler, &known));
    }
    if !sampler.ends_with("traceidratio") {
        return Ok(());
    }
    let argument = argument.unwrap_or_default();
    match argument.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(()),
        _ => {
            let why = format!("{sampler} needs a share from 0 to 1, such as 0.1");
            Err(wrong("OTEL_TRACES_SAMPLER_ARG", &argument, &why))
        }
    }
}

fn number(variable: &str, value: &str) -> Done<u64> {
    value.parse().map_err(|_| wrong(variable, value, "use a whole number"))
}

fn wrong(variable: &str, value: &str, why: &str) -> Failure {
    Failure::usage(format!("{variable}={value:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    fn read_these(given: &[(&str, &str)]) -> Done<Option<Wanted>> {
        let find = |name: &str| given.iter().find(|(given, _)| *given == name);
        read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[track_caller]
    fn check_refused(name: &str, value: &str, hint: &str) {
        let failure = read_these(&[ENDPOINT, (name, value)]).expect_err(value);
        assert!(failure.text.contains(name) && failure.text.contains(hint), "{failure}");
    }

    #[test]
    fn without_an_endpoint_or_when_told_so_there_are_no_traces() {
        assert!(read_these(&[]).unwrap().is_none());
        assert!(
            read_these(&[("OTEL_SERVICE_NAME", "a"), ("OTEL_TRACES_SAMPLER", "odd")])
                .unwrap()
                .is_none()
        );
        assert!(read_these(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        assert!(read_these(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
    }

    #[test]
    fn what_is_said_of_traces_alone_wins() {
        let of_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://ann:hush@collector/traces");
        let timeouts =
            [("OTEL_EXPORTER_OTLP_TIMEOUT", "7"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "8")];
        let wanted = read_these(&[ENDPOINT, of_traces, timeouts[0], timeouts[1]]).unwrap().unwrap();
        assert_eq!(wanted.collector, "collector:443");
        assert_eq!(wanted.timeout, Duration::from_millis(8));
        assert!(!wanted.has_service_name);
        assert_eq!(read_these(&[ENDPOINT]).unwrap().unwrap().timeout, TIMEOUT);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        check_refused(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "localhost:4318",
            "http://127.0.0.1:4318",
        );
        check_refused("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf");
        check_refused("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "none");
        check_refused("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "whole number");
        check_refused("OTEL_TRACES_EXPORTER", "zipkin", "otlp");
        check_refused("OTEL_TRACES_SAMPLER", "sometimes", "always_on");
        check_refused("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "whole number");
        let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
        for share in ["", "2", "half"] {
            let failure = read_these(&[ENDPOINT, sampler, ("OTEL_TRACES_SAMPLER_ARG", share)]);
            assert!(failure.expect_err(share).text.contains("0.1"));
        }
        assert!(read_these(&[ENDPOINT, sampler, ("OTEL_TRACES_SAMPLER_ARG", "0.25")]).is_ok());
    }

    #[test]
    fn a_bad_header_is_refused_without_its_secret() {
        let name = "OTEL_EXPORTER_OTLP_HEADERS";
        assert!(read_these(&[ENDPOINT, (name, "authorization=Basic%20abc,x-tenant=7")]).is_ok());
        for bad in ["secret", "a b=secret", "a=1,secret"] {
            let failure = read_these(&[ENDPOINT, (name, bad)]).expect_err(bad);
            assert!(failure.text.contains(name) && !failure.text.contains("secret"), "{failure}");
        }
    }
}
