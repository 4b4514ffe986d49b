//! Following a source as its replica does: the commands that it sends run on the target, in their order.

use crate::kv::client::{Connection, Reply, write_command};
use crate::kv::import::{Ended, faulty, stopped, unusable};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_kv::command::args;
use terrace_kv::command::table::Flags;

/// Commands that are sent to the target together.
const TOGETHER: usize = 512;
/// Keys that changed during the proof and are remembered. With more, the proof begins again.
const CHANGED_MAX: usize = 1 << 20;
/// How long the target may take to catch up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A key of a database.
pub type DbKey = (u16, Vec<u8>);

/// What the source has changed since it was asked.
#[derive(Default)]
pub struct Changed {
    pub keys: HashSet<DbKey>,
    /// Whole databases changed, or too many keys.
    pub everything: bool,
}

#[derive(Default)]
struct ReplicaState {
    /// The source's offset up to which the target has everything.
    applied: AtomicU64,
    commands: AtomicU64,
    is_stopping: AtomicBool,
    changed: Mutex<Option<Changed>>,
    failure: Mutex<Option<(u8, String)>>,
}

pub struct Replica {
    state: Arc<ReplicaState>,
    thread: Option<std::thread::JoinHandle<()>>,
    stream: std::net::TcpStream,
}

/// Asks the source for its data and the commands after it. Returns the connection, at the first byte of the RDB file, the offset of the source and
/// the length of the file.
pub fn synchronise(mut source: Connection) -> Result<(Connection, u64, u64), Ended> {
    let no = |error: String| unusable(format!("{error} (the source must let replicas connect)"));
    source.ask_words("PING").map_err(unusable)?;
    source.ask_words("REPLCONF capa psync2").map_err(no)?;
    source.send(&[b"PSYNC", b"?", b"-1"]).and_then(|()| source.flush()).map_err(unusable)?;
    let line = loop {
        // Empty lines say that the source is still busy.
        match source.input.line().map_err(unusable)? {
            line if line.is_empty() => {}
            line => break line,
        }
    };
    let words: Vec<&str> = line.split(' ').collect();
    let ["+FULLRESYNC", _, offset] = words[..] else {
        return Err(unusable(format!("{}: PSYNC is answered with {line:?}", source.address)));
    };
    let offset = offset.parse().map_err(|_| unusable(format!("the source's offset is {offset:?}")))?;
    let line = loop {
        match source.input.line().map_err(stopped)? {
            line if line.is_empty() => {}
            line => break line,
        }
    };
    let length = line.strip_prefix('$').and_then(|length| length.parse().ok());
    let length = length.ok_or_else(|| stopped(format!("the source sends {line:?} in place of a file")))?;
    Ok((source, offset, length))
}

impl Replica {
    pub fn follow(source: Connection, target: Connection, offset: u64) -> Result<Replica, Ended> {
        let stream = source.input.stream.get_ref().try_clone().map_err(|error| stopped(error.to_string()))?;
        let state = Arc::new(ReplicaState::default());
        state.applied.store(offset, Ordering::Release);
        let (shared, mut follower) = (state.clone(), Follower { source, target, db: 0, base: 0 });
        follower.base = offset.wrapping_sub(follower.source.input.position);
        let thread = std::thread::spawn(move || {
            if let Err(Ended(code, message)) = follower.run(&shared)
                && !shared.is_stopping.load(Ordering::Acquire)
            {
                *shared.failure.lock() = Some((code, message));
            }
        });
        Ok(Replica { state, thread: Some(thread), stream })
    }

