//! Rules about the committed files themselves.

use std::path::Path;
use std::process::Command;

use crate::{Result, shell};

/// Where a reader gives up.
const LINES_MAX: usize = 600;

/// Endings of what counts as source.
const SOURCE: &[&str] = &[".rs", ".sql", ".lua", ".sh", ".js", ".css"];

/// Where crates may come from, as `Cargo.lock` writes it on every machine.
pub(super) const LOCKED_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What must not stand in a committed file. Written in two parts, or this file would be an offender.
const MACHINE_BOUND: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/home", "/"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("//regi", "stry."),
    concat!("[source.", "crates-io]"),
    concat!("replace", "-with"),
    concat!("sparse", "+http"),
    concat!("art", "ifactory"),
];

/// How statements begin; a text in a `.rs` file that begins so belongs into a file of its own.
/// Beginning and ending a transaction is no statement: it names nothing of a schema.
const STATEMENTS: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "WITH ",
    "CREATE ",
    "DROP ",
    "ALTER ",
    "PRAGMA ",
    "VACUUM",
    "REPLACE INTO ",
    "redis.call",
];

/// A committed file that is text.
pub(super) struct TextFile {
    /// From the top folder of the repository.
    pub(super) path: String,
    text: String,
}

impl TextFile {
    /// All of it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its lines, numbered from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Everything that is or would be committed.
pub(super) fn all() -> Result<Vec<TextFile>> {
    let root = shell::repository_root();
    let paths = match committed(&root) {
        Ok(paths) => paths,
        // An unpacked archive has no history; what lies there is then all there is.
        Err(_) => found(&root, "")?,
    };
    let mut files = Vec::new();
    for path in paths {
        // Deleted but not yet committed, or no text: nothing to look at.
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            files.push(TextFile { path, text });
        }
    }
    if files.iter().all(|file| !file.is_rust()) {
        return Err("found no source files to check".into());
    }
    Ok(files)
}

fn committed(root: &Path) -> Result<Vec<String>> {
    let list = shell::output(
        Command::new("git")
            // A clone that belongs to another user may be read all the same.
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )?;
    Ok(list.split_terminator('\0').map(ToOwned::to_owned).collect())
}

fn found(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}{name}");
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if name != ".git" && path != "target" {
            paths.extend(found(root, &format!("{path}/"))?);
        }
    }
    Ok(paths)
}

/// Finds source files that are too long to read.
pub(super) fn short() -> Result<Vec<String>> {
    let files = all()?;
    let sources =
        files.iter().filter(|file| SOURCE.iter().any(|ending| file.path.ends_with(ending)));
    Ok(sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| format!("{} has {lines} lines", file.path))
        .collect())
}

/// Finds Rust files that do not say what lives in them.
pub(super) fn introduced() -> Result<Vec<String>> {
    let files = all()?;
    Ok(files
        .iter()
        .filter(|file| file.is_rust() && !file.text.starts_with("//! "))
        .map(|file| format!("{} does not open with //!", file.path))
        .collect())
}

/// Finds statements of SQL or Lua in the texts of Rust files.
pub(super) fn queries_elsewhere() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in all()?.iter().filter(|file| file.is_rust()) {
        // This file has to name what it looks for, and tests go around a store to damage it.
        if file.path == "xtask/src/check/files.rs" || file.path.contains("/tests/") {
            continue;
        }
        for (line, text) in file.lines() {
            if has_statement(text) {
                offences.push(format!("{}:{line} {}", file.path, text.trim()));
            }
        }
    }
    Ok(offences)
}

fn has_statement(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") {
        return false;
    }
    // The line itself too: no Rust begins so, but the second line of a text may.
    std::iter::once(code)
        .chain(code.split('"').skip(1))
        .map(str::trim_start)
        .any(|text| STATEMENTS.iter().any(|start| text.starts_with(start)))
}

/// Finds what works on one machine only.
pub(super) fn portable() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in &all()? {
        for (line, text) in file.lines() {
            if let Some(word) = machine_bound(file, text) {
                offences.push(format!("{}:{line} has {word}", file.path));
            }
        }
    }
    Ok(offences)
}

fn machine_bound<'a>(file: &TextFile, line: &'a str) -> Option<&'a str> {
    if file.path == "Cargo.lock"
        && let Some(source) = line.strip_prefix("source = ")
    {
        return (source.trim_matches('"') != LOCKED_SOURCE).then_some(source);
    }
    MACHINE_BOUND.iter().find(|word| line.contains(*word)).copied()
}

/// Finds sources that embed a file from outside of their crate: a packaged crate would not have it.
pub(super) fn embedded() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for file in all()?.iter().filter(|file| file.is_rust() && file.path.contains("/src/")) {
        for (line, text) in file.lines() {
            if embedded_path(text).is_some_and(|path| leaves_crate(&file.path, path)) {
                offences.push(format!("{}:{line} embeds a file of another folder", file.path));
            }
        }
    }
    Ok(offences)
}

/// The path in a line that embeds a file.
fn embedded_path(line: &str) -> Option<&str> {
    let rest = [concat!("include_", "str!(\""), concat!("include_", "bytes!(\"")]
        .iter()
        .find_map(|start| line.split_once(start))?
        .1;
    rest.split_once('"').map(|(path, _)| path)
}

/// True when a path, seen from a source file under `src/`, leads out of the file's crate.
fn leaves_crate(file: &str, path: &str) -> bool {
    let inside = file.rsplit_once("/src/").map_or("", |(_, inside)| inside);
    // `src` itself, and the folders in it.
    let mut depth = 1 + inside.matches('/').count();
    for part in path.split('/') {
        match part {
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> TextFile {
        TextFile { path: path.into(), text: String::new() }
    }

    #[test]
    fn a_statement_in_a_text_is_found_and_one_in_a_comment_is_not() {
        assert!(has_statement(r#"execute("SELECT id FROM tasks")"#));
        assert!(has_statement(r#"execute("  UPDATE tasks SET state = 1")"#));
        assert!(has_statement("    DELETE FROM tasks"));
        assert!(!has_statement(r#"// like "SELECT 1" would"#));
        assert!(!has_statement(r#"error("select a queue")"#));
    }

    #[test]
    fn embedded_file_outside_of_the_crate_is_found() {
        let line = concat!("const A: &str = include_", "str!(\"../../sql/a.sql\");");
        assert_eq!(embedded_path(line), Some("../../sql/a.sql"));
        assert!(!leaves_crate("crates/a/src/b/c.rs", "../../sql/a.sql"));
        assert!(leaves_crate("crates/a/src/b/c.rs", "../../../docs/a.md"));
        assert!(!leaves_crate("crates/a/src/b.rs", "../sql/a.sql"));
        assert!(leaves_crate("crates/a/src/b.rs", "../../docs/a.md"));
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        let line = format!("let path = \"{}x\";", MACHINE_BOUND[0]);
        assert!(machine_bound(&file("a.rs"), &line).is_some());
        assert!(machine_bound(&file("a.rs"), "let path = \"work/x\";").is_none());
    }

    #[test]
    fn a_locked_crate_comes_from_the_usual_place() {
        let usual = format!("source = \"{LOCKED_SOURCE}\"");
        assert!(machine_bound(&file("Cargo.lock"), &usual).is_none());
        let other = "source = \"registry+https://mirror.example/index\"";
        assert!(machine_bound(&file("Cargo.lock"), other).is_some());
    }
}
