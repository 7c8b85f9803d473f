//! The worker processes of a fleet.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use windlass_core::store::WorkerRecord;
use windlass_core::{Store, WorkerId};

use super::server::Server;
use super::{PATIENCE, TICK, patiently};
use crate::Result;
use crate::torture::guard::{self, Killed};

/// How many stop at the same time in a rolling restart: one in so many.
const RESTART_SHARE: usize = 10;

pub(super) struct Workers {
    binary: PathBuf,
    folder: PathBuf,
    store: String,
    broker: Option<String>,
    concurrency: u32,
    running: Vec<Killed>,
    started: usize,
}

impl Workers {
    pub(super) fn new(binary: &Path, folder: &Path, server: &Server, concurrency: u32) -> Self {
        Self {
            binary: binary.into(),
            folder: folder.into(),
            store: server.url.clone(),
            broker: server.broker(),
            concurrency,
            running: Vec::new(),
            started: 0,
        }
    }

    pub(super) fn start(&mut self) -> Result {
        self.started += 1;
        let log = File::create(self.folder.join(format!("worker-{}.log", self.started)))?;
        let mut command = guard::tethered(&self.binary.to_string_lossy());
        command.args(["worker", "--concurrency", &self.concurrency.to_string()]);
        command.args(["--store", &self.store]).current_dir(&self.folder);
        command.args(self.broker.iter().flat_map(|broker| ["--broker", broker.as_str()]));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.running.push(Killed(command.spawn()?));
        Ok(())
    }

    /// Waits until the store knows every process that runs.
    pub(super) async fn are_registered(&mut self, store: &dyn Store) -> Result {
        let end = Instant::now() + PATIENCE;
        loop {
            guard::check_interrupted()?;
            let known: HashSet<_> =
                alive(store).await?.iter().map(|record| record.card.pid).collect();
            if self.running.iter().all(|process| known.contains(&process.0.id())) {
                return Ok(());
            }
            for process in &mut self.running {
                if let Some(status) = process.0.try_wait()? {
                    return Err(format!("a worker has ended: {status}").into());
                }
            }
            if Instant::now() > end {
                return Err(format!("only {} workers are known", known.len()).into());
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Stops some in order and starts as many, until all are new; answers how many ended badly.
    pub(super) async fn restart_all(&mut self, store: &dyn Store) -> Result<usize> {
        let (count, mut bad) = (self.running.len(), 0);
        let together = count.div_ceil(RESTART_SHARE);
        let mut left = count;
        while left > 0 {
            let old: Vec<_> = self.running.drain(..together.min(left)).collect();
            left -= old.len();
            for _ in &old {
                self.start()?;
            }
            bad += tokio::task::spawn_blocking(|| end_in_order(old)).await??;
            self.are_registered(store).await?;
        }
        Ok(bad)
    }

    /// Kills the process behind this leader.
    pub(super) async fn kill_leader(&mut self, store: &dyn Store, leader: &WorkerId) -> Result {
        let record = alive(store).await?.into_iter().find(|record| record.id == *leader);
        let pid = record.ok_or("the leader is no worker")?.card.pid;
        let at = self.running.iter().position(|process| process.0.id() == pid);
        let process = self.running.remove(at.ok_or("the leader is none of ours")?);
        drop(process);
        Ok(())
    }

    pub(super) fn stop_all(self) -> Result {
        end_in_order(self.running).map(drop)
    }
}

/// Asks processes to end and waits for all; answers how many ended badly.
fn end_in_order(mut processes: Vec<Killed>) -> Result<usize> {
    for process in &processes {
        kill(Pid::from_raw(i32::try_from(process.0.id())?), Signal::SIGTERM)?;
    }
    let mut bad = 0;
    for process in &mut processes {
        bad += usize::from(!process.0.wait()?.success());
    }
    Ok(bad)
}

async fn alive(store: &dyn Store) -> Result<Vec<WorkerRecord>> {
    let mut workers = patiently(|| store.workers()).await?;
    workers.retain(|record| !record.is_gone);
    Ok(workers)
}
