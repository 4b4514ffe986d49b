//! Reading a snapshot file into the databases, at the start of a server without a storage tier.

use crate::keyspace::Databases;
use crate::rdb::RdbError;
use crate::rdb::file::{FileReader, Record};
use crate::server::Server;
use crate::value::Value;
use std::io::Read;

/// What a file had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    pub keys: u64,
    /// Keys that had expired, and were left out.
    pub expired: u64,
}

/// Loads a file of `length` bytes.
///
/// # Errors
/// Why it is refused. The databases have a part of it then.
pub fn load(
    dbs: &mut Databases,
    server: &mut Server,
    file: impl Read,
    length: u64,
) -> Result<Loaded, String> {
    let at_start = |error: RdbError| format!("{error} (at byte 0)");
    let mut reader = FileReader::new(file, length).map_err(at_start)?;
    let mut loaded = Loaded::default();
    loop {
        let begins = reader.position().offset;
        let record = reader.next_record();
        let ends = reader.position().offset;
        let refused = |why: std::fmt::Arguments<'_>| {
            Err(format!("{why} (in the record at byte {begins}, found at byte {ends} of {length})"))
        };
        match record {
            Ok(None) => return Ok(loaded),
            Err(error) => return refused(format_args!("{error}")),
            Ok(Some(Record::Aux(..))) => {}
            Ok(Some(Record::Function(code))) => {
                let clock = server.world.clock.clone();
                if let Err(failure) = server.functions.load(&code, false, clock) {
                    return refused(format_args!("a library of functions: {}", failure.0));
                }
            }
            Ok(Some(Record::ModuleKey { key, .. })) => {
                let key = String::from_utf8_lossy(&key);
                return refused(format_args!("the value of key {key:?} is of a module"));
            }
            Ok(Some(Record::Key(record))) => {
                let limits = server.collection_limits;
                let Some(db) = u16::try_from(record.db).ok().and_then(|db| dbs.get(db)) else {
                    return refused(format_args!("database {} does not exist: see `databases`", record.db));
                };
                let at_ms = record.expires_ms.map(|at_ms| i64::try_from(at_ms).unwrap_or(i64::MAX));
                if at_ms.is_some_and(|at_ms| at_ms <= db.now_ms) {
                    loaded.expired += 1;
                    continue;
                }
                if db.resident(&record.key).is_some() {
                    let key = String::from_utf8_lossy(&record.key);
                    return refused(format_args!("key {key:?} occurs twice"));
                }
                db.load(&record.key, Value::from_rdb(record.object, &limits), at_ms);
                loaded.keys += 1;
            }
        }
    }
}
