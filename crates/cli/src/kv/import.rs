//! `terrace kv import`: an RDB file into an instance that no server has open, or into a running server.
//!
//! The file is read twice. The first pass checks all of it, so that a damaged file changes nothing. The second pass writes batches; with each of them it notes how
//! far it has come, in the instance as part of the batch, for a server in a file beside the RDB file. A run that finds a note of the same file goes on from there: a batch
//! that was written already is written again, which changes nothing.

use super::client::{Address, Connection, Reply, write_command};
use crate::{exit, output};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use terrace_kv::command::functions::FUNCTIONS;
use terrace_kv::rdb::file::{FileReader, KeyRecord, Position, Record};
use terrace_kv::rdb::payload;
use terrace_kv::script::functions::{Functions, parse_dump};
use terrace_kv::storage::engine::EngineStorage;
use terrace_kv::storage::row::NAME_MAX;
use terrace_kv::storage::{Key, Storage, Stored};

pub const AFTER_HELP: &str = "Exit codes: 0 imported; 1 the file is damaged or the target refused a key; 2 wrong usage, or the file or the target cannot be opened; \
     3 the import stopped half way: run the same command again to go on\n\
     Example: terrace kv import dump.rdb --dir /srv/kv";

/// A batch is written when it has as many bytes or keys.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_KEYS: usize = 1000;
/// The name of the note in an instance, and the end of the name of the file that has it otherwise.
const NOTE: &str = "import";

#[derive(Args)]
pub struct Import {
    /// The RDB file
    file: PathBuf,
    /// The directory of the instance, which is made if there is none
    #[arg(long, required_unless_present = "to", conflicts_with = "to")]
    dir: Option<String>,
    /// The object store of the instance
    #[arg(long, requires = "dir")]
    object: Option<String>,
    /// Memory for the import, such as 1gb
    #[arg(long, requires = "dir", default_value = "256mb")]
    memory: String,
    /// A running server: redis://[[user]:password@]host:port
    #[arg(long)]
    to: Option<Address>,
}

/// Why an import or a copy ended, with its exit code.
pub struct Ended(pub u8, pub String);

pub fn unusable(message: String) -> Ended {
    Ended(exit::UNUSABLE, message)
}

pub fn stopped(message: String) -> Ended {
    Ended(exit::INCOMPLETE, message)
}

pub fn faulty(message: String) -> Ended {
    Ended(exit::FAULTS, message)
}

pub fn run(options: &Import) -> ExitCode {
    finish(import(options))
}

/// Prints the summary of an import or a copy, or why it ended.
pub fn finish(result: Result<String, Ended>) -> ExitCode {
    output::end_progress();
    match result {
        Ok(summary) => {
            output::text(&summary);
            ExitCode::SUCCESS
        }
        Err(Ended(code, message)) => {
            eprintln!("error: {message}");
            ExitCode::from(code)
        }
    }
}

/// Which file it is, and how far the import of it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Note {
    length: u64,
    changed_ns: u128,
    at: Position,
    keys: u64,
    expired: u64,
}

impl Note {
    fn text(self) -> String {
        let Position { offset, db, version, checksum } = self.at;
        let Note { length, changed_ns, keys, expired, .. } = self;
        format!("1 {length} {changed_ns} {offset} {db} {version} {checksum} {keys} {expired}")
    }

    fn parse(text: &str) -> Option<Note> {
        let mut words = text.split_ascii_whitespace();
        if words.next()? != "1" {
            return None;
        }
        Some(Note {
            length: words.next()?.parse().ok()?,
            changed_ns: words.next()?.parse().ok()?,
            at: Position {
                offset: words.next()?.parse().ok()?,
                db: words.next()?.parse().ok()?,
                version: words.next()?.parse().ok()?,
                checksum: words.next()?.parse().ok()?,
            },
            keys: words.next()?.parse().ok()?,
            expired: words.next()?.parse().ok()?,
        })
    }
}

/// Where the keys go.
enum Target {
    Instance(Arc<EngineStorage>),
    Server { connection: Connection, note: PathBuf },
}

/// Keys of a batch; those of an instance are ordered, and the last of two of one name counts.
#[derive(Default)]
pub struct Batch {
    keys: BTreeMap<Key, Stored>,
    bytes: usize,
}

