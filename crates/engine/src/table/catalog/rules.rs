//! Rules of tables (quotas, limits, placement) as the catalog stores them: beside the definitions, because they change alone
//! and at any time.
//!
//! Key: the table's id, big-endian, and `R`. Value: `version u8 · minimum and cap of flash, of the object buffer · a second from flash, volume, object
//! store: requests, bytes (each u64) · placements u16 · for each: 1 keep, 2 none u8 · index name length u16 · name`. Without an
//! entry a table has no rules; one of a table that there is not is the leftover of a crash.
//!
//! A placement goes with the index's name, and with no name for the indexes that have none of their own.

use super::{Catalog, definition};
use crate::error::{Error, Result};
pub use terrace_tier::limits::quota::{Limit, Placement, Share, TableRule};
pub use terrace_tier::limits::write_policy::WritePolicy;
use terrace_tier::page::SpaceId;

const VERSION: u8 = 1;
/// As version 1, and at the end the write policy u8. Written where there is one.
const WITH_POLICY: u8 = 2;
/// As version 2, and behind the policy the limits of writes: as those of reads. Written where there is one.
const WITH_WRITES: u8 = 3;
const MARK: u8 = b'R';

/// What is said of a table and its indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRules {
    pub rule: TableRule,
    /// The table's: for its rows, and for every index that has none of its own.
    pub placement: Placement,
    /// Of indexes by name.
    pub indexes: Vec<(String, Placement)>,
}

impl TableRules {
    /// An index's. It counts before the table's.
    pub fn placement_of(&self, index: &str) -> Placement {
        self.indexes
            .iter()
            .find(|(name, _)| name == index)
            .map_or(self.placement, |(_, placement)| *placement)
    }

    /// What contradicts itself in a table with these indexes.
    pub fn faults(&self, indexes: &[String]) -> Vec<String> {
        let placements: Vec<Placement> = indexes.iter().map(|index| self.placement_of(index)).collect();
        self.rule.faults(&placements)
    }
}

pub(crate) fn key(id: u32) -> Vec<u8> {
    let mut key = id.to_be_bytes().to_vec();
    key.push(MARK);
    key
}

/// The table that an entry with this key speaks of, if it is one of rules.
pub(crate) fn table_of(key: &[u8]) -> Option<u32> {
    let (id, mark) = key.split_first_chunk::<4>()?;
    (mark == [MARK]).then(|| u32::from_be_bytes(*id))
}

fn number(placement: Placement) -> u8 {
    match placement {
        Placement::Default => 0,
        Placement::Keep => 1,
        Placement::None => 2,
    }
}

