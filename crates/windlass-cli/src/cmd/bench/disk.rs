//! How long the disk takes to flush: no figure of a durable store means anything without it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use windlass::core::{Error, ErrorKind, Result};

const FLUSHES: usize = 200;
const APPENDED: [u8; 4096] = [0x77; 4096];

/// The median time of appending 4 KiB to a file in this folder and flushing it.
pub(super) fn fdatasync_median(folder: &Path) -> Result<Duration> {
    let failed = |cause| Error::new(ErrorKind::Unavailable, "measure fdatasync").because(cause);
    let path = folder.join(format!(".fdatasync-{}", std::process::id()));
    let measured = measure(&path).map_err(failed);
    // Also when measuring failed half-way; a file that is not there is as good as removed.
    let _ = std::fs::remove_file(&path);
    measured
}

fn measure(path: &Path) -> std::io::Result<Duration> {
    let mut file = OpenOptions::new().create_new(true).append(true).open(path)?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        file.write_all(&APPENDED)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[FLUSHES / 2])
}