impl Target {
    fn open(options: &Import) -> Result<Target, Ended> {
        if let Some(address) = &options.to {
            let mut connection = Connection::open(address).map_err(unusable)?;
            connection.ask_words("PING").map_err(unusable)?;
            let mut note = options.file.clone().into_os_string();
            note.push(format!(".{NOTE}-{}-{}", address.host.replace('/', "-"), address.port));
            return Ok(Target::Server { connection, note: note.into() });
        }
        let dir = options.dir.as_deref().unwrap_or_default();
        let memory = terrace_kv::config::parse_bytes(&options.memory)
            .ok_or_else(|| unusable(format!("--memory {:?} is not a size", options.memory)))?;
        // The engine has all of it here.
        let memory =
            usize::try_from(memory).unwrap_or(usize::MAX).saturating_mul(super::ENGINE_SHARE as usize);
        let object = options.object.as_deref().unwrap_or_default();
        super::open_storage(dir, object, memory).map(Target::Instance).map_err(unusable)
    }

    fn note(&self) -> Result<Option<Note>, Ended> {
        let text = match self {
            Target::Instance(storage) => storage
                .kept(NOTE)
                .map_err(|error| unusable(error.to_string()))?
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Target::Server { note, .. } => std::fs::read_to_string(note).ok(),
        };
        Ok(text.as_deref().and_then(Note::parse))
    }

    fn write(&mut self, batch: Batch, note: Note) -> Result<(), Ended> {
        match self {
            Target::Instance(storage) => storage
                .load(batch.keys, (NOTE, note.text().as_bytes()))
                .map_err(|error| stopped(format!("storage: {error}"))),
            Target::Server { connection, note: path } => {
                restore(connection, batch)?;
                std::fs::write(&*path, note.text())
                    .map_err(|error| stopped(format!("{}: {error}", path.display())))
            }
        }
    }

    fn functions(&mut self, codes: &[Vec<u8>]) -> Result<(), Ended> {
        match self {
            Target::Instance(storage) => {
                let clock = terrace_io::real::world().clock;
                let mut functions = Functions::default();
                let dump = storage.kept(FUNCTIONS).map_err(|error| stopped(error.to_string()))?;
                let before = parse_dump(&dump.unwrap_or_default())
                    .map_err(|_| stopped("the instance's libraries of functions cannot be read".into()))?;
                functions.restore(&before, true, true, &clock).map_err(|failure| stopped(failure.0))?;
                functions.restore(codes, false, true, &clock).map_err(|failure| faulty(failure.0))?;
                storage.keep(FUNCTIONS, &functions.dump()).map_err(|error| stopped(error.to_string()))
            }
            Target::Server { connection, .. } => {
                for code in codes {
                    connection.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", code]).map_err(faulty)?;
                }
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), Ended> {
        match self {
            Target::Instance(storage) => {
                storage.forget_kept(NOTE).map_err(|error| stopped(error.to_string()))?;
                storage.db().sync().map_err(|error| stopped(error.to_string()))
            }
            Target::Server { note, .. } => match std::fs::remove_file(&*note) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(stopped(format!("{}: {error}", note.display())))
                }
                _ => Ok(()),
            },
        }
    }
}

/// Sends a batch with `RESTORE` and waits for all replies.
pub fn restore(connection: &mut Connection, batch: Batch) -> Result<(), Ended> {
    let (mut bytes, mut db, mut names) = (Vec::new(), None, Vec::new());
    for (key, stored) in batch.keys {
        if db.replace(key.db) != Some(key.db) {
            write_command(&mut bytes, &[b"SELECT", key.db.to_string().as_bytes()]);
            names.push(format!("database {}", key.db));
        }
        let at_ms = stored.expires_ms.unwrap_or(0).to_string();
        let value = payload::seal(stored.rdb);
        write_command(&mut bytes, &[b"RESTORE", &key.name, at_ms.as_bytes(), &value, b"REPLACE", b"ABSTTL"]);
        names.push(format!("key {:?}", String::from_utf8_lossy(&key.name)));
    }
    connection.send_raw(&bytes).and_then(|()| connection.flush()).map_err(stopped)?;
    let mut refused = None;
    for name in names {
        if let Reply::Error(error) = connection.reply().map_err(stopped)? {
            refused.get_or_insert(format!("{}: {name}: {error}", connection.address));
        }
    }
    refused.map_or(Ok(()), |error| Err(faulty(error)))
}