pub(crate) fn encode(rules: &TableRules) -> Vec<u8> {
    let TableRule { flash, buffer, flash_limit, volume_limit, object_limit, .. } = rules.rule;
    let TableRule { flash_writes, volume_writes, object_writes, write, .. } = rules.rule;
    let writes = [flash_writes, volume_writes, object_writes];
    let version = match (write != WritePolicy::Default, writes != [Limit::default(); 3]) {
        (_, true) => WITH_WRITES,
        (true, false) => WITH_POLICY,
        (false, false) => VERSION,
    };
    let mut out = vec![version];
    let limits = [flash_limit, volume_limit, object_limit];
    let numbers = [flash.min, flash.max, buffer.min, buffer.max]
        .into_iter()
        .chain(limits.into_iter().flat_map(|l| [l.requests, l.bytes]));
    numbers.for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    let table =
        std::iter::once(("", rules.placement)).filter(|(_, placement)| *placement != Placement::Default);
    let all: Vec<(&str, Placement)> =
        table.chain(rules.indexes.iter().map(|(name, placement)| (name.as_str(), *placement))).collect();
    out.extend_from_slice(&(all.len() as u16).to_le_bytes());
    for (name, placement) in all {
        out.push(number(placement));
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    out.extend((version >= WITH_POLICY).then_some(write as u8));
    if version == WITH_WRITES {
        writes
            .into_iter()
            .flat_map(|l| [l.requests, l.bytes])
            .for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    }
    out
}

/// As they are stored; empty if they say nothing.
pub(crate) fn stored(rules: &TableRules) -> Result<Vec<u8>> {
    if *rules == TableRules::default() {
        return Ok(Vec::new());
    }
    let value = encode(rules);
    if value.len() > definition::ENTRY_MAX {
        let (what, max) = ("what is said of the placement of a table's indexes", definition::ENTRY_MAX);
        return Err(Error::TooLarge { what, len: value.len(), max });
    }
    Ok(value)
}

/// None: it cannot be read.
pub(crate) fn decode(bytes: &[u8]) -> Option<TableRules> {
    let (version, mut rest) = bytes.split_first()?;
    let mut take = |n: usize| -> Option<&[u8]> {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let mut numbers = [0; 10];
    for number in &mut numbers {
        *number = u64::from_le_bytes(take(8)?.try_into().ok()?);
    }
    let [flash_min, flash_max, buffer_min, buffer_max, limits @ ..] = numbers;
    let limit = |at: usize| Limit { requests: limits[2 * at], bytes: limits[2 * at + 1] };
    let rule = TableRule {
        flash: Share { min: flash_min, max: flash_max },
        buffer: Share { min: buffer_min, max: buffer_max },
        flash_limit: limit(0),
        volume_limit: limit(1),
        object_limit: limit(2),
        ..TableRule::default()
    };
    let mut rules = TableRules { rule, ..TableRules::default() };
    let count = u16::from_le_bytes(take(2)?.try_into().ok()?);
    for _ in 0..count {
        let placement = match take(1)?[0] {
            0 => Placement::Default,
            1 => Placement::Keep,
            2 => Placement::None,
            _ => return None,
        };
        let len = u16::from_le_bytes(take(2)?.try_into().ok()?);
        let name = String::from_utf8(take(usize::from(len))?.to_vec()).ok()?;
        if name.is_empty() {
            rules.placement = placement;
        } else {
            rules.indexes.push((name, placement));
        }
    }
    match *version {
        VERSION => {}
        WITH_POLICY => {
            let policy = WritePolicy::numbered(take(1)?[0]);
            rules.rule.write = policy.filter(|policy| *policy != WritePolicy::Default)?;
        }
        WITH_WRITES => {
            rules.rule.write = WritePolicy::numbered(take(1)?[0])?;
            let TableRule { flash_writes, volume_writes, object_writes, .. } = &mut rules.rule;
            for limit in [flash_writes, volume_writes, object_writes] {
                for number in [&mut limit.requests, &mut limit.bytes] {
                    *number = u64::from_le_bytes(take(8)?.try_into().ok()?);
                }
            }
        }
        _ => return None,
    }
    rest.is_empty().then_some(rules)
}

/// What the tier needs: for each table that has rules its id, its rule, and its spaces with their placement.
pub(crate) type ForTier = Vec<(u32, TableRule, Vec<(SpaceId, Placement)>)>;

impl Catalog {
    /// The table's rules from now on. Durable when it returns.
    pub(crate) fn set_rules(&self, name: &str, rules: TableRules) -> Result<()> {
        let _one = self.change()?;
        let id = self.known.lock().by_name.get(name).map(|known| known.id);
        let Some(id) = id else { return Err(Error::Absent(format!("table {name}"))) };
        if rules == TableRules::default() {
            if self.rules.lock().remove(&id).is_some() {
                self.tree.remove(&key(id))?;
                self.durable()?;
            }
            return Ok(());
        }
        if self.rules.lock().get(&id) == Some(&rules) {
            return Ok(());
        }
        self.tree.put(&key(id), &stored(&rules)?)?;
        self.durable()?;
        self.rules.lock().insert(id, rules);
        Ok(())
    }

    /// None: it has none, or there is no such table.
    pub fn rules(&self, name: &str) -> Option<TableRules> {
        let id = self.known.lock().by_name.get(name)?.id;
        self.rules.lock().get(&id).cloned()
    }

    /// The names of a table's indexes.
    pub(crate) fn index_names(&self, name: &str) -> Vec<String> {
        let known = self.known.lock();
        let indexes = known.by_name.get(name).map(|known| known.def.indexes.iter());
        indexes.into_iter().flatten().map(|index| index.name.clone()).collect()
    }

    pub(crate) fn all_rules(&self) -> Vec<(String, TableRules)> {
        let known = self.known.lock();
        let rules = self.rules.lock();
        rules.iter().filter_map(|(id, rules)| Some((known.names.get(id)?.clone(), rules.clone()))).collect()
    }

    pub(crate) fn rules_for_tier(&self) -> ForTier {
        let known = self.known.lock();
        let rules = self.rules.lock();
        let of = |(id, rules): (&u32, &TableRules)| {
            let table = known.by_name.get(known.names.get(id)?)?;
            let spaces = table.spaces.iter().zip(table.def.indexes.iter().map(|index| &index.name));
            let coming =
                known.coming.iter().filter(|(of, ..)| of == id).map(|(_, space, index)| (space, index));
            let members =
                spaces.chain(coming).map(|(space, index)| (*space, rules.placement_of(index))).collect();
            Some((*id, rules.rule, members))
        };
        rules.iter().filter_map(of).collect()
    }

    /// A table is gone: what is left of its rules the next start removes.
    pub(super) fn forget_rules(&self, id: u32) {
        if self.rules.lock().remove(&id).is_some() {
            let _ = self.tree.remove(&key(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> TableRules {
        TableRules {
            rule: TableRule {
                flash: Share { min: 1 << 30, max: 2 << 30 },
                buffer: Share { min: 0, max: 3 << 30 },
                object_limit: Limit { requests: 100, bytes: 1 << 20 },
                ..TableRule::default()
            },
            placement: Placement::Keep,
            indexes: vec![("a".into(), Placement::None), ("b".into(), Placement::Default)],
        }
    }

    #[test]
    fn rules_come_back_as_they_were_and_broken_ones_do_not() {
        let dual = TableRule { write: WritePolicy::Dual, ..some().rule };
        let policy = TableRules { rule: dual, ..some() };
        let volume_writes = Limit { requests: 7, bytes: 1 << 33 };
        let writes = |write| TableRules { rule: TableRule { write, volume_writes, ..some().rule }, ..some() };
        for rules in [
            TableRules::default(),
            some(),
            TableRules { placement: Placement::None, ..some() },
            policy,
            writes(WritePolicy::Default),
            writes(WritePolicy::Clean),
        ] {
            let bytes = encode(&rules);
            assert_eq!(decode(&bytes), Some(rules));
            (0..bytes.len()).for_each(|len| assert_eq!(decode(&bytes[..len]), None, "{len} bytes"));
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(table_of(&key(77)), Some(77));
        assert!(table_of(&77u32.to_be_bytes()).is_none() && table_of(&[0; 10]).is_none());
    }

    #[test]
    fn a_rule_of_an_index_takes_precedence_over_its_tables() {
        let of = |index| some().placement_of(index);
        assert_eq!((of("a"), of("b"), of("PRIMARY")), (Placement::None, Placement::Default, Placement::Keep));
    }
}
