//! Bringing a backup to a point: which backup and which part of the archived log (`terrace_tier::objects::archive`) lead there. Then it is restored, the log is
//! replayed ([`replay`]), and what had not committed is rolled back ([`settle`]).
//!
//! A backup records of which lineage its volume is a copy and where that volume's log ends. The archive has the lineage's log in segments without gaps. A backup
//! can be brought to every point of the segment that contains its end, from there on. Of several the newest is taken, because it has least to replay.
//!
//! **Times.** A stretch says when its records were appended (`terrace_log`'s `Mark`): all below a position was appended at or before a time. A time's point is the
//! highest position of which the archive says that, so no commit that came later is in it, and every commit that came before is, to the millisecond. Where a server ended by a crash
//! the times of the last stretch are lost: what was committed in it counts as of the next start.
//!
//! [`replay`]: replay::replay
//! [`settle`]: settle::settle

pub mod replay;
pub mod settle;

use super::Repository;
use super::manifest::Manifest;
use crate::error::{Error, Result};
use crate::offline::check::Progress;
use crate::planted;
use terrace_io::store::{ObjectStore, StoreError};
use terrace_log::Glsn;
use terrace_tier::objects::archive::{self, Part, Segment, Stretch, chain};
use terrace_tier::objects::lines;

/// Where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Milliseconds since 1970.
    At(u64),
    Glsn(Glsn),
    /// As far as the archive goes.
    Latest,
}

/// How to get there.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub manifest: Manifest,
    /// Where the backup's log ends.
    pub base: Glsn,
    pub segment: Segment,
    pub upto: Glsn,
    /// All up to `upto` was appended at or before this time, in milliseconds since 1970.
    pub reached_ms: u64,
}

/// The stretch of a part of a segment.
pub fn fetch(archive: &dyn ObjectStore, part: &Part) -> Result<Stretch> {
    let key = part.key.to_string();
    let bytes = match archive.get(archive::purpose(), &key) {
        Ok((bytes, _)) => bytes,
        Err(StoreError::Absent { .. }) => {
            return Err(Error::Missing(format!(
                "{key} of the archived log is not in {}",
                archive.describe()
            )));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Stretch::decode(part.key, &bytes)?)
}

/// The segments of the archive.
pub fn segments(archive: &dyn ObjectStore) -> Result<Vec<Segment>> {
    let mut keys = Vec::new();
    archive::list(archive, None, &mut |key| keys.push(key))?;
    Ok(chain(keys))
}

/// The highest position of which it is known that all below it was appended at or before `ms`, and when that was.
fn position_at(archive: &dyn ObjectStore, segment: &Segment, ms: u64) -> Result<(Glsn, u64)> {
    let mut best = (segment.first, segment.since_ms);
    for part in segment.parts.iter().rev().filter(|part| part.key.since_ms <= ms) {
        let is_whole = part.end == part.key.end;
        best = best.max((part.key.first, part.key.since_ms));
        if is_whole && part.key.until_ms <= ms {
            return Ok(best.max((part.key.end, part.key.until_ms)));
        }
        let stretch = fetch(archive, part)?;
        let late = u64::from(planted::TIME_PASSED.on()) * 2000;
        let known = stretch.marks.iter().filter(|mark| mark.ms <= ms + late && mark.end <= part.end);
        best = known.fold(best, |best, mark| best.max((mark.end, mark.ms)));
    }
    Ok(best)
}

/// A time by which all below the position was appended.
fn time_of(archive: &dyn ObjectStore, segment: &Segment, position: Glsn) -> Result<u64> {
    let Some(part) = segment.parts.iter().find(|part| part.key.first <= position && position <= part.end)
    else {
        return Ok(segment.since_ms);
    };
    let stretch = fetch(archive, part)?;
    let mark = stretch.marks.iter().find(|mark| mark.end >= position && mark.end <= part.end);
    Ok(mark.map_or(part.key.until_ms, |mark| mark.ms))
}

/// The newest backup (or the one of this name) that can be brought to the point. The error says which points there are.
pub fn choose(
    repository: &Repository,
    archive: &dyn ObjectStore,
    name: Option<&str>,
    point: Point,
    show: &dyn Fn(u64) -> String,
) -> Result<Chosen> {
    let segments = segments(archive)?;
    let manifests = match name {
        Some(name) => vec![repository.complete(name)?],
        None => repository.list()?.0,
    };
    let mut bases = Vec::new();
    for manifest in manifests {
        let Some((lineage, base)) = manifest.log else { continue };
        let has = |one: &&Segment| one.lineage == lineage && (one.first..=one.end).contains(&base);
        if let Some(segment) = segments.iter().rfind(has) {
            bases.push((manifest, base, segment));
        }
    }
    if bases.is_empty() {
        let what = if segments.is_empty() {
            "has no archived log"
        } else {
            "has no archived log from the end of a backup on"
        };
        return Err(Error::Invalid(format!(
            "{} {what}; backups are those of {}",
            archive.describe(),
            repository.store.describe()
        )));
    }
    let mut best: Option<Chosen> = None;
    for (manifest, base, segment) in &bases {
        let reached = match point {
            Point::Latest => Some((segment.end, segment.until_ms)),
            Point::Glsn(at) => (at <= segment.end).then_some((at, segment.until_ms)),
            Point::At(ms) if ms > segment.until_ms || ms < segment.since_ms => None,
            Point::At(ms) => Some(position_at(archive, segment, ms)?),
        };
        let Some((upto, reached_ms)) = reached.filter(|(upto, _)| upto >= base) else { continue };
        let newest = best.as_ref().is_none_or(|best| (best.upto, best.base) < (upto, *base));
        if newest {
            let (manifest, segment) = (manifest.clone(), (*segment).clone());
            best = Some(Chosen { manifest, base: *base, segment, upto, reached_ms });
        }
    }
    if let Some(best) = best {
        return Ok(best);
    }
    let mut ranges = Vec::new();
    for (manifest, base, segment) in &bases {
        let since = time_of(archive, segment, *base)?;
        ranges.push(format!(
            "backup {} from {} to {} (positions {base} to {})",
            manifest.name,
            show(since),
            show(segment.until_ms),
            segment.end
        ));
    }
    Err(Error::Invalid(format!("no backup can be brought to that point; what can be: {}", ranges.join("; "))))
}

/// What leads on from a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    pub stretches: u64,
    /// Bytes of their records.
    pub bytes: u64,
    pub end: Glsn,
    /// The backup can be brought to any point up to this time; 0: none but its own, for nothing is archived from its end on.
    pub until_ms: u64,
    pub faults: Vec<String>,
}

