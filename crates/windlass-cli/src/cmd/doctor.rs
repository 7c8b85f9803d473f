//! `windlass doctor`: looks into a store for anything wrong, and says what to do about it.

use serde_json::{Value, json};
use windlass::core::store::{Depth, Finding, Inspection, Severity};

use super::Desk;
use crate::caller::{Access, client};
use crate::exit::{Code, Done, Failure};
use crate::output::Style;
use crate::table::plain;

const EXAMPLES: &str = "\
Examples:
  windlass doctor
  windlass doctor --store sqlite:windlass.db --repair

Exits with 1 when a promise is broken.";

/// How to look.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Mends what can be mended without loss (counters).
    #[arg(long)]
    repair: bool,
}

pub(crate) async fn run(args: Args, desk: &Desk) -> Done {
    if desk.settings.server.is_some() {
        let text =
            "doctor looks into a store itself: give --store; `windlass health` asks a server";
        return Err(Failure::usage(text));
    }
    let access = if args.repair { Access::Write } else { Access::Read };
    let store = client(&desk.settings, access).await?.store().clone();
    let depth = if args.repair { Depth::Repair } else { Depth::Full };
    let inspection = store.inspect(depth).await?;
    let profile = store.profile();
    let report = json!({
        "store": profile.name,
        "durability": profile.durability.as_str(),
        "version": inspection.version,
        "now": inspection.now,
        "writable": inspection.is_writable(),
        "findings": findings(&inspection),
    });
    desk.output.value(&report, |style| told(&report, &inspection, style))?;
    let worst = inspection.findings.iter().map(|finding| finding.severity).max();
    if worst == Some(Severity::Problem) || !inspection.is_writable() {
        return Err(Failure::silent(Code::Error));
    }
    Ok(())
}

fn findings(inspection: &Inspection) -> Vec<Value> {
    let told = inspection.findings.iter().map(|finding| {
        json!({
            "severity": finding.severity,
            "subject": finding.subject,
            "text": finding.text,
            "advice": finding.advice,
        })
    });
    told.collect()
}

fn told(report: &Value, inspection: &Inspection, style: Style) -> String {
    let field = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!(
        "{} {}, {}, its clock says {}",
        style.bold(&field("store")),
        field("version"),
        field("durability"),
        inspection.now
    )];
    let problem = style.state("dead_letter").replace("dead_letter", "problem");
    if let Some(refusal) = inspection.refusal {
        lines.push(format!("{problem}  store: it accepts no writes: {}", refusal.text));
    }
    for finding in &inspection.findings {
        let word = match finding.severity {
            Severity::Info => style.dim("info   "),
            Severity::Warning => style.state("retrying").replace("retrying", "warning"),
            Severity::Problem => problem.clone(),
        };
        lines.push(format!("{word}  {}: {}", finding.subject, plain(&finding.text)));
        if !finding.advice.is_empty() {
            lines.push(format!("         {} {}", style.dim("what to do:"), plain(&finding.advice)));
        }
    }
    let is_info = |finding: &Finding| finding.severity == Severity::Info;
    if inspection.is_writable() && inspection.findings.iter().all(is_info) {
        lines.push(String::from("nothing is wrong"));
    }
    lines.join("\n")
}
