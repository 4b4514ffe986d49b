//! `terrace kv copy`: the data of a live server into another one or into an instance, and the proof that both have the same.
//!
//! 1. The source takes this for a replica (`PSYNC`): it sends an RDB file, then every command that changes data. The file's keys are restored on the target, the commands are
//!    run there as they come.
//! 2. Once the target has caught up, each key of the source is read on both sides and compared, and each key of the target is looked for in the source
//!    ([`proof`]). Keys that change meanwhile are seen in the stream and compared again, the last of them while the source's writers are paused for a moment.
//!
//! For `--dir` a server of this process has the instance open, on a loopback port, with a random password.

mod proof;
mod replica;
mod same;

use super::client::{Address, Connection};
use super::import::{Batch, Ended, faulty, restore, stopped, unusable};
use crate::output;
use clap::Args;
use replica::Replica;
use std::process::ExitCode;
use std::sync::Arc;
use terrace_kv::storage::Storage;
use terrace_kv::storage::engine::EngineStorage;

pub const AFTER_HELP: &str = "Exit codes: 0 copied, and both sides have the same; 1 they have not, or the target refused something; 2 wrong usage, or a server or the \
     instance cannot be opened; 3 the copy stopped half way: begin again, with --replace\n\
     What is written to the source after the end is not copied: move its clients when they rest.\n\
     Example: terrace kv copy redis://127.0.0.1:6379 --dir /srv/kv";

#[derive(Args)]
pub struct Copy {
    /// The server to copy from: redis://[[user]:password@]host:port. It must let replicas connect (PSYNC)
    source: Address,
    /// The server to copy to
    #[arg(long, required_unless_present = "dir", conflicts_with = "dir")]
    to: Option<Address>,
    /// The directory of the instance to copy to, which is made if there is none
    #[arg(long)]
    dir: Option<String>,
    /// The object store of the instance
    #[arg(long, requires = "dir")]
    object: Option<String>,
    /// Memory of the process that copies into an instance, such as 1gb
    #[arg(long, requires = "dir", default_value = "1gb")]
    memory: String,
    /// Delete what the target has
    #[arg(long)]
    replace: bool,
}

pub fn run(options: &Copy) -> ExitCode {
    super::import::finish(copy(options))
}

/// A server of this process over an instance.
struct Inner {
    address: Address,
    core: Arc<parking_lot::Mutex<terrace_kv::server::Core>>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
    storage: Arc<EngineStorage>,
}

impl Inner {
    fn start(options: &Copy, dir: &str) -> Result<Inner, Ended> {
        let world = terrace_io::real::world();
        let password = format!("{:016x}{:016x}", world.random.next_u64(), world.random.next_u64());
        let mut config = terrace_kv::config::Config::default();
        for (name, value) in [("dir", dir), ("requirepass", &password), ("maxmemory", &options.memory)] {
            config.load(name, value).map_err(|error| unusable(error.to_string()))?;
        }
        let object = options.object.as_deref().unwrap_or_default();
        let storage = super::open_storage(dir, object, config.size("maxmemory")).map_err(unusable)?;
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let tier = storage.clone() as Arc<dyn Storage>;
        let listening = terrace_kv::run::listen(world, config, &[any], Some(tier), None)
            .map_err(|error| unusable(error.to_string()))?;
        let port = listening.addresses().first().map_or(0, std::net::SocketAddr::port);
        let core = listening.core.clone();
        let thread = std::thread::spawn(move || listening.run());
        let address = Address { host: "127.0.0.1".into(), port, user: None, password: Some(password) };
        Ok(Inner { address, core, thread, storage })
    }

    /// Ends the server when everything is stored.
    fn stop(self) -> Result<(), Ended> {
        self.core.lock().server.is_stopping = true;
        drop(self.core);
        match self.thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(stopped(error.to_string())),
            Err(_) => return Err(stopped("the server of the instance has failed".into())),
        }
        self.storage.db().sync().map_err(|error| stopped(error.to_string()))
    }
}