    /// Waits until the target has everything up to an offset of the source.
    pub fn wait_for(&self, offset: u64) -> Result<(), Ended> {
        let until = Instant::now() + PATIENCE;
        while self.state.applied.load(Ordering::Acquire) < offset {
            if let Some((code, message)) = self.state.failure.lock().clone() {
                return Err(Ended(code, message));
            }
            if Instant::now() > until {
                return Err(stopped("the target does not catch up with the source".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// How far behind an offset of the source the target is, in bytes.
    pub fn behind(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.state.applied.load(Ordering::Acquire))
    }

    /// From now on, notes which keys change. Returns those noted since the last call.
    pub fn take_changed(&self) -> Changed {
        self.state.changed.lock().replace(Changed::default()).unwrap_or_default()
    }

    /// Ends it; returns how many commands were followed.
    pub fn stop(mut self) -> u64 {
        self.end();
        self.state.commands.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.state.is_stopping.store(true, Ordering::Release);
        // It wakes the thread: it may be closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end();
    }
}

struct Follower {
    source: Connection,
    target: Connection,
    db: u16,
    /// The offset of the source at the connection's position 0.
    base: u64,
}

impl Follower {
    fn run(&mut self, state: &ReplicaState) -> Result<(), Ended> {
        loop {
            let mut bytes = Vec::new();
            let mut names = Vec::new();
            loop {
                let command = self.source.reply().map_err(stopped)?;
                let Reply::Array(args) = command else {
                    return Err(stopped(format!("the source sends {command:?} in place of a command")));
                };
                let args: Option<Vec<&[u8]>> = args.iter().map(Reply::bytes).collect();
                let args = args.filter(|args| !args.is_empty());
                let args = args.ok_or_else(|| stopped("the source sends no command".into()))?;
                // What keeps the connection alive, and is answered below.
                if !args::is(args[0], "REPLCONF") && !args::is(args[0], "PING") {
                    self.note(state, &args);
                    write_command(&mut bytes, &args);
                    names.push(String::from_utf8_lossy(args[0]).into_owned());
                }
                if names.len() >= TOGETHER || self.source.input.stream.buffer().is_empty() {
                    break;
                }
            }
            self.target.send_raw(&bytes).and_then(|()| self.target.flush()).map_err(stopped)?;
            for name in &names {
                match self.target.reply().map_err(stopped)? {
                    Reply::Error(error) => {
                        return Err(faulty(format!("the target refuses a {name} of the source: {error}")));
                    }
                    // What EXEC ran has replies of its own.
                    Reply::Array(replies) if name.eq_ignore_ascii_case("EXEC") => {
                        let error = replies.iter().find(|reply| matches!(reply, Reply::Error(_)));
                        if let Some(error) = error {
                            return Err(faulty(format!("the target refuses a transaction: {error:?}")));
                        }
                    }
                    _ => {}
                }
            }
            state.commands.fetch_add(names.len() as u64, Ordering::Relaxed);
            let offset = self.base.wrapping_add(self.source.input.position);
            state.applied.store(offset, Ordering::Release);
            // The source drops a replica that it hears nothing of; it sends a PING every few seconds.
            self.source
                .send(&[b"REPLCONF", b"ACK", offset.to_string().as_bytes()])
                .and_then(|()| self.source.flush())
                .map_err(stopped)?;
        }
    }

    /// Notes the keys that a command changes, before it runs on the target.
    fn note(&mut self, state: &ReplicaState, args: &[&[u8]]) {
        let number = |arg: &[u8]| std::str::from_utf8(arg).ok().and_then(|text| text.parse::<u16>().ok());
        if args::is(args[0], "SELECT") && args.len() == 2 {
            self.db = number(args[1]).unwrap_or(self.db);
            return;
        }
        let mut changed = state.changed.lock();
        let Some(changed) = &mut *changed else { return };
        match terrace_kv::dispatch::find(args) {
            // What this program does not know may change anything.
            Err(_) => changed.everything = true,
            Ok(found) if ["flushall", "flushdb", "swapdb"].contains(&found.row.name) => {
                changed.everything = true;
            }
            Ok(found) if found.row.flags.contains(Flags::WRITE) => {
                let mut add = |db: u16, key: &[u8]| _ = changed.keys.insert((db, key.to_vec()));
                found.row.keys.for_each(args, |at, _| add(self.db, args[at]));
                match found.row.name {
                    "move" if args.len() == 3 => number(args[2]).iter().for_each(|&db| add(db, args[1])),
                    "copy" => {
                        for pair in args.windows(2).skip(3).filter(|pair| args::is(pair[0], "DB")) {
                            number(pair[1]).iter().for_each(|&db| add(db, args[2]));
                        }
                    }
                    _ => {}
                }
            }
            Ok(_) => {}
        }
        if changed.keys.len() > CHANGED_MAX {
            *changed = Changed { everything: true, ..Changed::default() };
        }
    }
}
