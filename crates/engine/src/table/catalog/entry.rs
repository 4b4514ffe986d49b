//! A table's definition, as the catalog stores it.
//!
//! `name length u16 · name · indexes u16 · for each: space u32 · flags u8 · its number u16, if flagged so · its codec u8, if
//! flagged so · name length u16 · name · then the properties`. Flags: 1 unique, 2 with a number, 4 with a codec: the
//! table's own choice of how pages are compressed in objects (0 not at all, 1 lz4, 2 zstd), which stands at its first index. An index's number is what undo calls it, for as
//! long as it lives; without one it is its place, as in every table whose indexes were never added or dropped.

use super::KnownTable;
use crate::table::{IndexDef, TableDef};
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::page::SpaceId;

const UNIQUE: u8 = 1;
const NUMBERED: u8 = 2;
const CODEC: u8 = 4;

pub(crate) fn encode(name: &str, known: &KnownTable) -> Vec<u8> {
    let mut out = Vec::new();
    let text = |out: &mut Vec<u8>, t: &str| {
        out.extend_from_slice(&(t.len() as u16).to_le_bytes());
        out.extend_from_slice(t.as_bytes());
    };
    text(&mut out, name);
    out.extend_from_slice(&(known.spaces.len() as u16).to_le_bytes());
    for (place, (space, index)) in known.spaces.iter().zip(&known.def.indexes).enumerate() {
        out.extend_from_slice(&space.0.to_le_bytes());
        let number = known.numbers[place];
        let numbered = usize::from(number) != place;
        let codec = known.codec.filter(|_| place == 0);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        out.push(flag(index.unique, UNIQUE) | flag(numbered, NUMBERED) | flag(codec.is_some(), CODEC));
        if numbered {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend(codec.map(|codec| codec as u8));
        text(&mut out, &index.name);
    }
    out.extend_from_slice(&known.def.properties);
    out
}

pub(crate) fn decode(id: u32, bytes: &[u8]) -> Option<(String, KnownTable)> {
    let mut rest = bytes;
    let mut take = |n: usize| -> Option<&[u8]> {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let u16_of = |b: &[u8]| usize::from(u16::from_le_bytes([b[0], b[1]]));
    let len = u16_of(take(2)?);
    let name = String::from_utf8(take(len)?.to_vec()).ok()?;
    let count = u16_of(take(2)?);
    let mut codec = None;
    let (mut spaces, mut numbers, mut indexes) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..count {
        spaces.push(SpaceId(u32::from_le_bytes(take(4)?.try_into().ok()?)));
        let flags = take(1)?[0];
        if flags & !(UNIQUE | NUMBERED | CODEC) != 0 || flags & CODEC != 0 && place != 0 {
            return None;
        }
        let unique = flags & UNIQUE != 0;
        let numbered = flags & NUMBERED != 0;
        let number = if numbered { u16_of(take(2)?) } else { place };
        // No caller numbers an index by its place, or gives another one the rows' number.
        if numbered && (number == place || place == 0) || number == 0 && place != 0 {
            return None;
        }
        let number = number as u16;
        if numbers.contains(&number) {
            return None;
        }
        numbers.push(number);
        if flags & CODEC != 0 {
            codec = Some(Codec::numbered(take(1)?[0])?);
        }
        let len = u16_of(take(2)?);
        indexes.push(IndexDef { name: String::from_utf8(take(len)?.to_vec()).ok()?, unique });
    }
    if indexes.is_empty() || spaces.iter().any(|space| *space < SpaceId::FIRST_USER) {
        return None;
    }
    let def = TableDef { indexes, properties: rest.to_vec() };
    let built = vec![0; spaces.len()];
    Some((name, KnownTable { id, spaces, numbers, built, def, codec, open: None, used: 0 }))
}

/// A table as its entry in the catalog says.
#[derive(Clone, Debug)]
pub struct Listed {
    pub id: u32,
    pub name: String,
    /// The trees, the primary one first.
    pub indexes: Vec<(SpaceId, IndexDef)>,
    /// What undo calls each.
    pub numbers: Vec<u16>,
    /// Kept for the caller, never looked at.
    pub properties: Vec<u8>,
}

/// Reads a table's definition, without opening anything. None: it cannot be read.
pub fn listed(id: u32, value: &[u8]) -> Option<Listed> {
    let (name, known) = decode(id, value)?;
    let TableDef { indexes, properties } = known.def;
    let indexes = known.spaces.into_iter().zip(indexes).collect();
    Some(Listed { id, name, indexes, numbers: known.numbers, properties })
}

/// Definitions as they are stored: for the fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let of = |names: &[&str]| {
        let index = |name: &&str| IndexDef { name: name.to_string(), unique: name.len() % 2 == 1 };
        let indexes: Vec<IndexDef> = names.iter().map(index).collect();
        let spaces = (16..).take(indexes.len()).map(SpaceId).collect();
        let numbers = (0..).take(indexes.len()).map(|n: u16| n * 2).collect();
        let def = TableDef { indexes, properties: b"properties".to_vec() };
        let codec = Some(Codec::Lz4).filter(|_| names.len() > 1);
        encode(
            "db/table",
            &KnownTable { id: 9, spaces, numbers, built: Vec::new(), def, codec, open: None, used: 0 },
        )
    };
    vec![of(&["PRIMARY"]), of(&["PRIMARY", "a", "other"])]
}
