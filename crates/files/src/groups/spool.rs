//! Files of groups on flash: one file each, `GROUP-KIND-NUMBER`, with a head that says whose it is and a checksum of all. A file that is not whole,
//! as the daemon ended while it was written, does not count.
//!
//! They survive the daemon's end. They are not synced: what a loss of power takes, no client was told is in the store.

use super::{Before, Kept, Member, Name};
use crate::catalogue::Fault;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use terrace_io::AlignedBuf;
use terrace_io::SECTOR;
use terrace_io::disk::{Class, Disk, DiskError, DiskLock};
use terrace_io::real::disk::RealDisk;
use terrace_io::store::{Bytes, Upload, UploadPart};
use twox_hash::XxHash3_128;

const MAGIC: u32 = u32::from_le_bytes(*b"TFG1");
/// Magic, length of what follows, and its checksum.
const HEAD: usize = 4 + 8 + 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Member,
    /// What the commit replaces.
    Old,
    Record,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Kind::Member => 'f',
            Kind::Old => 'o',
            Kind::Record => 'r',
        }
    }
}

pub enum SpoolEntry {
    Member(Member),
    Record(HashMap<u32, Before>),
}

pub struct Spool {
    disk: Arc<dyn Disk>,
    bytes_max: u64,
    bytes: Mutex<u64>,
    _lock: Box<dyn DiskLock>,
}

fn file_name(name: Name, kind: Kind, number: u32) -> String {
    format!("{name:032x}-{}-{number:08x}", kind.letter())
}

/// None: it is no file of ours.
fn parse(file: &str) -> Option<(Name, Kind, u32)> {
    let mut parts = file.split('-');
    let name = Name::from_str_radix(parts.next().filter(|part| part.len() == 32)?, 16).ok()?;
    let kind = [Kind::Member, Kind::Old, Kind::Record];
    let letter = parts.next()?;
    let kind = kind.into_iter().find(|kind| letter == kind.letter().to_string())?;
    let number = u32::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some((name, kind, number))
}

fn failed(error: DiskError) -> Fault {
    Fault::Busy(format!("flash: {error}"))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
    fn text(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).ok()
    }
}

fn encode(member: &Member, kept: &Kept) -> Vec<u8> {
    let mut out = Vec::new();
    out.push(u8::from(member.creates));
    put_text(&mut out, &member.path);
    match kept {
        Kept::Whole(bytes) => {
            out.push(0);
            out.extend_from_slice(bytes);
        }
        Kept::Upload(upload, parts) => {
            out.push(1);
            put_text(&mut out, &upload.id);
            for part in parts {
                out.extend_from_slice(&part.bytes.to_le_bytes());
                put_text(&mut out, &part.tag);
            }
        }
    }
    out
}

fn decode(number: u32, body: &[u8]) -> Option<(Member, Kept)> {
    let mut rest = Rest(body);
    let creates = rest.u8()? != 0;
    let mut member = Member { number, path: rest.text()?.into(), creates, bytes: 0 };
    if rest.u8()? == 0 {
        member.bytes = rest.0.len() as u64;
        return Some((member, Kept::Whole(Bytes::copy_from_slice(rest.0))));
    }
    let upload = Upload { key: member.path.to_string(), id: rest.text()?.into() };
    let (mut parts, mut offset) = (Vec::new(), 0);
    while !rest.0.is_empty() {
        let bytes = rest.u64()?;
        parts.push(UploadPart { number: parts.len() as u32, offset, bytes, tag: rest.text()?.into() });
        offset += bytes;
    }
    Some((member, Kept::Upload(upload, parts)))
}

