//! Snapshot files: `SAVE`, `BGSAVE`, `save` points, and the file that is loaded at the start.
//!
//! A file is the state of one point in time, in the format of Redis 7.0. It is written beside the old one, made durable, and then takes its name: whatever fails, there
//! is a whole file.
//!
//! | file | holds |
//! | --- | --- |
//! | `job` | one save, and the thread that it runs on |
//! | `load` | reading a file into the databases |
//!
//! A save in the background takes the lock of the core for pieces of about 256 KB. A large value is serialised in one piece. Copy on write is in
//! `keyspace::saving`.

pub mod job;
pub mod load;

use crate::keyspace::Databases;
use crate::keyspace::sink::Sink;
use crate::server::{Core, Server};
use job::{Job, Saver};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use terrace_io::sched::{Event, WorkerHandle};

/// After a save that failed, the next one that is due waits as long.
const RETRY_MS: i64 = 5000;

/// A save in the background.
pub struct Running {
    pub started_ms: i64,
    /// Changes of the databases until the save began.
    changes: u64,
    pub keys: u64,
    pub sink: Arc<Sink>,
    /// Ends the thread when dropped.
    _saver: Box<dyn WorkerHandle>,
}

/// What the server knows of its saves.
pub struct Saves {
    /// Unix time of the last save that succeeded, at first of the start.
    pub last_ms: i64,
    pub last_try_ms: i64,
    /// Whether the last save in the background succeeded.
    pub is_last_good: bool,
    /// How long it took; -1: there was none.
    pub last_seconds: i64,
    pub last_preserved: u64,
    /// Changes of the databases until the last save.
    pub changes: u64,
    pub count: u64,
    pub loaded: load::Loaded,
    pub running: Option<Running>,
    /// A transaction has asked for a save: it begins after it.
    pub is_scheduled: bool,
    core: Weak<Mutex<Core>>,
}

impl Saves {
    pub fn new(now_ms: i64) -> Saves {
        Saves {
            last_ms: now_ms,
            last_try_ms: 0,
            is_last_good: true,
            last_seconds: -1,
            last_preserved: 0,
            changes: 0,
            count: 0,
            loaded: load::Loaded::default(),
            running: None,
            is_scheduled: false,
            core: Weak::new(),
        }
    }

    /// Where saves in the background find the databases.
    pub fn attach(&mut self, core: &Arc<Mutex<Core>>) {
        self.core = Arc::downgrade(core);
    }
}

/// The path of the file: in the directory of the data, else in the directory that the server was started in.
pub fn path(server: &Server) -> String {
    let (dir, name) = (server.config.text("dir"), server.config.text("dbfilename"));
    if dir.is_empty() { name.to_owned() } else { format!("{}/{name}", dir.trim_end_matches('/')) }
}

/// `SAVE`: nothing else runs meanwhile.
///
/// # Errors
/// Why there is no new file. The old one is untouched.
pub fn now(dbs: &mut Databases, server: &mut Server) -> Result<(), String> {
    let started_ms = server.world.clock.unix_ms() as i64;
    let path = path(server);
    let changes = dbs.dirty();
    let saved = Job::begin(dbs, server, &path).and_then(|job| job.run(dbs));
    note(server, saved, started_ms, changes)
}

/// `BGSAVE`.
///
/// # Errors
/// Why it cannot begin.
pub fn begin(dbs: &mut Databases, server: &mut Server) -> Result<(), String> {
    let path = path(server);
    let now_ms = server.world.clock.unix_ms() as i64;
    server.saves.last_try_ms = now_ms;
    let begun = Job::begin(dbs, server, &path).and_then(|job| {
        let sink = job.sink.clone();
        let is_walked = server.tier.is_some();
        let core = server.saves.core.clone();
        let saver = Saver { job: Some(job), core, event: Arc::new(Event::new()), is_walked };
        let spawned = server.world.sched.try_spawn(Box::new(saver)).map_err(|error| error.to_string())?;
        Ok((sink, spawned))
    });
    let keys = |db: &crate::keyspace::Keyspace| match &server.tier {
        Some(tier) => tier.count(db.index),
        None => db.len() as u64,
    };
    match begun {
        Ok((sink, saver)) => {
            let keys = dbs.all.iter().map(keys).sum();
            let changes = dbs.dirty();
            server.saves.running = Some(Running { started_ms: now_ms, changes, keys, sink, _saver: saver });
            Ok(())
        }
        Err(error) => {
            dbs.all.iter_mut().for_each(|db| db.end_walk());
            server.saves.is_last_good = false;
            server.log(&format!("the save cannot begin: {error}"));
            Err(error)
        }
    }
}

/// Ends a save in the background without a new file.
pub fn cancel(dbs: &mut Databases, server: &mut Server) {
    if let Some(running) = server.saves.running.take() {
        running.sink.close();
        // Its thread is waited for, and may be waiting for the lock of the core for a moment.
        drop(running);
        dbs.all.iter_mut().for_each(|db| db.end_walk());
    }
}

fn note(
    server: &mut Server,
    saved: Result<u64, String>,
    started_ms: i64,
    changes: u64,
) -> Result<(), String> {
    let now_ms = server.world.clock.unix_ms() as i64;
    let path = path(server);
    let saves = &mut server.saves;
    saves.last_seconds = (now_ms - started_ms) / 1000;
    saves.is_last_good = saved.is_ok();
    match saved {
        Ok(bytes) => {
            (saves.last_ms, saves.changes) = (now_ms, changes);
            saves.count += 1;
            server.log(&format!("saved {path}, {bytes} bytes"));
            Ok(())
        }
        Err(error) => {
            server.log(&format!("saving {path} failed: {error}; the file from before is as it was"));
            Err(error)
        }
    }
}

/// Whether a `save` point is due.
fn is_due(points: &[(i64, u64)], changes: u64, since_s: i64) -> bool {
    points.iter().any(|&(seconds, least)| changes >= least.max(1) && since_s > seconds)
}

impl Core {
    /// Takes up the end of a save, and begins one that is due.
    pub fn look_after_saves(&mut self) {
        let Core { dbs, server } = self;
        let now_ms = server.world.clock.unix_ms() as i64;
        if let Some(running) = &server.saves.running {
            let Some(result) = running.sink.take_result() else { return };
            let Some(running) = server.saves.running.take() else { return };
            dbs.all.iter_mut().for_each(|db| db.end_walk());
            server.saves.last_preserved = running.sink.preserved();
            // The log has the error.
            let _ = note(server, result, running.started_ms, running.changes);
            return;
        }
        if std::mem::take(&mut server.saves.is_scheduled) {
            // The log has the error.
            let _ = begin(dbs, server);
            return;
        }
        let saves = &server.saves;
        if server.config.save_points.is_empty()
            || (!saves.is_last_good && now_ms - saves.last_try_ms < RETRY_MS)
        {
            return;
        }
        let changes = dbs.dirty().saturating_sub(saves.changes);
        if is_due(&server.config.save_points, changes, (now_ms - saves.last_ms) / 1000) {
            // The log has the error; it is tried again.
            let _ = begin(dbs, server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_due;

    #[test]
    fn a_save_is_due_after_the_time_and_the_changes_of_a_point() {
        let points = [(3600, 1), (60, 100)];
        for (changes, seconds, due) in
            [(0, 9999, false), (1, 3600, false), (1, 3601, true), (99, 61, false), (100, 61, true)]
        {
            assert_eq!(is_due(&points, changes, seconds), due, "{changes} changes after {seconds} s");
        }
    }
}
