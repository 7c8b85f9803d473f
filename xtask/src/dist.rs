//! `cargo xtask dist`: what people install: the stripped binary, and a Debian package with it and the units.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, shell};

/// Libraries that every Debian system has. A binary that needs another one would not start everywhere.
const LIBRARIES: [&str; 5] =
    ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0"];

/// Files of the package: where each comes from in the repository, where it goes, and its mode.
const FILES: [(&str, &str, u32); 7] = [
    ("deploy/systemd/windlass.service", "usr/lib/systemd/system/windlass.service", 0o644),
    (
        "deploy/systemd/windlass-worker@.service",
        "usr/lib/systemd/system/windlass-worker@.service",
        0o644,
    ),
    ("deploy/systemd/windlass.sysusers.conf", "usr/lib/sysusers.d/windlass.conf", 0o644),
    ("deploy/debian/environment", "etc/windlass/environment", 0o600),
    ("README.md", "usr/share/doc/windlass/README.md", 0o644),
    ("CHANGELOG.md", "usr/share/doc/windlass/CHANGELOG.md", 0o644),
    ("LICENSE-MIT", "usr/share/doc/windlass/copyright", 0o644),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this program and build none.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The folder for the results.
    #[arg(long, default_value = "target/dist")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result {
    let built = match &args.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    let output = shell::repository_root().join(&args.output);
    fs::create_dir_all(&output)?;
    let binary = output.join("windlass");
    strip(&built, &binary)?;
    check_libraries(&binary)?;
    let package = package(&binary, &output)?;
    for file in [&binary, &package] {
        println!("{} ({:.1} MB)", file.display(), fs::metadata(file)?.len() as f64 / 1e6);
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--locked",
        "--package",
        "windlass-cli",
    ]))?;
    Ok(shell::repository_root().join("target/release/windlass"))
}

/// Copies a program without its symbols and lines.
fn strip(from: &Path, to: &Path) -> Result {
    shell::run(shell::program("strip")?.arg("-o").arg(to).arg(from))
}

/// Refuses a binary that needs a library beyond those of the C runtime.
fn check_libraries(binary: &Path) -> Result {
    let text = shell::output(shell::program("objdump")?.arg("-p").arg(binary))?;
    let needed = text.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    let strange: Vec<_> = needed
        .map(str::trim)
        .filter(|name| !LIBRARIES.contains(name) && !name.starts_with("ld-linux"))
        .collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(format!("the binary needs {}", strange.join(", ")).into())
}

/// Makes the Debian package.
fn package(binary: &Path, output: &Path) -> Result<PathBuf> {
    let version = shell::output(Command::new(binary).arg("--version"))?;
    let version = version.split_whitespace().nth(1).ok_or("a program without a version")?;
    let architecture = shell::output(shell::program("dpkg")?.arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let folder = tempfile::tempdir()?;
    let (root, top) = (folder.path().join("windlass"), shell::repository_root());
    install(binary, &root.join("usr/bin/windlass"), 0o755)?;
    for (from, to, mode) in FILES {
        install(&top.join(from), &root.join(to), mode)?;
    }
    install(&top.join("deploy/debian/postinst"), &root.join("DEBIAN/postinst"), 0o755)?;
    fs::write(root.join("DEBIAN/conffiles"), "/etc/windlass/environment\n")?;
    let libc =
        libc_version(&fs::read(binary)?).ok_or("the binary names no version of the C library")?;
    fs::write(root.join("DEBIAN/control"), control(version, architecture, libc))?;
    let package = output.join(format!("windlass_{version}_{architecture}.deb"));
    let mut build = shell::program("dpkg-deb")?;
    shell::output(build.args(["--root-owner-group", "--build"]).arg(&root).arg(&package))?;
    Ok(package)
}

fn install(from: &Path, to: &Path, mode: u32) -> Result {
    let folder = to.parent().ok_or("a file without a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).map_err(|cause| format!("copy {}: {cause}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn control(version: &str, architecture: &str, (major, minor): (u32, u32)) -> String {
    format!(
        "Package: windlass\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: the windlass maintainers\n\
         Section: net\n\
         Priority: optional\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\n\
         Recommends: ca-certificates\n\
         Description: task queue on an embedded file, PostgreSQL or Redis\n \
         Server, workers and command line in one binary. The units windlass.service and\n \
         windlass-worker@.service are installed and not enabled.\n"
    )
}

/// The newest version of the C library whose symbols the binary uses.
fn libc_version(binary: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let places = binary.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK);
    let versions = places.filter_map(|(at, _)| {
        let rest = &binary[at + MARK.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let mut parts = std::str::from_utf8(&rest[..end]).ok()?.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_version_is_the_newest_that_is_named() {
        assert_eq!(
            libc_version(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"),
            Some((2, 34))
        );
        assert_eq!(libc_version(b"nothing"), None);
    }

    /// The package holds what the units and the documentation name. Any program that prints a version will do.
    #[test]
    fn package_has_the_binary_the_units_and_a_private_settings_file() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("windlass");
        fs::write(&script, "#!/bin/sh\necho windlass 1.2.3 # GLIBC_2.34 \n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let package = package(&script, folder.path()).unwrap();
        let name = package.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("windlass_1.2.3_"), "{name}");
        let contents =
            shell::output(Command::new("dpkg-deb").arg("--contents").arg(&package)).unwrap();
        for (mode, path) in [
            ("-rwxr-xr-x root/root", "./usr/bin/windlass"),
            ("-rw------- root/root", "./etc/windlass/environment"),
            ("-rw-r--r-- root/root", "./usr/lib/systemd/system/windlass.service"),
            ("-rw-r--r-- root/root", "./usr/lib/sysusers.d/windlass.conf"),
        ] {
            let line = contents.lines().find(|line| line.ends_with(path));
            assert!(
                line.is_some_and(|line| line.starts_with(mode)),
                "{mode} {path} in\n{contents}"
            );
        }
        let fields = shell::output(Command::new("dpkg-deb").arg("--field").arg(&package)).unwrap();
        assert!(
            fields.contains("Version: 1.2.3") && fields.contains("libc6 (>= 2.34)"),
            "{fields}"
        );
    }
}