impl Spool {
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Spool, String> {
        let why = |error: DiskError| format!("{}: {error}", directory.display());
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(directory).map_err(why)?);
        let lock = disk.lock().map_err(why)?;
        Ok(Spool { disk, bytes_max, bytes: Mutex::new(0), _lock: lock })
    }

    pub fn bytes(&self) -> u64 {
        *self.bytes.lock()
    }

    /// What earlier runs kept. Files that are not whole are removed.
    pub fn find(&self) -> Result<Vec<(Name, SpoolEntry)>, String> {
        let mut found = Vec::new();
        for file in self.disk.list().map_err(|error| error.to_string())? {
            let Some((name, kind, number)) = parse(&file) else { continue };
            let read = self.load(&file);
            if let Ok(body) = &read {
                *self.bytes.lock() += taken(body.len());
            }
            let one = read.ok().and_then(|body| match kind {
                Kind::Member => decode(number, &body).map(|(member, _)| Some(SpoolEntry::Member(member))),
                Kind::Record => decode_record(&body).map(|record| Some(SpoolEntry::Record(record))),
                Kind::Old => decode(number, &body).map(|_| None),
            });
            match one {
                Some(one) => found.extend(one.map(|one| (name, one))),
                None => drop(self.disk.remove(&file)),
            }
        }
        Ok(found)
    }

    pub fn write(&self, name: Name, kind: Kind, member: &Member, kept: &Kept) -> Result<(), Fault> {
        self.store(&file_name(name, kind, member.number), &encode(member, kept))
    }

    pub fn write_record(&self, name: Name, record: &HashMap<u32, Before>) -> Result<(), Fault> {
        let mut body = Vec::new();
        for (number, before) in record {
            body.extend_from_slice(&number.to_le_bytes());
            body.push(u8::from(*before == Before::There));
        }
        self.store(&file_name(name, Kind::Record, 0), &body)
    }

    fn store(&self, file: &str, body: &[u8]) -> Result<(), Fault> {
        let len = taken(body.len());
        {
            let mut bytes = self.bytes.lock();
            if *bytes + len > self.bytes_max {
                let most = self.bytes_max;
                return Err(Fault::Busy(format!(
                    "files that are not committed have {most} bytes of flash, which is the limit"
                )));
            }
            *bytes += len;
        }
        let written = self.write_file(file, body);
        if written.is_err() {
            *self.bytes.lock() -= len;
            // What is left of it is not whole, and does not count.
            let _ = self.disk.remove(file);
        }
        written.map_err(failed)
    }

    fn write_file(&self, file: &str, body: &[u8]) -> Result<(), DiskError> {
        let mut buffer = AlignedBuf::zeroed(taken(body.len()) as usize);
        buffer[..4].copy_from_slice(&MAGIC.to_le_bytes());
        buffer[4..12].copy_from_slice(&(body.len() as u64).to_le_bytes());
        buffer[12..HEAD].copy_from_slice(&XxHash3_128::oneshot(body).to_le_bytes());
        buffer[HEAD..HEAD + body.len()].copy_from_slice(body);
        let made = self.disk.create(file)?;
        made.grow(buffer.len() as u64, false)?;
        made.write(Class::BpeFill, 0, &buffer)
    }

    pub fn read(&self, name: Name, kind: Kind, number: u32) -> Result<Kept, Fault> {
        let file = file_name(name, kind, number);
        let body = self.load(&file).map_err(failed)?;
        let found = decode(number, &body);
        found.map(|(_, kept)| kept).ok_or_else(|| Fault::Refused(format!("flash: {file} is damaged")))
    }

    fn load(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let damaged = || DiskError::Failed {
            name: name.into(),
            what: "check",
            offset: 0,
            len: 0,
            cause: "it is not whole".into(),
        };
        let file = self.disk.open(name)?;
        let len = usize::try_from(file.len()).map_err(|_| damaged())? / SECTOR * SECTOR;
        let mut buffer = AlignedBuf::zeroed(len);
        if len > 0 {
            file.read(Class::BpeRead, 0, &mut buffer)?;
        }
        let mut rest = Rest(&buffer);
        let head = (rest.u32(), rest.u64(), rest.take(16).map(|hash| hash.to_vec()));
        let (Some(MAGIC), Some(length), Some(hash)) = head else { return Err(damaged()) };
        let body = usize::try_from(length).ok().and_then(|length| rest.take(length)).ok_or_else(damaged)?;
        match XxHash3_128::oneshot(body).to_le_bytes()[..] == hash[..] {
            true => Ok(body.to_vec()),
            false => Err(damaged()),
        }
    }

    pub fn remove(&self, name: Name, kind: Kind, number: u32) {
        let file = file_name(name, kind, number);
        let Ok(opened) = self.disk.open(&file) else { return };
        let len = opened.len();
        drop(opened);
        // What cannot be removed is found again at the next start, and is removed then.
        if self.disk.remove(&file).is_ok() {
            let mut bytes = self.bytes.lock();
            *bytes = bytes.saturating_sub(len);
        }
    }
}

fn taken(body: usize) -> u64 {
    (HEAD + body).next_multiple_of(SECTOR) as u64
}

fn decode_record(body: &[u8]) -> Option<HashMap<u32, Before>> {
    let mut rest = Rest(body);
    let mut record = HashMap::new();
    while !rest.0.is_empty() {
        let number = rest.u32()?;
        record.insert(number, if rest.u8()? == 0 { Before::Absent } else { Before::There });
    }
    Some(record)
}
