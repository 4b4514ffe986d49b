//! RDB files: `REDIS` and four digits of version, then records until an end byte and a checksum.
//!
//! A record is an opcode with its data, or a key: optional expiry and access records, type byte, key, value. [`FileReader`] returns them one
//! by one; [`FileWriter`] writes a file that Redis 7.0 loads. Both are streams: neither holds more than one value.

use super::crc64::crc64;
use super::length::{read_length, read_string, write_length, write_string};
use super::{Object, RDB_VERSION, RdbError, Result, Source, kind};
use std::io::{self, Read, Write};

mod opcode {
    pub const FUNCTION: u8 = 245;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZE: u8 = 251;
    pub const EXPIRE_MS: u8 = 252;
    pub const EXPIRE_S: u8 = 253;
    pub const SELECT: u8 = 254;
    pub const END: u8 = 255;
}

const MAGIC: &[u8; 5] = b"REDIS";
/// Files of older versions have no checksum.
const CHECKSUM_SINCE: u16 = 5;

/// A key in a file.
#[derive(Debug, Clone)]
pub struct KeyRecord {
    pub db: u32,
    pub key: Vec<u8>,
    /// Milliseconds since the epoch.
    pub expires_ms: Option<u64>,
    /// Seconds since the last access, if the file's server evicted by it.
    pub idle_s: Option<u64>,
    /// Logarithmic access counter, if the file's server evicted by it.
    pub frequency: Option<u8>,
    pub object: Object,
}

#[derive(Debug, Clone)]
pub enum Record {
    Aux(Vec<u8>, Vec<u8>),
    /// The code of a function library.
    Function(Vec<u8>),
    Key(Box<KeyRecord>),
    /// A key of a type that a module defined. It cannot be read.
    ModuleKey {
        db: u32,
        key: Vec<u8>,
    },
}

/// A file as a source: counts and sums what it reads. `length` is the file's.
pub struct FileSource<R> {
    reader: R,
    position: u64,
    length: u64,
    checksum: u64,
}

impl<R: Read> Source for FileSource<R> {
    fn remaining(&self) -> u64 {
        self.length - self.position
    }

    fn read_exact(&mut self, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 > self.remaining() {
            return Err(RdbError::Truncated);
        }
        self.reader.read_exact(out).map_err(|error| RdbError::Io(error.to_string()))?;
        self.checksum = crc64(self.checksum, out);
        self.position += out.len() as u64;
        Ok(())
    }
}

/// Where a reader stands between two records: enough to go on from there later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub offset: u64,
    pub db: u32,
    pub version: u16,
    pub checksum: u64,
}

pub struct FileReader<R> {
    source: FileSource<R>,
    version: u16,
    db: u32,
    ended: bool,
}

impl<R: Read> FileReader<R> {
    /// Reads the header. `length` is the size of the file.
    pub fn new(reader: R, length: u64) -> Result<Self> {
        let mut source = FileSource { reader, position: 0, length, checksum: 0 };
        if source.array::<5>()? != *MAGIC {
            return Err(RdbError::Corrupt("not an RDB file"));
        }
        let digits = source.array::<4>()?;
        let version = std::str::from_utf8(&digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or(RdbError::Corrupt("no version"))?;
        if !(1..=RDB_VERSION).contains(&version) {
            return Err(RdbError::UnsupportedVersion(version));
        }
        Ok(FileReader { source, version, db: 0, ended: false })
    }

    /// Goes on at `position`, to which `reader` has been moved.
    pub fn resume(reader: R, length: u64, position: Position) -> Result<Self> {
        if position.offset > length {
            return Err(RdbError::Truncated);
        }
        let source = FileSource { reader, position: position.offset, length, checksum: position.checksum };
        Ok(FileReader { source, version: position.version, db: position.db, ended: false })
    }

    pub fn position(&self) -> Position {
        Position {
            offset: self.source.position,
            db: self.db,
            version: self.version,
            checksum: self.source.checksum,
        }
    }

    /// The next record. Nothing after the last one, whose checksum was right.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let (mut expires_ms, mut idle_s, mut frequency) = (None, None, None);
        if self.ended {
            return Ok(None);
        }
        loop {
            let source = &mut self.source;
            match source.byte()? {
                opcode::EXPIRE_MS => expires_ms = Some(u64::from_le_bytes(source.array()?)),
                opcode::EXPIRE_S => expires_ms = Some(u64::from(u32::from_le_bytes(source.array()?)) * 1000),
                opcode::IDLE => idle_s = Some(read_length(source)?),
                opcode::FREQUENCY => frequency = Some(source.byte()?),
                opcode::SELECT => {
                    self.db = u32::try_from(read_length(source)?)
                        .map_err(|_| RdbError::Corrupt("a database number"))?
                }
                opcode::RESIZE => {
                    read_length(source)?;
                    read_length(source)?;
                }
                opcode::AUX => return Ok(Some(Record::Aux(read_string(source)?, read_string(source)?))),
                opcode::FUNCTION => return Ok(Some(Record::Function(read_string(source)?))),
                opcode::MODULE_AUX => {
                    read_length(source)?;
                    skip_module(source)?;
                }
                opcode::END => {
                    self.ended = true;
                    self.check_sum()?;
                    return Ok(None);
                }
                kind::MODULE_2 => {
                    let key = read_string(source)?;
                    read_length(source)?;
                    skip_module(source)?;
                    return Ok(Some(Record::ModuleKey { db: self.db, key }));
                }
                kind => {
                    let key = read_string(source)?;
                    let object = Object::read(source, kind)?;
                    let record = KeyRecord { db: self.db, key, expires_ms, idle_s, frequency, object };
                    return Ok(Some(Record::Key(Box::new(record))));
                }
            }
        }
    }

