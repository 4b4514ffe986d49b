//! Definitions longer than an entry of the catalog's tree.
//!
//! The entry of the table's id (4 bytes, big-endian) then holds `FFFF u16 · generation u32 · parts u16` in place of the
//! definition, which lies in entries with the keys `id · generation · part number u16`, all big-endian. A generation is
//! a number of the counter of table ids: a changed definition is put beside the old one, and one put of the table's own
//! entry changes from one to the other. Parts that no table names are leftovers of a crash.
//!
//! Definitions of several tables, or a definition and its table's rules (`rules`), change together through the entry of id 0, the
//! group: `1 u8 · for each table: id u32 · length u32 · its new definition`; with rules `2 u8 · for each table: id u32 · length u32 · its
//! new definition · length u32 · its new rules`, which are empty where it has none. While it is there, what it says of a table is
//! what holds; then each table gets its own entries, and the group goes.

use hashbrown::HashMap;

/// What one entry holds at most.
pub const ENTRY_MAX: usize = crate::tree::MAX_INLINE_VALUE;

/// No definition starts so: a name is not that long.
const MARK: [u8; 2] = [0xff; 2];
const PART_KEY: usize = 4 + 4 + 2;

/// Where a long definition stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    pub generation: u32,
    pub count: usize,
}

impl Parts {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&(self.count as u16).to_le_bytes());
        out
    }

    pub fn keys(&self, id: u32) -> impl Iterator<Item = Vec<u8>> + use<> {
        let generation = self.generation;
        (0..self.count as u16).map(move |part| {
            let mut key = id.to_be_bytes().to_vec();
            key.extend_from_slice(&generation.to_be_bytes());
            key.extend_from_slice(&part.to_be_bytes());
            key
        })
    }
}

/// The parts that a table's own entry names; None if it holds the definition itself.
pub fn parts_of(value: Option<&[u8]>) -> Option<Parts> {
    let rest = value?.strip_prefix(&MARK)?;
    let (generation, count) = rest.split_first_chunk::<4>()?;
    let count = u16::from_le_bytes(count.try_into().ok()?);
    Some(Parts { generation: u32::from_le_bytes(*generation), count: usize::from(count) })
}

/// The id under which the group stands: no table has it.
pub const GROUP: u32 = 0;
const GROUP_VERSION: u8 = 1;
/// As version 1, and rules beside each definition. Written where they change.
const GROUP_WITH_RULES: u8 = 2;

/// What the group says of a table.
pub struct Member {
    pub id: u32,
    pub definition: Vec<u8>,
    /// As they are stored, empty if it has none. None: they are not changed.
    pub rules: Option<Vec<u8>>,
}

/// The group's value. All members have rules, or none has.
pub fn encode_group(all: &[Member]) -> Vec<u8> {
    let with_rules = all.iter().any(|member| member.rules.is_some());
    let mut out = vec![if with_rules { GROUP_WITH_RULES } else { GROUP_VERSION }];
    let text = |out: &mut Vec<u8>, value: &[u8]| {
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(value);
    };
    for member in all {
        out.extend_from_slice(&member.id.to_le_bytes());
        text(&mut out, &member.definition);
        if with_rules {
            text(&mut out, member.rules.as_deref().unwrap_or_default());
        }
    }
    out
}

fn decode_group(bytes: &[u8]) -> Option<Vec<Member>> {
    let (version, mut rest) = bytes.split_first()?;
    let with_rules = *version == GROUP_WITH_RULES;
    if !with_rules && *version != GROUP_VERSION {
        return None;
    }
    let text = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (value, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        *rest = after;
        Some(value.to_vec())
    };
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (id, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let definition = text(&mut rest)?;
        let rules = if with_rules { Some(text(&mut rest)?) } else { None };
        all.push(Member { id: u32::from_le_bytes(*id), definition, rules });
    }
    Some(all)
}

/// Ids with their definitions; None: it cannot be read.
pub type Definitions = Vec<(u32, Option<Vec<u8>>)>;

/// What the entries come to.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Whole {
    pub definitions: Definitions,
    /// The rules of tables, as they are stored (`rules`).
    pub rules: Vec<(u32, Vec<u8>)>,
    /// The keys of parts that no table names.
    pub left: Vec<Vec<u8>>,
    /// The tables of which the group says what holds.
    pub group: Vec<u32>,
}

/// The catalog's entries, as a walk through its tree meets them.
#[derive(Default)]
pub struct Entries {
    tables: Definitions,
    parts: HashMap<Vec<u8>, Vec<u8>>,
    rules: Vec<(u32, Vec<u8>)>,
}

impl Entries {
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Ok(id) = key.try_into() {
            self.tables.push((u32::from_be_bytes(id), Some(value.to_vec())));
        } else if let Some(id) = super::rules::table_of(key) {
            self.rules.push((id, value.to_vec()));
        } else if key.len() == PART_KEY {
            self.parts.insert(key.to_vec(), value.to_vec());
        } else {
            self.tables.push((0, None)); // no build writes such a key
        }
    }

    /// The definition of each table, None if it or a part of it cannot be read, and what is said of it.
    pub fn put_together(mut self) -> Whole {
        let mut whole = Vec::new();
        for (id, value) in self.tables {
            let Some(parts) = parts_of(value.as_deref()) else {
                whole.push((id, value));
                continue;
            };
            let found: Option<Vec<Vec<u8>>> = parts.keys(id).map(|key| self.parts.remove(&key)).collect();
            whole.push((id, found.map(|parts| parts.concat())));
        }
        let mut left: Vec<_> = self.parts.into_keys().collect();
        left.sort_unstable();
        let mut changed = Vec::new();
        if let Some(at) = whole.iter().position(|(id, value)| *id == GROUP && value.is_some()) {
            let group = whole[at].1.as_deref().and_then(decode_group);
            // One that cannot be read stays as what it is: an entry of no table.
            for Member { id, definition, rules } in group.into_iter().flatten() {
                let Some(table) = whole.iter_mut().find(|(table, _)| *table == id && id != GROUP) else {
                    return Whole { definitions: vec![(GROUP, None)], left, ..Whole::default() };
                };
                table.1 = Some(definition);
                if let Some(rules) = rules {
                    self.rules.retain(|(table, _)| *table != id);
                    self.rules.extend((!rules.is_empty()).then_some((id, rules)));
                }
                changed.push(id);
            }
            if changed.is_empty() {
                whole[at].1 = None;
            } else {
                whole.remove(at);
            }
        }
        Whole { definitions: whole, rules: self.rules, left, group: changed }
    }
}

#[cfg(test)]
mod tests;
