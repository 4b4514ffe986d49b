//! One save: from the databases, or from storage, into a file.
//!
//! Without a storage tier the databases are walked (`keyspace::saving`). With one, the file is written from a view of storage at one point in time, without loading a value into
//! memory; what was still on its way to storage then was noted at the start ([`Overlay`]) and has the last word.

use crate::attached::Overlay;
use crate::config::files::NewFile;
use crate::keyspace::Databases;
use crate::keyspace::sink::Sink;
use crate::rdb::file::FileWriter;
use crate::rdb::object::ExpiringField;
use crate::rdb::{Object, payload};
use crate::server::{Core, Server};
use crate::storage::{Key, StorageError, Stored, View};
use crate::value::large::{BadElement, Head, LARGE_LIST, LARGE_SET, LARGE_ZSET, parse_score};
use crate::value::listpack::Listpack;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_io::sched::{Event, Step, Worker};

/// Records that gather before they are written to the file: bounds the time for which a piece of the walk holds the lock of the core.
const PIECE_BYTES: usize = 256 << 10;
/// How long the saver tries to get the lock of the core before it writes what commands have added meanwhile.
const LOCK_WAIT: Duration = Duration::from_millis(2);

enum Source {
    Databases,
    Storage { view: Box<dyn View>, overlay: Overlay, is_read: bool },
}

pub struct Job {
    file: Option<FileWriter<Box<dyn NewFile>>>,
    pub sink: Arc<Sink>,
    source: Source,
}

impl Job {
    /// Opens the file and begins: what the databases are now is what is saved.
    pub fn begin(dbs: &mut Databases, server: &Server, path: &str) -> Result<Job, String> {
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let files = server.files.as_ref().ok_or("the server has no access to files")?;
        let mut file = FileWriter::new(files.begin(path).map_err(failed)?).map_err(failed)?;
        let now_s = server.world.clock.unix_ms() / 1000;
        for (name, value) in [
            ("redis-ver", crate::server::REDIS_VERSION.to_owned()),
            ("redis-bits", usize::BITS.to_string()),
            ("ctime", now_s.to_string()),
            ("used-mem", crate::memory::allocated_bytes().to_string()),
            ("aof-base", "0".to_owned()),
        ] {
            file.aux(name, &value).map_err(failed)?;
        }
        for (_, library) in server.functions.libraries() {
            file.function(&library.code).map_err(failed)?;
        }
        let sink = Arc::new(Sink::default());
        let source = match &server.tier {
            None => {
                for db in dbs.all.iter_mut().filter(|db| !db.is_empty()) {
                    file.select(u32::from(db.index), db.len() as u64, db.expiring() as u64)
                        .map_err(failed)?;
                }
                dbs.all.iter_mut().for_each(|db| db.begin_walk(&sink));
                Source::Databases
            }
            Some(tier) => {
                let view = tier.storage.view().map_err(|error| format!("storage: {error}"))?;
                Source::Storage { view, overlay: tier.overlay(dbs), is_read: false }
            }
        };
        Ok(Job { file: Some(file), sink, source })
    }

    /// Saves a piece of the databases, under the lock of the core. Returns whether all of them are saved.
    pub fn walk(&mut self, dbs: &mut Databases) -> bool {
        match self.source {
            Source::Storage { .. } => true,
            Source::Databases => dbs.all.iter_mut().all(|db| db.walk_on(PIECE_BYTES)),
        }
    }

    /// Goes on with what needs no lock, and writes the records that have gathered. Returns whether anything was left to do.
    pub fn write(&mut self) -> Result<bool, String> {
        let mut had_work = self.sink.detached_go_on(PIECE_BYTES) || self.read_view()?;
        let records = self.sink.take();
        had_work |= !records.is_empty();
        if let Some(file) = &mut self.file {
            file.raw(&records).map_err(|error| error.to_string())?;
        }
        Ok(had_work)
    }

    /// Reads a piece of storage. Returns whether there was one.
    fn read_view(&mut self) -> Result<bool, String> {
        let Source::Storage { view, overlay, is_read } = &mut self.source else { return Ok(false) };
        if *is_read {
            return Ok(false);
        }
        let sink = &self.sink;
        let add = |key: &Key, stored: &Stored| {
            let Some((kind, value)) = stored.rdb.split_first() else { return };
            sink.add_record(key.db, &key.name, stored.expires_ms, |out| {
                out.extend_from_slice(value);
                *kind
            });
        };
        let piece = view.read(PIECE_BYTES).map_err(|error| format!("storage: {error}"))?;
        if piece.is_empty() {
            *is_read = true;
            let keys = std::mem::take(&mut overlay.keys);
            for (key, stored) in keys {
                if let Some(stored) = stored {
                    add(&key, &whole(&mut **view, overlay, stored)?);
                }
            }
        }
        for (key, stored) in piece {
            if !overlay.emptied.contains(&key.db) && !overlay.keys.contains_key(&key) {
                add(&key, &whole(&mut **view, overlay, stored)?);
            }
        }
        Ok(true)
    }

