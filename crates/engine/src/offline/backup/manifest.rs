//! A backup's manifest: what it consists of. Text, a line an item, closed by the number of lines and a checksum of all of them, so that a
//! manifest that is cut off or changed is not taken for one.
//!
//! ```text
//! terrace backup 2
//! name monday
//! made 1795885200000             Unix time in milliseconds
//! instance 00…                   of the volume's copy, 32 hexadecimal digits
//! lineage 00…
//! log 00… 123456                 the lineage of which the volume is a copy, and where its log ends
//! file log.0 8388608             name and length in bytes; its chunks follow
//! chunk 0 4194304 1a2b3c4d       number, length, CRC-32C
//! object 00…/…/…-… 2098176 1a2b3c4d   key, length, CRC-32C; or "-": the store copied it by itself (format 3)
//! end 6 1a2b3c4d                 lines before this one, and their CRC-32C
//! ```

use super::CHUNK;
use std::str::FromStr;
use terrace_log::Glsn;
use terrace_tier::address::ObjectKey;
use terrace_tier::objects::lines::{open, seal};

const FIRST: &str = "terrace backup 2";
/// With objects whose checksum is not known.
const WITHOUT_CHECKSUMS: &str = "terrace backup 3";
/// Of builds before the log was archived: without the line `log`.
const FORMER: &str = "terrace backup 1";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkEntry {
    /// Its place in the file, in units of [`CHUNK`].
    pub number: u64,
    pub length: u64,
    pub crc: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEntry {
    pub name: String,
    pub length: u64,
    /// Those that are not all zeros, in order.
    pub chunks: Vec<ChunkEntry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectEntry {
    pub key: ObjectKey,
    pub length: u64,
    /// None: the store copied it by itself. Its own hash proves it all the same.
    pub crc: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub name: String,
    /// Unix time in milliseconds.
    pub made_ms: u64,
    /// The volume's copy.
    pub instance: u128,
    pub lineage: u128,
    /// The lineage of which the volume is a copy, or its own, and where its log ends; None in backups of builds before the log was archived.
    pub log: Option<(u128, Glsn)>,
    pub files: Vec<FileEntry>,
    /// In the order of keys.
    pub objects: Vec<ObjectEntry>,
}

impl Manifest {
    pub fn object_bytes(&self) -> u64 {
        self.objects.iter().map(|one| one.length).sum()
    }

    /// Bytes of the volume's files that are not zeros.
    pub fn volume_bytes(&self) -> u64 {
        self.files.iter().flat_map(|file| &file.chunks).map(|chunk| chunk.length).sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut lines = vec![
            match self.log {
                Some(_) if self.objects.iter().any(|one| one.crc.is_none()) => WITHOUT_CHECKSUMS,
                Some(_) => FIRST,
                None => FORMER,
            }
            .to_string(),
            format!("name {}", self.name),
            format!("made {}", self.made_ms),
            format!("instance {:032x}", self.instance),
            format!("lineage {:032x}", self.lineage),
        ];
        lines.extend(self.log.map(|(lineage, end)| format!("log {lineage:032x} {end}")));
        for file in &self.files {
            lines.push(format!("file {} {}", file.name, file.length));
            let chunk = |one: &ChunkEntry| format!("chunk {} {} {:08x}", one.number, one.length, one.crc);
            lines.extend(file.chunks.iter().map(chunk));
        }
        let object = |one: &ObjectEntry| {
            let crc = one.crc.map_or("-".to_string(), |crc| format!("{crc:08x}"));
            format!("object {} {} {crc}", one.key, one.length)
        };
        lines.extend(self.objects.iter().map(object));
        seal(&lines)
    }

    /// Accepts any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, &'static str> {
        let lines = open(bytes)?;
        let mut lines = lines.into_iter();
        let has_log = match lines.next() {
            Some(FIRST | WITHOUT_CHECKSUMS) => true,
            Some(FORMER) => false,
            _ => return Err("its format is not known"),
        };
        let mut head = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.and_then(|line| line.strip_prefix(' ')).ok_or("a line is missing")
        };
        let name = head("name")?.to_string();
        let made_ms = number(Some(head("made")?))?;
        let id = |text: &str| u128::from_str_radix(text, 16).map_err(|_| "an id is wrong");
        let (instance, lineage) = (id(head("instance")?)?, id(head("lineage")?)?);
        let log = match has_log {
            true => {
                let (lineage, end) = head("log")?.split_once(' ').ok_or("a line is wrong")?;
                Some((id(lineage)?, number(Some(end))?))
            }
            false => None,
        };
        let mut found =
            Manifest { log, name, made_ms, instance, lineage, files: Vec::new(), objects: Vec::new() };
        for line in lines {
            let mut words = line.split(' ');
            match words.next() {
                Some("file") => found.files.push(file(words)?),
                Some("chunk") => {
                    let file = found.files.last_mut().ok_or("a chunk is of no file")?;
                    file.add(chunk(words)?)?;
                }
                Some("object") => found.objects.push(object(words)?),
                _ => return Err("it has a line of an unknown kind"),
            }
        }
        if !found.objects.is_sorted_by(|a, b| a.key < b.key) {
            return Err("its objects are not in order");
        }
        if found.encode() == bytes { Ok(found) } else { Err("it has text that nobody writes") }
    }
}

impl FileEntry {
    fn add(&mut self, chunk: ChunkEntry) -> Result<(), &'static str> {
        let start = chunk.number.checked_mul(CHUNK as u64).filter(|start| *start < self.length);
        let room = start.map(|start| (self.length - start).min(CHUNK as u64));
        if room != Some(chunk.length) || self.chunks.last().is_some_and(|last| last.number >= chunk.number) {
            return Err("a chunk is at the wrong place");
        }
        self.chunks.push(chunk);
        Ok(())
    }
}

fn number<T: FromStr>(word: Option<&str>) -> Result<T, &'static str> {
    word.and_then(|word| word.parse().ok()).ok_or("a number is wrong")
}

fn crc(word: Option<&str>) -> Result<u32, &'static str> {
    word.and_then(|word| u32::from_str_radix(word, 16).ok()).ok_or("a checksum is wrong")
}

fn file<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<FileEntry, &'static str> {
    let name =
        words.next().filter(|name| super::create::is_of_volume(name)).ok_or("a file's name is wrong")?;
    Ok(FileEntry { name: name.to_string(), length: number(words.next())?, chunks: Vec::new() })
}

fn chunk<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<ChunkEntry, &'static str> {
    Ok(ChunkEntry { number: number(words.next())?, length: number(words.next())?, crc: crc(words.next())? })
}

fn object<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<ObjectEntry, &'static str> {
    let key = words.next().and_then(ObjectKey::parse).ok_or("an object's key is wrong")?;
    let length = number(words.next())?;
    let crc = match words.next() {
        Some("-") => None,
        word => Some(crc(word)?),
    };
    Ok(ObjectEntry { key, length, crc })
}

#[cfg(test)]
mod tests;
