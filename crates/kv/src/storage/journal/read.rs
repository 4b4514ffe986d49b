//! Reading the write-back log back after a start.

use super::record::{HEADER, Record};
use super::{CLASS, segment_number};
use crate::storage::{Key, Stored};
use std::collections::{BTreeMap, BTreeSet};
use terrace_io::SECTOR;
use terrace_io::disk::{Disk, DiskError, File};

/// What the records after a position say together.
#[derive(Default)]
pub struct Replayed {
    /// Databases that are emptied before the rows are written.
    pub emptied: BTreeSet<u16>,
    pub rows: BTreeMap<Key, Option<Stored>>,
    /// The number of the last record, or the position if there is none after it.
    pub last: u64,
}

impl Replayed {
    fn add(&mut self, record: Record) {
        self.last = record.number;
        for db in record.emptied {
            self.rows.retain(|key, _| !key.goes_with(db));
            self.emptied.insert(db);
        }
        self.rows.extend(record.rows);
    }

    pub fn is_empty(&self) -> bool {
        self.emptied.is_empty() && self.rows.is_empty()
    }
}

/// Reads the records after `position`, which storage has, up to the first one that is missing or not whole: behind it nothing was promised.
pub fn read(disk: &dyn Disk, position: u64) -> Result<Replayed, DiskError> {
    let mut replayed = Replayed { last: position, ..Replayed::default() };
    let mut segments: Vec<(u64, String)> =
        disk.list()?.into_iter().filter_map(|name| Some((segment_number(&name)?, name))).collect();
    segments.sort_unstable();
    for (first, name) in segments {
        let mut reader = Reader { file: &*disk.open(&name)?, at: 0, window: Vec::new(), window_at: 0 };
        let mut number = first;
        while let Some(record) = reader.record(number)? {
            number += 1;
            if record.number > position {
                if record.number != replayed.last + 1 {
                    return Ok(replayed);
                }
                replayed.add(record);
            }
        }
    }
    Ok(replayed)
}

/// Bytes that are read together.
const WINDOW: u64 = 1 << 20;

struct Reader<'a> {
    file: &'a dyn File,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Reader<'_> {
    /// The record of this number: it begins here, or at the next sector if the log was synced in between.
    fn record(&mut self, number: u64) -> Result<Option<Record>, DiskError> {
        let sector = SECTOR as u64;
        for at in [self.at, self.at.next_multiple_of(sector)] {
            if let Some((record, end)) = self.record_at(at, number)? {
                self.at = end;
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn record_at(&mut self, at: u64, number: u64) -> Result<Option<(Record, u64)>, DiskError> {
        let Some(header) = self.bytes(at, HEADER as u64)? else { return Ok(None) };
        let Some((len, its)) = Record::header(&header) else { return Ok(None) };
        if its != number {
            return Ok(None);
        }
        let Some(body) = self.bytes(at + HEADER as u64, len)? else { return Ok(None) };
        let end = (at + HEADER as u64 + len).next_multiple_of(8);
        Ok(Record::decode(&header, &body).map(|record| (record, end)))
    }

    /// `None` behind the end of the file.
    fn bytes(&mut self, at: u64, len: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let sector = SECTOR as u64;
        let Some(end) = at.checked_add(len).filter(|end| *end <= self.file.len()) else { return Ok(None) };
        let has = |from: u64, bytes: &[u8]| from <= at && end <= from + bytes.len() as u64;
        if !has(self.window_at, &self.window) {
            // A file is whole sectors long.
            let whole = self.file.len() / sector * sector;
            let first = at / sector * sector;
            let last = end.next_multiple_of(sector).max(first + WINDOW).min(whole);
            if last < end {
                return Ok(None);
            }
            self.window.resize((last - first) as usize, 0);
            self.window_at = first;
            self.file.read(CLASS, first, &mut self.window)?;
        }
        let skip = (at - self.window_at) as usize;
        Ok(Some(self.window[skip..skip + len as usize].to_vec()))
    }
}
