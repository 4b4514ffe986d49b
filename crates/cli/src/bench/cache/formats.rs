//! The formats of traces: what one record says.

use super::caffeine;
use super::trace::{Access, Key, Result};
use clap::ValueEnum;
use std::io::{BufRead, ErrorKind};

/// Bytes that a key of a block trace stands for where blocks are made pages.
pub(super) const SECTOR: u64 = 512;
/// Pages, or uses, that one record may be of.
const RECORD_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// libCacheSim: records of 24 bytes, little-endian: time u32, object u64, size u32, next access i64
    OracleGeneral,
    /// With a first line that names the columns, or with --columns: key (or id, obj_id, object, page, block, lba), size, op
    Csv,
    /// Caffeine's lirs: a number a line
    Lirs,
    /// Caffeine's arc: first block, blocks, …
    Arc,
    /// Caffeine's address: operation, hexadecimal address, …; pages of the address
    Address,
    /// Caffeine's adapt-size and lrb: time, object, size
    AdaptSize,
    /// Caffeine's cache2k and cloud-physics: numbers of 4 bytes, big-endian
    Int32,
    /// Caffeine's scarab and corda: numbers of 8 bytes, big-endian
    Int64,
    /// Caffeine's gradle: a hexadecimal name a line
    Gradle,
    /// Caffeine's snia-cambridge: time, host, disk, Read or Write, offset, size, …; pages of the extent
    Cambridge,
    /// Caffeine's umass-storage: device, sector, size, r or w, …; pages of the extent
    Umass,
    /// Caffeine's twitter: time, key, key size, value size, client, operation, …
    Twitter,
    /// Caffeine's baleen: block, offset, size, time, kind, …; pages of the extent
    Baleen,
    /// Caffeine's cachelib: key, operation, size, how often, key size
    Cachelib,
    /// Caffeine's camelab: time, R or W, sector, sectors, …; pages of the extent
    Camelab,
    /// Caffeine's lcs-trace (libCacheSim's cloudPhysicsIO.csv): …, size, key in the fourth and fifth column
    LcsCsv,
    /// Caffeine's lcs-twitter (libCacheSim's twitter_cluster52.csv): time, key, size, …
    LcsTwitter,
    /// Caffeine's outbrain: user, document, …
    Outbrain,
    /// Caffeine's snia-enterprise: DiskRead or DiskWrite, …; pages of the extent
    SniaEnterprise,
    /// Caffeine's snia-object-store: time, REST.GET.OBJECT or REST.PUT.OBJECT, object, size, first byte, last byte
    SniaObjectStore,
    /// Caffeine's snia-k5cloud: volume, time, R or W, offset, size; pages of the extent
    #[value(name = "snia-k5cloud")]
    SniaK5cloud,
    /// Caffeine's snia-tencent-block: time, sector, sectors, 0 or 1 (a write), volume; pages of the extent
    SniaTencentBlock,
    /// Caffeine's snia-tencent-photo: time, photo, format, size's category, size, …
    SniaTencentPhoto,
    /// Caffeine's snia-systor: time, response, R or W, unit, offset, size; pages of the extent
    SniaSystor,
    /// Caffeine's tragen: time, object, size
    Tragen,
    /// Caffeine's umass-youtube: …, GETVIDEO, video
    UmassYoutube,
    /// Caffeine's wikipedia: number, time, URL, -; articles alone
    Wikipedia,
}

/// Caffeine's names, where they differ.
const CAFFEINE: [(&str, Format); 10] = [
    ("address-penalties", Format::Address),
    ("gl-cache", Format::OracleGeneral),
    ("cache2k", Format::Int32),
    ("cloud-physics", Format::Int32),
    ("scarab", Format::Int64),
    ("corda", Format::Int64),
    ("lrb", Format::AdaptSize),
    ("snia-cambridge", Format::Cambridge),
    ("umass-storage", Format::Umass),
    ("lcs-trace", Format::LcsCsv),
];

