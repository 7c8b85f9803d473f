//! `cargo xtask settings`: the page of all settings, made of the comments of `default.toml`.

use std::fmt::Write;
use std::fs;

use windlass_core::config::{Setting, settings};

use crate::{Result, shell};

const PAGE: &str = "docs/settings.md";

const INTRODUCTION: &str = "\
# Settings

Every setting of windlass: its default, the variable of the environment that sets it, and what it does.

```sh
windlass config sample > windlass.toml     # a file with all settings, commented out
windlass config show                       # what holds here, and where each value comes from
```

Flags win over `WINDLASS_*` variables, these over `./windlass.toml` (or the file that `--config` names), that over the
user's `$XDG_CONFIG_HOME/windlass/windlass.toml`, and that over the defaults. The library reads no file and no
variable: it takes settings from `Client::with_config`.

- Durations are written `30s`, `5m`, `1h 30m`, `7d`, `1w`, `PT30S`, `P1D`, or as a number of seconds. A day has 24
  hours.
- In a file, a setting stands in its section: `worker.lease` is `lease` in `[worker]`.
- A variable that looks like a setting and is none is named in a warning.
- These have no place in a file: `WINDLASS_URL`, `WINDLASS_TOKEN` and `WINDLASS_CA_CERT` say which server a command
  talks to ([command line](cli.md)), `RUST_LOG` and `NO_COLOR` are as everywhere ([logs](logs.md)), and `OTEL_*` say
  where traces go ([tracing](tracing.md)).

`cargo xtask settings` writes this page from the defaults.
";

/// Write or compare.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only compare; fail when the page is out of date.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result {
    if args.check {
        let offences = up_to_date()?;
        return if offences.is_empty() { Ok(()) } else { Err(offences.join("; ").into()) };
    }
    fs::write(shell::repository_root().join(PAGE), page()?)?;
    println!("wrote {PAGE}");
    Ok(())
}

/// Finds out whether the page is what the defaults say.
pub(crate) fn up_to_date() -> Result<Vec<String>> {
    let committed = fs::read_to_string(shell::repository_root().join(PAGE)).unwrap_or_default();
    let is_same = committed == page()?;
    let offence = || format!("{PAGE} is out of date: run `cargo xtask settings`");
    Ok((!is_same).then(offence).into_iter().collect())
}

fn page() -> Result<String> {
    let mut page = String::from(INTRODUCTION);
    let mut last_section = None;
    for Setting { name, variable, default, description } in settings() {
        let section = name.rsplit_once('.').map_or("", |(section, _)| section).to_owned();
        if last_section.as_ref() != Some(&section) {
            let title =
                if section.is_empty() { "Where tasks are kept" } else { &format!("`[{section}]`") };
            write!(
                page,
                "\n## {title}\n\n| setting | default | variable | |\n|---|---|---|---|\n"
            )?;
            last_section = Some(section);
        }
        let description = description.replace('|', "\\|");
        writeln!(page, "| `{name}` | `{default}` | `{variable}` | {description} |")?;
    }
    Ok(page)
}