    /// Ends the file, makes it durable and puts it in place of the old one. Returns its size.
    pub fn finish(&mut self) -> Result<u64, String> {
        let file = self.file.take().ok_or("the save has ended already")?;
        let (file, bytes) = file.finish().map_err(|error| error.to_string())?;
        file.finish().map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Does all of it at once, for `SAVE`: the caller has the lock of the core.
    pub fn run(mut self, dbs: &mut Databases) -> Result<u64, String> {
        let mut saved = || {
            while !self.walk(dbs) {
                self.write()?;
            }
            while self.write()? {}
            self.finish()
        };
        let result = saved();
        self.sink.close();
        dbs.all.iter_mut().for_each(|db| db.end_walk());
        result
    }
}

/// The RDB form of a large list with these listpacks.
fn rdb_of_list(head: &Head, packs: HashMap<Box<[u8]>, Stored>) -> Result<Vec<u8>, BadElement> {
    let mut packs: Vec<(Box<[u8]>, Stored)> = packs.into_iter().collect();
    packs.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut elements: Vec<Vec<u8>> = Vec::new();
    for (_, stored) in packs {
        let pack = Listpack::from_bytes(stored.rdb).map_err(|_| BadElement)?;
        elements.extend(pack.iter().map(|element| element.to_vec()));
    }
    if elements.len() as u64 != head.len {
        return Err(BadElement);
    }
    Ok(payload::encode(&Object::List(elements)))
}

/// The RDB form of a large collection with these elements.
fn rdb_of(head: &Head, elements: HashMap<Box<[u8]>, Stored>) -> Result<Vec<u8>, BadElement> {
    let elements = elements.into_iter();
    match head.kind {
        LARGE_SET => {
            let members = elements.map(|(member, _)| member.into()).collect();
            return Ok(payload::encode(&Object::Set(members)));
        }
        LARGE_ZSET => {
            let scored = elements.map(|(member, stored)| Ok((member.into(), parse_score(&stored.rdb)?)));
            return Ok(payload::encode(&Object::Zset(scored.collect::<Result<_, BadElement>>()?)));
        }
        _ => {}
    }
    let of = |at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX);
    let fields: Vec<ExpiringField> = elements
        .map(|(field, stored)| ExpiringField {
            field: field.into(),
            value: stored.rdb,
            expires_ms: stored.expires_ms.map(of),
        })
        .collect();
    Ok(payload::encode(&match fields.iter().any(|field| field.expires_ms.is_some()) {
        true => Object::ExpiringHash(fields),
        false => Object::Hash(fields.into_iter().map(|field| (field.field, field.value)).collect()),
    }))
}

/// A value whole, with all elements of a large collection.
fn whole(view: &mut dyn View, overlay: &Overlay, stored: Stored) -> Result<Stored, String> {
    let failed = |error: StorageError| format!("storage: {error}");
    let Some(head) = Head::parse(&stored.rdb).map_err(|bad| failed(bad.into()))? else { return Ok(stored) };
    let mut elements: HashMap<Box<[u8]>, Stored> = HashMap::new();
    for element in view.elements(head.generation).map_err(failed)? {
        elements.insert(element.name, element.value);
    }
    for (name, newer) in overlay.elements.get(&head.generation).into_iter().flatten() {
        match newer {
            Some(newer) => _ = elements.insert(name.as_bytes().into(), newer.clone()),
            None => _ = elements.remove(name.as_bytes()),
        }
    }
    if head.kind == LARGE_LIST {
        let rdb = rdb_of_list(&head, elements).map_err(|bad| failed(bad.into()))?;
        return Ok(Stored { expires_ms: stored.expires_ms, rdb });
    }
    if elements.len() as u64 != head.len {
        let (found, said) = (elements.len(), head.len);
        return Err(format!("a large collection has {found} elements in storage, and its head says {said}"));
    }
    let rdb = rdb_of(&head, elements).map_err(|bad| failed(bad.into()))?;
    Ok(Stored { expires_ms: stored.expires_ms, rdb })
}

/// A save on a thread of its own.
pub struct Saver {
    pub job: Option<Job>,
    pub core: Weak<Mutex<Core>>,
    pub event: Arc<Event>,
    pub is_walked: bool,
}

impl Saver {
    /// A piece of the save; the size of the file at the end.
    fn go_on(&mut self) -> Result<Option<u64>, String> {
        let Some(job) = &mut self.job else { return Ok(None) };
        if job.sink.is_closed() {
            return Err("ended by a command".into());
        }
        if !self.is_walked {
            let core = self.core.upgrade().ok_or("the server has ended")?;
            if let Some(mut core) = core.try_lock_for(LOCK_WAIT) {
                self.is_walked = job.walk(&mut core.dbs);
            }
        }
        if job.write()? || !self.is_walked {
            return Ok(None);
        }
        job.finish().map(Some)
    }
}

impl Worker for Saver {
    fn name(&self) -> &'static str {
        "kv save"
    }

    fn step(&mut self) -> Step {
        let result = match self.go_on() {
            Ok(None) if self.job.is_some() => return Step::Worked,
            Ok(None) => return Step::Idle,
            Ok(Some(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        // A file that was not finished is removed here.
        if let Some(job) = self.job.take() {
            job.sink.end(result);
        }
        Step::Idle
    }

    fn wake_event(&self) -> Arc<Event> {
        self.event.clone()
    }
}