/// Reads all of the archive that leads on from the backup, and checks it.
pub fn follow(manifest: &Manifest, archive: &dyn ObjectStore, progress: Progress<'_>) -> Result<Followed> {
    let mut found = Followed::default();
    let Some((lineage, base)) = manifest.log else { return Ok(found) };
    let has = |one: &Segment| one.lineage == lineage && (one.first..=one.end).contains(&base);
    let Some(segment) = segments(archive)?.into_iter().find(has) else { return Ok(found) };
    (found.end, found.until_ms) = (segment.end, segment.until_ms);
    let parts: Vec<&Part> = segment.parts.iter().filter(|part| part.end >= base).collect();
    for (n, part) in parts.iter().enumerate() {
        let read = fetch(archive, part).and_then(|stretch| {
            stretch.each_range(&mut |_| -> Result<bool> { Ok(true) })?;
            Ok(stretch.bytes() as u64)
        });
        match read {
            Ok(bytes) => (found.stretches, found.bytes) = (found.stretches + 1, found.bytes + bytes),
            Err(error @ (Error::Missing(_) | Error::Corrupt(_))) => found.faults.push(error.to_string()),
            Err(error) => return Err(error),
        }
        progress("verifying the archived log", n as u64 + 1, parts.len() as u64);
    }
    Ok(found)
}

/// What a restore to a point means to do, kept on the volume until it has: the file `replaying`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goal {
    pub backup: String,
    pub lineage: u128,
    pub base: Glsn,
    pub upto: Glsn,
}

const FIRST: &str = "terrace restore to a point 1";

impl Goal {
    pub fn of(chosen: &Chosen) -> Goal {
        let lineage = chosen.segment.lineage;
        Goal { backup: chosen.manifest.name.clone(), lineage, base: chosen.base, upto: chosen.upto }
    }

    pub fn encode(&self) -> Vec<u8> {
        lines::seal(&[
            FIRST.to_string(),
            format!("backup {}", self.backup),
            format!("lineage {:032x}", self.lineage),
            format!("base {}", self.base),
            format!("upto {}", self.upto),
        ])
    }

    /// Accepts any bytes; zeros behind the text are left out.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Goal, &'static str> {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let lines = lines::open(&bytes[..end])?;
        let [FIRST, backup, lineage, base, upto] = lines[..] else { return Err("its format is not known") };
        let line = |line: &'static str| line;
        let number = |text: &str, name: &str| {
            text.strip_prefix(name)
                .and_then(|text| text.strip_prefix(' '))
                .map(str::to_string)
                .ok_or(line("a line is missing"))
        };
        let glsn = |text: String| text.parse::<Glsn>().map_err(|_| "a number is wrong");
        Ok(Goal {
            backup: number(backup, "backup")?,
            lineage: u128::from_str_radix(&number(lineage, "lineage")?, 16).map_err(|_| "an id is wrong")?,
            base: glsn(number(base, "base")?)?,
            upto: glsn(number(upto, "upto")?)?,
        })
    }

    /// The segment that leads from the base to the point.
    pub fn segment(&self, archive: &dyn ObjectStore) -> Result<Segment> {
        let leads =
            |one: &Segment| one.lineage == self.lineage && one.first <= self.base && self.upto <= one.end;
        let found = segments(archive)?.into_iter().find(leads);
        found.ok_or_else(|| {
            let (base, upto) = (self.base, self.upto);
            Error::Missing(format!("{} has not the archived log from {base} to {upto}", archive.describe()))
        })
    }
}

#[cfg(test)]
mod tests;
