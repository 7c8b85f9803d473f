//! Which process is disturbed when and how.

use std::time::{Duration, Instant};

use windlass_core::dice::Dice;
use windlass_testkit::audit::Fact;

use super::http::Port;
use super::process::{Process, Role, Yard};
use super::{LEASE, STOP_WITHIN, SWEEP, TICK};
use crate::Result;
use crate::torture::chance::{below, pick};
use crate::torture::guard;

/// How long a process may take to say that it runs.
const SPEAK_WITHIN: Duration = Duration::from_secs(10);

/// What to do to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    /// Stop its clock, but not that of the world.
    Pause,
    Terminate,
    /// End the store's server as in a crash, and start it again.
    RestartStore,
}

/// What is to be done to an installation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Kills at most.
    pub(super) kills: u32,
    pub(super) at_most: Duration,
    /// How long the store's server goes away in the middle; none where there is no server.
    pub(super) outage: Option<Duration>,
}

/// How often each was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Deeds {
    pub(super) kills: u32,
    pub(super) pauses: u32,
    pub(super) terminations: u32,
    pub(super) store_restarts: u32,
    pub(super) store_away_max: Duration,
    pub(super) nuisances: u32,
}

/// A process that is replaced when it is gone.
struct Seat {
    process: Process,
    /// Set while it is paused.
    resume_at: Option<Instant>,
    /// It was asked to end.
    is_leaving: bool,
}

/// All processes of an installation.
pub(super) struct Fleet<'a> {
    yard: &'a Yard,
    port: Port,
    seats: Vec<Seat>,
    dice: Dice,
    /// The last blow came shortly after the one before.
    was_short: bool,
    pub(super) done: Deeds,
}

impl<'a> Fleet<'a> {
    pub(super) fn start(yard: &'a Yard, roles: &[Role], port: Port, dice: Dice) -> Result<Self> {
        let (seats, done) = (Vec::new(), Deeds::default());
        let mut fleet = Self { yard, port, seats, dice, was_short: false, done };
        for role in roles {
            let process = yard.start(*role)?;
            fleet.seats.push(Seat::new(process));
        }
        Ok(fleet)
    }

    /// Disturbs until there were so many kills or the time is over, then lets everybody go on.
    pub(super) fn disturb(&mut self, plan: Plan) -> Result {
        let began = Instant::now();
        let until = began + plan.at_most;
        let mut outage = plan.outage;
        while self.done.kills < plan.kills && Instant::now() < until {
            let pause = self.choose_pause();
            self.rest(pause)?;
            self.annoy_store()?;
            if began.elapsed() > plan.at_most / 2
                && let Some(time) = outage.take()
            {
                self.take_store_away(time)?;
            }
            self.disturb_one()?;
        }
        self.resume_all()
    }

    fn resume_all(&mut self) -> Result {
        self.seats.iter_mut().try_for_each(|seat| seat.resume_if(|_| true))
    }

    /// Takes the store away for a time. Everybody is up and runs by then: a process that starts
    /// without a store says so and ends, which is as it should be.
    fn take_store_away(&mut self, time: Duration) -> Result {
        let Some(server) = self.yard.ground.server() else { return Ok(()) };
        self.resume_all()?;
        for at in 0..self.seats.len() {
            self.hear_from(at)?;
        }
        self.done.store_restarts += 1;
        let began = Instant::now();
        self.yard.journal.say(Fact::StoreStopped)?;
        server.leave();
        self.rest(time)?;
        server.come_back();
        self.yard.journal.say(Fact::StoreBack)?;
        self.done.store_away_max = self.done.store_away_max.max(began.elapsed());
        Ok(())
    }

    /// Does something to the store that costs a call or two and nothing else. A process that has not
    /// spoken is just opening it, and may say that this failed, and end.
    fn annoy_store(&mut self) -> Result {
        let Some(server) = self.yard.ground.server() else { return Ok(()) };
        let nuisances = server.nuisances();
        if nuisances.is_empty() || !self.seats.iter().all(|seat| seat.process.has_spoken()) {
            return Ok(());
        }
        let nuisance = *pick(nuisances, &mut self.dice);
        self.done.nuisances += 1;
        self.yard.journal.say(Fact::StoreAnnoyed { how: nuisance.into() })?;
        Ok(server.annoy(nuisance)?)
    }

