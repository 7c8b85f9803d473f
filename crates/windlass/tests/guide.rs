//! The first example of the guide works when it is pasted into an empty crate.

use std::path::Path;

/// The first block of a language in a page.
fn block<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("```{language}")).expect("there is a block");
    let (_, rest) = rest.split_once('\n').expect("it has lines");
    rest.split_once("\n```").expect("it ends").0
}

#[test]
fn the_first_example_works_when_pasted_into_an_empty_crate() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).unwrap();
    let page = std::fs::read_to_string(root.join("docs/guide/getting-started.md")).unwrap();
    let path = "../windlass/crates/windlass";
    let dependencies = block(&page, "toml");
    assert!(dependencies.contains(path), "the page names another path");
    let dependencies = dependencies.replace(path, &here.display().to_string());

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    write("src/main.rs", block(&page, "rust"));
    // The workspace's versions and profile, so that what is built already need not be built again.
    write("Cargo.lock", &std::fs::read_to_string(root.join("Cargo.lock")).unwrap());
    let package = "[package]\nname = \"empty\"\nedition = \"2024\"\n";
    let profile = "[profile.dev]\ndebug = \"line-tables-only\"\n\
                   [profile.dev.package.libsqlite3-sys]\nopt-level = 2\n";
    write("Cargo.toml", &format!("{package}\n{dependencies}\n\n{profile}"));

    let exe = std::env::current_exe().unwrap();
    let target = exe.ancestors().nth(3).expect("target/debug/deps/guide");
    let output = windlass_testkit::cargo()
        .args(["run", "--quiet"])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello, world!\n");
}

#[test]
fn settings_of_the_pages_from_other_designs_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("docs/from")).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        let parsed = windlass::core::config::Config::parse(block(&page, "toml"));
        assert!(parsed.is_ok(), "{}: {:?}", path.display(), parsed.err());
        count += 1;
    }
    assert_eq!(count, 5, "one page for each design");
}