    fn check_sum(&mut self) -> Result<()> {
        if self.version < CHECKSUM_SINCE {
            return Ok(());
        }
        let computed = self.source.checksum;
        match u64::from_le_bytes(self.source.array()?) {
            // The server that wrote the file had checksums off.
            0 => Ok(()),
            stored if stored == computed => Ok(()),
            _ => Err(RdbError::Corrupt("the checksum of the file does not match")),
        }
    }
}

/// Skips what a module wrote: values, each with its kind, until the kind 0.
fn skip_module(source: &mut impl Source) -> Result<()> {
    loop {
        match read_length(source)? {
            0 => return Ok(()),
            1 | 2 => drop(read_length(source)?),
            3 => drop(source.array::<4>()?),
            4 => drop(source.array::<8>()?),
            5 => drop(read_string(source)?),
            _ => return Err(RdbError::Corrupt("a module value of unknown kind")),
        }
    }
}

/// Appends a record that selects a database.
pub fn write_select(out: &mut Vec<u8>, db: u32) {
    out.push(opcode::SELECT);
    write_length(out, u64::from(db));
}

/// Appends a key of the selected database. `value` appends the value and returns its type byte.
pub fn write_key(
    out: &mut Vec<u8>,
    key: &[u8],
    expires_ms: Option<u64>,
    value: impl FnOnce(&mut Vec<u8>) -> u8,
) {
    if let Some(expires_ms) = expires_ms {
        out.push(opcode::EXPIRE_MS);
        out.extend_from_slice(&expires_ms.to_le_bytes());
    }
    let kind_at = out.len();
    out.push(0);
    write_string(out, key);
    out[kind_at] = value(out);
}

/// Writes a file record by record.
pub struct FileWriter<W> {
    writer: W,
    checksum: u64,
    written: u64,
    db: Option<u32>,
    record: Vec<u8>,
}

impl<W: Write> FileWriter<W> {
    pub fn new(writer: W) -> io::Result<Self> {
        let mut file = FileWriter { writer, checksum: 0, written: 0, db: None, record: Vec::new() };
        file.record.extend_from_slice(MAGIC);
        file.record.extend_from_slice(format!("{RDB_VERSION:04}").as_bytes());
        file.flush_record()?;
        Ok(file)
    }

    pub fn aux(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.record.push(opcode::AUX);
        write_string(&mut self.record, name.as_bytes());
        write_string(&mut self.record, value.as_bytes());
        self.flush_record()
    }

    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.record.push(opcode::FUNCTION);
        write_string(&mut self.record, code);
        self.flush_record()
    }

    /// Begins a database of `keys` keys, `expiring` of them with an expiry: hints to the reader.
    pub fn select(&mut self, db: u32, keys: u64, expiring: u64) -> io::Result<()> {
        self.record.push(opcode::SELECT);
        write_length(&mut self.record, u64::from(db));
        self.record.push(opcode::RESIZE);
        write_length(&mut self.record, keys);
        write_length(&mut self.record, expiring);
        self.db = Some(db);
        self.flush_record()
    }

    /// Writes a key of the selected database. `value` appends the value and returns its type byte.
    pub fn key(
        &mut self,
        key: &[u8],
        expires_ms: Option<u64>,
        value: impl FnOnce(&mut Vec<u8>) -> u8,
    ) -> io::Result<()> {
        debug_assert!(self.db.is_some());
        write_key(&mut self.record, key, expires_ms, value);
        self.flush_record()
    }

    /// Writes records that were made by [`write_select`] and [`write_key`].
    pub fn raw(&mut self, records: &[u8]) -> io::Result<()> {
        self.checksum = crc64(self.checksum, records);
        self.written += records.len() as u64;
        self.writer.write_all(records)
    }

    /// Ends the file. Returns the writer and the size of the file.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.record.push(opcode::END);
        self.flush_record()?;
        let checksum = self.checksum.to_le_bytes();
        self.writer.write_all(&checksum)?;
        self.writer.flush()?;
        Ok((self.writer, self.written + checksum.len() as u64))
    }

    fn flush_record(&mut self) -> io::Result<()> {
        self.checksum = crc64(self.checksum, &self.record);
        self.written += self.record.len() as u64;
        self.writer.write_all(&self.record)?;
        self.record.clear();
        // One huge value must not keep its buffer.
        self.record.shrink_to(1 << 20);
        Ok(())
    }
}