    /// Short ones hit processes that have hardly started; the long ones let the lost be found and
    /// run again before the next blow. Never two short ones in a row: a few of those, and a process
    /// alone would never have come to work.
    fn choose_pause(&mut self) -> Duration {
        let long = LEASE + 2 * SWEEP;
        let least = if std::mem::take(&mut self.was_short) { 3 } else { 0 };
        match least + below(&mut self.dice, 10 - least) {
            0..3 => {
                self.was_short = true;
                Duration::from_millis(20) + Duration::from_millis(500).mul_f64(self.dice.unit())
            }
            3..7 => Duration::from_millis(500) + Duration::from_secs(2).mul_f64(self.dice.unit()),
            _ => long + Duration::from_secs(2).mul_f64(self.dice.unit()),
        }
    }

    fn disturb_one(&mut self) -> Result {
        let free: Vec<_> =
            (0..self.seats.len()).filter(|at| self.seats[*at].resume_at.is_none()).collect();
        if free.is_empty() {
            return Ok(());
        }
        let at = *pick(&free, &mut self.dice);
        // Alone, a process that is paused or stopped in order shows nothing that a kill does not.
        let mut deeds = vec![Deed::Kill];
        if self.seats.len() > 1 {
            deeds.extend([Deed::Kill; 2]);
            deeds.extend([Deed::Pause; 3]);
            deeds.push(Deed::Terminate);
        }
        if self.yard.ground.server().is_some() {
            deeds.push(Deed::RestartStore);
        }
        match *pick(&deeds, &mut self.dice) {
            Deed::RestartStore => {
                let time = LEASE.mul_f64(self.dice.unit());
                self.take_store_away(time)
            }
            Deed::Kill => {
                self.done.kills += 1;
                self.seats[at].process.kill()?;
                self.replace(at)
            }
            Deed::Pause => {
                self.done.pauses += 1;
                let time = LEASE.mul_f64(2.5f64.mul_add(self.dice.unit(), 0.5));
                self.seats[at].process.pause()?;
                self.seats[at].resume_at = Some(Instant::now() + time);
                Ok(())
            }
            Deed::Terminate => {
                self.done.terminations += 1;
                self.end_in_order(at)?;
                self.replace(at)
            }
        }
    }

    /// Asks it to end and waits until it has. Time goes on for the others meanwhile: one that is paused
    /// may hold the lock of the file. One that does not end is left to the auditor, and to the guard of
    /// its child.
    fn end_in_order(&mut self, at: usize) -> Result {
        self.hear_from(at)?;
        self.seats[at].is_leaving = true;
        self.seats[at].process.terminate()?;
        let until = Instant::now() + STOP_WITHIN;
        while !self.seats[at].process.look()? && Instant::now() < until {
            self.rest(TICK)?;
        }
        Ok(())
    }

    /// Waits for its first word: before that it may not yet listen for signals, and there is nothing
    /// that it could end in order.
    fn hear_from(&mut self, at: usize) -> Result {
        let until = Instant::now() + SPEAK_WITHIN;
        while !self.seats[at].process.has_spoken() && Instant::now() < until {
            self.rest(TICK)?;
        }
        Ok(())
    }

    fn replace(&mut self, at: usize) -> Result {
        let role = self.seats[at].process.role;
        if role.is_server() {
            self.port.set(0);
        }
        let process = self.yard.start(role)?;
        self.seats[at] = Seat::new(process);
        Ok(())
    }

    /// Lets time pass: resumes who has been paused long enough, tells where the server is, replaces
    /// whoever ended by itself.
    pub(super) fn rest(&mut self, time: Duration) -> Result {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            guard::check_interrupted()?;
            for at in 0..self.seats.len() {
                self.seats[at].resume_if(|resume_at| now >= resume_at)?;
                if self.seats[at].process.look()? && !self.seats[at].is_leaving {
                    let process = &self.seats[at].process;
                    let name = process.role.as_str();
                    eprintln!("{name} ended by itself:\n{}", process.last_words());
                    self.replace(at)?;
                }
            }
            let server = self.seats.iter().find(|seat| seat.process.role.is_server());
            if let Some(port) = server.and_then(|seat| seat.process.port()) {
                self.port.set(port);
            }
            if now >= until {
                return Ok(());
            }
            std::thread::sleep(TICK.min(until - now));
        }
    }

    /// Ends all in order, servers last.
    pub(super) fn stop(mut self) -> Result<Deeds> {
        for at in (0..self.seats.len()).rev() {
            self.end_in_order(at)?;
        }
        Ok(self.done)
    }
}

impl Seat {
    const fn new(process: Process) -> Self {
        Self { process, resume_at: None, is_leaving: false }
    }

    fn resume_if(&mut self, is_time: impl FnOnce(Instant) -> bool) -> Result {
        if self.resume_at.is_some_and(is_time) {
            self.resume_at = None;
            self.process.resume()?;
        }
        Ok(())
    }
}