fn copy(options: &Copy) -> Result<String, Ended> {
    let inner = options.dir.as_deref().map(|dir| Inner::start(options, dir)).transpose()?;
    let target = match (&inner, &options.to) {
        (Some(inner), _) => inner.address.clone(),
        (None, Some(to)) => to.clone(),
        (None, None) => return Err(unusable("--to or --dir says where to".into())),
    };
    let copied = copy_between(&options.source, &target, options.replace);
    // What was copied is stored, whatever became of the rest.
    let ended = inner.map_or(Ok(()), Inner::stop);
    let summary = copied?;
    ended.map(|()| summary)
}

fn copy_between(source: &Address, target: &Address, replaces: bool) -> Result<String, Ended> {
    let mut from = Connection::open(source).map_err(unusable)?;
    let mut to = Connection::open(target).map_err(unusable)?;
    let before: u64 = databases(&mut to)?.iter().map(|(_, keys)| keys).sum();
    if before > 0 && !replaces {
        return Err(unusable(format!("{target} has {before} keys: --replace deletes them")));
    }
    let identity = |connection: &mut Connection| {
        Ok::<_, Ended>(connection.info().map_err(unusable)?.get("run_id").cloned())
    };
    let (one, other) = (identity(&mut from)?, identity(&mut to)?);
    if one.is_some() && one == other {
        return Err(unusable("source and target are the same server".into()));
    }
    let replication = Connection::open(source).map_err(unusable)?;
    let (mut replication, offset, length) = replica::synchronise(replication)?;
    if before > 0 || replaces {
        to.ask_words("FLUSHALL").map_err(faulty)?;
    }
    let (keys, expired) = load(&mut replication, &mut to, length)?;
    output::end_progress();
    eprintln!("copied {keys} keys ({expired} had expired); following the source");
    let writer = Connection::open(target).map_err(stopped)?;
    let replica = Replica::follow(replication, writer, offset)?;
    let proved = proof::prove(&mut from, &mut to, &replica);
    let commands = replica.stop();
    let keys = proved?;
    Ok(format!("{keys} keys are the same on both sides; {commands} commands of the source were followed"))
}

/// The databases of a server that have keys, with how many.
fn databases(connection: &mut Connection) -> Result<Vec<(u16, u64)>, Ended> {
    let info = connection.info().map_err(stopped)?;
    let of = |(name, value): (&String, &String)| {
        let db = name.strip_prefix("db")?.parse().ok()?;
        Some((db, value.strip_prefix("keys=")?.split(',').next()?.parse().ok()?))
    };
    Ok(info.iter().filter_map(of).collect())
}

/// Restores the keys of the file that the source sends.
fn load(from: &mut Connection, to: &mut Connection, length: u64) -> Result<(u64, u64), Ended> {
    use terrace_kv::rdb::file::{FileReader, Record};
    let broken = |error: terrace_kv::rdb::RdbError| stopped(format!("the source's file: {error}"));
    let source = from.address.to_string();
    let mut reader = FileReader::new(&mut from.input.stream, length).map_err(broken)?;
    let (mut keys, mut expired) = (0, 0);
    let mut batch = Batch::default();
    while let Some(record) = reader.next_record().map_err(broken)? {
        match record {
            Record::Aux(..) => {}
            Record::Function(code) => {
                to.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", &code]).map_err(faulty)?;
            }
            Record::ModuleKey { key, .. } => {
                let key = String::from_utf8_lossy(&key);
                return Err(faulty(format!("{source}: the value of key {key:?} is of a module")));
            }
            Record::Key(record) => {
                let now_ms = terrace_io::real::world().clock.unix_ms();
                if record.expires_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                    expired += 1;
                    continue;
                }
                keys += 1;
                batch.add(*record);
                if batch.is_full() {
                    restore(to, std::mem::take(&mut batch))?;
                }
            }
        }
        output::progress("copying, byte", reader.position().offset, length);
    }
    restore(to, batch)?;
    Ok((keys, expired))
}
