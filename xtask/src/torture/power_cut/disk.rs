//! A disk whose power can be cut: ext4 in a file, on a loop device, in a folder of its own.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::{Result, shell};

/// A smaller ext4 has no journal, and without one a cut means nothing.
pub(super) const BYTES_MIN: u64 = 32 << 20;
/// More than a fast disk takes in a second. The file is sparse: only what is written takes space.
const BYTES_PER_SECOND: u64 = 256 << 20;
/// How long closing files may keep a file system busy.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(10);

/// How large a disk must be to take a load this long.
pub(super) fn bytes_for(load: Duration) -> u64 {
    (load.as_secs() + 2) * BYTES_PER_SECOND
}

/// A file system in a file. Unmounted and removed when dropped, whatever state it is in.
pub(super) struct Disk {
    image: PathBuf,
    mount_point: PathBuf,
    is_mounted: bool,
    // Last: removed after the rest is let go.
    folder: TempDir,
}

impl Disk {
    pub(super) fn create(bytes: u64) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-power-cut-").tempdir()?;
        // A server that refuses to be root has to get through.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let image = folder.path().join("disk.ext4");
        let mount_point = folder.path().join("mounted");
        fs::create_dir(&mount_point)?;
        File::create(&image)?.set_len(bytes)?;
        shell::output(shell::program("mkfs.ext4")?.args(["-q", "-F"]).arg(&image))?;
        Ok(Self { image, mount_point, is_mounted: false, folder })
    }

    /// The place for what must survive the cut.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    pub(super) fn mount(&mut self) -> Result {
        // `-o loop` lets the kernel free the loop device by itself at unmount, also after our death.
        shell::output(
            shell::program("mount")?
                .args(["-t", "ext4", "-o", "loop"])
                .args([&self.image, &self.mount_point]),
        )?;
        self.is_mounted = true;
        Ok(())
    }

    /// Keeps everything that was written so far.
    pub(super) fn flush(&self) -> Result {
        shell::output(shell::program("sync")?.arg("-f").arg(&self.mount_point)).map(|_| ())
    }

    /// Everything that was not flushed is gone, and nothing can be written any more.
    pub(super) fn cut_power(&self) -> Result {
        let top = File::open(&self.mount_point)?;
        shutdown::without_flush(&top)?;
        Ok(())
    }

    /// Waits for those who still close files. Not lazily: the old file system would live on behind
    /// its mount point, and the next mount would get it again with its caches.
    pub(super) fn unmount(&mut self) -> Result {
        let give_up_at = Instant::now() + UNMOUNT_WITHIN;
        while let Err(error) = umount2(&self.mount_point, MntFlags::empty()) {
            if Instant::now() > give_up_at {
                return Err(format!("unmount {}: {error}", self.mount_point.display()).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.is_mounted = false;
        Ok(())
    }

    /// Remembers the image as it is now, for [`Disk::keep`].
    pub(super) fn copy_image(&self) -> Result {
        // `cp` leaves the holes of a sparse file holes.
        let mut copy = shell::program("cp")?;
        copy.arg("--sparse=always").args([&self.image, &self.image_copy()]);
        shell::output(&mut copy).map(|_| ())
    }

    /// Moves ledger and remembered image to where they outlive this disk; answers that place.
    pub(super) fn keep(&self, evidence: &Path, number: u32) -> Result<PathBuf> {
        let place = evidence.join(format!("power-cut-{}-{number}", std::process::id()));
        fs::create_dir_all(&place)?;
        let ledger = self.folder().join("ledger.log");
        let mut copy = shell::program("cp")?;
        copy.arg("--sparse=always").args([&self.image_copy(), &ledger, &place]);
        shell::output(&mut copy)?;
        Ok(place)
    }

    fn image_copy(&self) -> PathBuf {
        self.folder().join("disk-after-cut.ext4")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily: there is nobody left to tell of a failure, and nothing will be mounted again.
            let _ = umount2(&self.mount_point, MntFlags::MNT_DETACH);
        }
    }
}

/// Gives this process mounts of its own, which the kernel undoes when the last of its children
/// ends: even a killed torture leaves nothing behind. Must run before any thread is started.
/// Where it is not allowed, mounts are seen by all and undone by [`Disk`] alone.
pub(super) fn hide_mounts_from_others() {
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        let _ = mount(None::<&str>, "/", None::<&str>, flags, None::<&str>);
    }
}

#[expect(
    unsafe_code,
    reason = "the one way to cut a file system's power is an ioctl, and nobody wraps this one"
)]
mod shutdown {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    /// Do not even write the journal: what a power cut is like.
    const NO_LOG_FLUSH: u32 = 2;

    // The kernel's header calls the direction "read" although it only takes; the number counts.
    nix::ioctl_read!(ext4_shutdown, b'X', 125, u32);

    pub(super) fn without_flush(top: &File) -> nix::Result<()> {
        let mut how = NO_LOG_FLUSH;
        // SAFETY: the descriptor is open for the whole call, and the kernel takes one u32 from
        // behind the pointer, which `how` is.
        unsafe { ext4_shutdown(top.as_raw_fd(), &raw mut how) }.map(|_| ())
    }
}