/// The file from its start or from a note on.
fn reader(path: &Path, length: u64, from: Option<Position>) -> Result<FileReader<BufReader<File>>, Ended> {
    let failed = |error: std::io::Error| unusable(format!("{}: {error}", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    if let Some(from) = from {
        file.seek(SeekFrom::Start(from.offset)).map_err(failed)?;
    }
    let file = BufReader::with_capacity(1 << 20, file);
    let reader = match from {
        None => FileReader::new(file, length),
        Some(from) => FileReader::resume(file, length, from),
    };
    reader.map_err(|error| faulty(format!("{}: {error} (at byte 0)", path.display())))
}

/// The next record, or where the file is damaged.
fn next(reader: &mut FileReader<BufReader<File>>, path: &Path) -> Result<Option<Record>, Ended> {
    let begins = reader.position().offset;
    reader.next_record().map_err(|error| {
        let found = reader.position().offset;
        let path = path.display();
        faulty(format!("{path}: {error} (in the record at byte {begins}, found at byte {found})"))
    })
}

/// What a file has to offer before anything of it is written.
fn check(path: &Path, length: u64, is_stored: bool) -> Result<Vec<Vec<u8>>, Ended> {
    let mut reader = reader(path, length, None)?;
    let mut functions = Vec::new();
    loop {
        let begins = reader.position().offset;
        let record = next(&mut reader, path)?;
        output::progress("checking, byte", reader.position().offset, length);
        let refused = |why: String| Err(faulty(format!("{}: {why} (at byte {begins})", path.display())));
        match record {
            None => return Ok(functions),
            Some(Record::Aux(..)) => {}
            Some(Record::Function(code)) => functions.push(code),
            Some(Record::ModuleKey { key, .. }) => {
                let key = String::from_utf8_lossy(&key);
                return refused(format!("the value of key {key:?} is of a module, which is not supported"));
            }
            Some(Record::Key(record)) => {
                if u16::try_from(record.db).is_err() {
                    return refused(format!("database {} is too many", record.db));
                }
                if is_stored && record.key.len() > NAME_MAX {
                    let bytes = record.key.len();
                    return refused(format!("a key has {bytes} bytes; a stored key has at most {NAME_MAX}"));
                }
            }
        }
    }
}

fn import(options: &Import) -> Result<String, Ended> {
    let path = &options.file;
    let failed = |error: std::io::Error| unusable(format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let length = metadata.len();
    let changed = metadata.modified().map_err(failed)?.duration_since(std::time::UNIX_EPOCH);
    let changed_ns = changed.map_or(0, |since| since.as_nanos());
    let mut target = Target::open(options)?;
    let note = target.note()?.filter(|note| note.length == length && note.changed_ns == changed_ns);
    if note.is_none() {
        let functions = check(path, length, options.dir.is_some())?;
        target.functions(&functions)?;
    }
    let (mut keys, mut expired) = note.map_or((0, 0), |note| (note.keys, note.expired));
    if let Some(note) = note {
        eprintln!("going on at byte {} of {length}", note.at.offset);
    }
    let mut reader = reader(path, length, note.map(|note| note.at))?;
    let mut batch = Batch::default();
    loop {
        let record = next(&mut reader, path)?;
        let is_end = record.is_none();
        if let Some(Record::Key(record)) = record {
            let now_ms = terrace_io::real::world().clock.unix_ms();
            if record.expires_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                expired += 1;
            } else {
                keys += 1;
                batch.add(*record);
            }
        }
        if batch.is_full() || (is_end && !batch.keys.is_empty()) {
            let note = Note { length, changed_ns, at: reader.position(), keys, expired };
            target.write(std::mem::take(&mut batch), note)?;
            output::progress("importing, byte", reader.position().offset, length);
        }
        if is_end {
            break;
        }
    }
    target.end()?;
    Ok(format!("{keys} keys imported; {expired} had expired"))
}

impl Batch {
    pub fn add(&mut self, record: KeyRecord) {
        let rdb = payload::encode(&record.object);
        self.bytes += record.key.len() + rdb.len();
        let db = u16::try_from(record.db).unwrap_or(u16::MAX);
        self.keys.insert(Key::new(db, &record.key), Stored { expires_ms: record.expires_ms, rdb });
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.keys.len() >= BATCH_KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back() {
        let at = Position { offset: 7, db: 3, version: 10, checksum: u64::MAX };
        let note = Note { length: 99, changed_ns: 1 << 70, at, keys: 5, expired: 1 };
        assert_eq!(Note::parse(&note.text()), Some(note));
        assert_eq!(Note::parse(""), None);
        assert_eq!(Note::parse("2 1 1 1 1 1 1 1 1"), None);
    }
}