impl Format {
    pub fn named(name: &str) -> Option<Format> {
        let name = name.replace('_', "-");
        let ours = Format::from_str(&name, true).ok();
        ours.or_else(|| CAFFEINE.iter().find(|(n, _)| *n == name).map(|(_, format)| *format))
    }

    /// By the name of a file without its compression's ending, if that says it.
    pub fn of_file(name: &str) -> Option<Format> {
        let name = name.to_ascii_lowercase();
        let ends = |ending: &str| name.ends_with(ending);
        if name.contains("oraclegeneral") {
            Some(Format::OracleGeneral)
        } else if ends(".csv") {
            Some(Format::Csv)
        } else if ends(".lirs") {
            Some(Format::Lirs)
        } else if ends(".arc") {
            Some(Format::Arc)
        } else {
            None
        }
    }

    /// Reads all records, in order. `page` bytes make a page where a format speaks of extents; `names` are a CSV file's columns, if its
    /// first line doesn't name them.
    pub fn read(
        self,
        from: &mut dyn BufRead,
        names: Option<&str>,
        page: u64,
        each: &mut dyn FnMut(Access),
    ) -> Result<()> {
        match self {
            Format::OracleGeneral => records::<24>(from, |record| {
                let (id, size) = (&record[4..12], &record[12..16]);
                let size = u32::from_le_bytes(size.try_into().unwrap_or_default());
                each(Access {
                    key: Key::Number(u64::from_le_bytes(id.try_into().unwrap_or_default())),
                    size: Some(size.into()),
                    write: false,
                });
            }),
            Format::Int32 => records::<4>(from, |r| each(Access::read(u32::from_be_bytes(*r).into()))),
            Format::Int64 => records::<8>(from, |r| each(Access::read(u64::from_be_bytes(*r)))),
            Format::Csv => csv(from, names, each),
            Format::Cachelib | Format::LcsCsv | Format::LcsTwitter | Format::Outbrain => {
                let mut head = true;
                lines(from, |line| {
                    let skip = std::mem::replace(&mut head, false);
                    if skip { Some(()) } else { caffeine::line(self, line, page, each) }
                })
            }
            _ => lines(from, |line| self.line(line, page, each)),
        }
    }

    /// One line of a text format; None if it is none of it.
    fn line(self, line: &str, page: u64, each: &mut dyn FnMut(Access)) -> Option<()> {
        let commas: Vec<&str> = line.split(',').map(str::trim).collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: Option<&&str>| text.and_then(|t| t.parse::<u64>().ok());
        match self {
            // An asterisk is a mark of the authors'.
            Format::Lirs if line.starts_with('*') => {}
            Format::Lirs => each(Access::read(number(words.first())?)),
            Format::Arc => {
                let (first, blocks) = (number(words.first())?, number(words.get(1))?);
                (first..first.checked_add(few(blocks)?)?).for_each(|block| each(Access::read(block)));
            }
            Format::Address => {
                let address = words.get(1)?.trim_start_matches("0x");
                each(Access {
                    key: Key::Number(u64::from_str_radix(address, 16).ok()? / page),
                    size: None,
                    write: *words.first()? == "s",
                });
            }
            Format::AdaptSize => {
                let (key, size) = (number(words.get(1))?, number(words.get(2))?);
                each(Access { key: Key::Number(key), size: Some(size), write: false });
            }
            Format::Gradle => each(Access { key: Key::Text(line.trim()), size: None, write: false }),
            Format::Cambridge => {
                let write = match *commas.get(3)? {
                    "Read" => false,
                    "Write" => true,
                    _ => return None,
                };
                let space = format!("{}/{}", commas[1], commas[2]);
                extent(page, &space, (number(commas.get(4))?, number(commas.get(5))?), write, each)?;
            }
            Format::Umass => {
                let write = match *commas.get(3)? {
                    "r" | "R" => false,
                    "w" | "W" => true,
                    _ => return None,
                };
                let from = number(commas.get(1))?.checked_mul(SECTOR)?;
                extent(page, commas[0], (from, number(commas.get(2))?), write, each)?;
            }
            Format::Twitter => {
                let size = number(commas.get(2))?.checked_add(number(commas.get(3))?)?;
                let write = !matches!(*commas.get(5)?, "get" | "gets");
                each(Access { key: Key::Text(commas[1]), size: Some(size), write });
            }
            Format::OracleGeneral | Format::Csv | Format::Int32 | Format::Int64 => return None,
            _ => caffeine::line(self, line, page, each)?,
        }
        Some(())
    }
}

