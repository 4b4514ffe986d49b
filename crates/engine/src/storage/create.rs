//! Making a new instance on an empty volume.
//!
//! The superblock comes last, under another name until it is whole: a volume that has a superblock
//! has an instance. Before anything else comes the file `creating`, and it goes when all is done. So
//! files without a superblock are either the rest of a start that was cut short, which starts over,
//! or an instance that has lost its superblock, which is not touched.
//!
//! A copy of another instance (`copy`) is made in the same order, with the file `copying` beside it. What is left of one that was cut short is
//! no instance, and is not taken for an empty place either.

use crate::config::Config;
use crate::error::Error;
use crate::storage::Parts;
use crate::superblock::{self, Superblock};
use terrace_io::disk::{Class, Disk, DiskError};
use terrace_tier::page::SpaceId;
use terrace_tier::volume::map::home;
use terrace_tier::volume::object_buffer;

/// The first GLSN of an instance.
pub const FIRST_GLSN: u64 = 4096;

const CREATING: &str = "creating";
/// Beside a copy that is not whole.
pub(crate) const COPYING: &str = "copying";
pub(crate) const FRESH: &str = "superblock.new";
/// Beside an instance that is being brought to a point (`offline::backup::point`): no server may change it. What it says is for the command.
pub(crate) const REPLAYING: &str = "replaying";
/// It was brought there.
pub(crate) const REPLAYED: &str = "replayed";

/// Makes an instance if there is none. True if it made one. `replays`: for the command that brings it to a point.
pub fn if_absent(config: &Config, parts: &Parts, replays: bool) -> Result<bool, Error> {
    let volume = &*parts.volume;
    let found = volume.list()?;
    let has = |name: &str| found.iter().any(|n| n == name);
    if has(superblock::FILE) {
        if has(REPLAYING) != replays {
            let volume = volume.describe();
            return Err(Error::Invalid(match replays {
                true => format!("{volume} has an instance that is not being brought to a point"),
                false => format!(
                    "{volume} is being brought to a point (terrace restore --at), and was cut short: repeat that command"
                ),
            }));
        }
        let rest = if replays { None } else { Some(REPLAYED) };
        for name in [CREATING, COPYING].into_iter().chain(rest).filter(|name| has(name)) {
            volume.remove(name)?;
        }
        return Ok(false);
    }
    if has(COPYING) {
        return Err(Error::Invalid(format!(
            "{} has a copy of an instance that was cut short; remove it and copy again",
            volume.describe()
        )));
    }
    let ours: Vec<&String> = found.iter().filter(|n| is_ours(n)).collect();
    if !has(CREATING) && !ours.is_empty() {
        return Err(Error::Corrupt(format!(
            "{} has {} but no {}: it is an instance that lost its superblock, or not a volume of ours",
            volume.describe(),
            ours[0],
            superblock::FILE
        )));
    }
    if !has(CREATING) {
        volume.create(CREATING)?.sync(Class::Superblock)?;
        volume.sync_dir()?;
    }
    for name in ours {
        volume.remove(name)?;
    }
    make(config, parts)?;
    volume.remove(CREATING)?;
    Ok(true)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("log.") || [home::FILE, object_buffer::FILE, FRESH].contains(&name)
}

fn make(config: &Config, parts: &Parts) -> Result<(), DiskError> {
    let volume: &dyn Disk = &*parts.volume;
    let blocks = config.log_blocks();
    terrace_log::log::create(volume, config.log_partitions, blocks)?;
    home::create(volume)?;
    object_buffer::create(volume)?;
    volume.sync_dir()?;
    let id = || u128::from(parts.world.random.next_u64()) | u128::from(parts.world.random.next_u64()) << 64;
    let superblock = Superblock {
        version: superblock::VERSION,
        instance: id(),
        lineage: id(),
        generation: 1,
        epoch: 0,
        clean: true,
        has_store: false,
        archiving: 0,
        checkpoint: FIRST_GLSN,
        attested: FIRST_GLSN,
        transactions: 1,
        sequences: 1,
        spaces: SpaceId::FIRST_USER.0,
        slots: config.slots(),
        log_blocks: blocks,
        starts: vec![0; config.log_partitions],
        history: vec![],
        takers: vec![],
        map_newest: 0,
        map_digest: None,
    };
    superblock.create_as(volume, FRESH)?;
    volume.sync_dir()?;
    volume.rename(FRESH, superblock::FILE)?;
    volume.sync_dir()
}
