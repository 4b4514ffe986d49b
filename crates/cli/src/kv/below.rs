//! Storage in another server: `--storage redis://…`, with the write-back log in `--dir` if there is one.
//!
//! The log is of use with the data that it was written for alone. So the directory has a file that names the server's data by its identity; another server, or one that has lost its
//! data, is refused.

use super::files::LocalFiles;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_io::World;
use terrace_io::disk::Disk;
use terrace_io::real::disk::RealDisk;
use terrace_kv::config::Config;
use terrace_kv::config::files::Files;
use terrace_kv::storage::journal;
use terrace_kv::storage::redis::{Address, Options, RedisStorage};

/// The file with the identity of the data, and the place of the log.
const IDENTITY: &str = "storage";
pub const LOG: &str = "write-back";

/// Refuses a directory whose log belongs to another server, for a start with storage in the directory.
pub fn refuse_other(dir: &str) -> Result<(), String> {
    match Path::new(dir).join(IDENTITY).exists() {
        true => Err(format!("{dir}: it has the write-back log of a server with --storage: name that")),
        false => Ok(()),
    }
}

/// Connects to the server that is storage, and stores there what the log has.
pub fn open(world: &World, config: &Config) -> Result<Arc<RedisStorage>, String> {
    let text = config.text("storage");
    let is_url = text.starts_with("redis://");
    let address: Address = match text.parse() {
        Ok(address) if is_url => address,
        Err(why) if text.contains("://") => return Err(format!("storage: {why}")),
        _ => return Err("storage: it is given as redis://[[user]:password@]host:port".into()),
    };
    let dir = config.text("dir");
    if !config.text("object").is_empty() {
        return Err("storage and object exclude each other: each is the place of data that has cooled".into());
    }
    let log_disk = match dir {
        "" => None,
        dir => {
            let disk = RealDisk::open(Path::new(dir).join(LOG)).map_err(|error| format!("{dir}: {error}"))?;
            Some(Arc::new(disk) as Arc<dyn Disk>)
        }
    };
    let options = Options {
        address,
        databases: config.number("databases") as u16,
        timeout: Duration::from_millis(config.number("storage-timeout") as u64),
        log_disk: log_disk.clone(),
    };
    let storage = RedisStorage::open(world, options).map_err(|error| error.to_string())?;
    for warning in storage.warnings() {
        eprintln!("warning: {warning}");
    }
    if let Some(log) = log_disk {
        identify(dir, &*log, &storage.id())?;
        // What a server with write-back has left behind.
        journal::replay::catch_up(&*storage).map_err(|error| format!("{dir}: {error}"))?;
    }
    Ok(storage)
}

/// Compares the identity of the server's data with that in the directory, and notes it there at the first start.
fn identify(dir: &str, log: &dyn Disk, id: &str) -> Result<(), String> {
    let path = Path::new(dir).join(IDENTITY);
    let path_text = path.to_string_lossy();
    let known = match std::fs::read_to_string(&path) {
        Ok(known) => Some(known),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("{path_text}: {error}")),
    };
    match known {
        Some(known) if known.trim_end() == id => return Ok(()),
        Some(_) => {
            return Err(format!(
                "{dir}: its write-back log belongs to another server, or to data that this one has lost; \
                 remove {path_text} to store what the log has in this one"
            ));
        }
        None => {}
    }
    if !log.list().map_err(|error| error.to_string())?.is_empty() {
        return Err(format!("{dir}: its write-back log belongs to data that is kept in the directory"));
    }
    LocalFiles
        .replace(&path_text, format!("{id}\n").as_bytes())
        .map_err(|error| format!("{path_text}: {error}"))
}