/// Pages, or uses, of one record; None if the number is so large that the record must be damaged.
pub(super) fn few(count: u64) -> Option<u64> {
    (count <= RECORD_MAX).then_some(count)
}

/// The pages of an extent: where it begins, and its bytes.
pub(super) fn extent(
    page: u64,
    space: &str,
    (from, bytes): (u64, u64),
    write: bool,
    each: &mut dyn FnMut(Access),
) -> Option<()> {
    let (first, end) = (from / page, from.checked_add(bytes.max(1))?.div_ceil(page));
    few(end - first)?;
    for at in first..end {
        each(Access { key: Key::Text(&format!("{space}/{at}")), size: None, write });
    }
    Some(())
}

/// Records of `N` bytes; the last one must be whole.
fn records<const N: usize>(from: &mut dyn BufRead, mut each: impl FnMut(&[u8; N])) -> Result<()> {
    let mut record = [0; N];
    for n in 0u64.. {
        let mut have = 0;
        while have < N {
            match from.read(&mut record[have..]) {
                Ok(0) if have == 0 => return Ok(()),
                Ok(0) => return Err(format!("record {n} ends after {have} of {N} bytes")),
                Ok(more) => have += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        each(&record);
    }
    Ok(())
}

/// Lines that are not empty.
fn lines(from: &mut dyn BufRead, mut each: impl FnMut(&str) -> Option<()>) -> Result<()> {
    let mut line = String::new();
    for n in 1u64.. {
        line.clear();
        match from.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(format!("line {n}: {e}")),
        }
        let text = line.trim();
        if !text.is_empty() && each(text).is_none() {
            let shown: String = text.chars().take(60).collect();
            return Err(format!("line {n} is not of the format: {shown}"));
        }
    }
    Ok(())
}

/// Where the columns are that matter.
struct Columns {
    key: usize,
    size: Option<usize>,
    op: Option<usize>,
}

/// Names of a CSV file's columns, as its first line would have them.
pub fn named_columns(names: &str) -> std::result::Result<String, String> {
    columns(names).map(|_| names.to_string()).ok_or_else(|| "none of the columns is a key".into())
}

fn columns(head: &str) -> Option<Columns> {
    let names: Vec<String> = head.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
    Some(Columns {
        key: find(&["key", "id", "obj_id", "object", "page", "block", "lba"])?,
        size: find(&["size", "obj_size", "bytes", "length"]),
        op: find(&["op", "operation", "type"]),
    })
}

fn csv(from: &mut dyn BufRead, names: Option<&str>, each: &mut dyn FnMut(Access)) -> Result<()> {
    let mut head: Option<Columns> = names.and_then(columns);
    lines(from, |line| {
        let Some(columns) = &head else {
            head = Some(columns(line)?);
            return Some(());
        };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let size = match columns.size {
            Some(at) => Some(fields.get(at)?.parse().ok()?),
            None => None,
        };
        let write = match columns.op.map(|at| fields.get(at)) {
            None => false,
            Some(op) => match op?.to_ascii_lowercase().as_str() {
                "r" | "read" | "get" | "gets" | "0" => false,
                "w" | "write" | "set" | "put" | "update" | "1" => true,
                _ => return None,
            },
        };
        each(Access { key: Key::Text(fields.get(columns.key)?), size, write });
        Some(())
    })
}
