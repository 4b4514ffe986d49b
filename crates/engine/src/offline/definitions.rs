//! The server's definition files that it keeps in the instance, beside the rows (`mariadb/session/kept_definitions.h` has the format): read from an instance that
//! does not run, and compared with its tables.
//!
//! Definitions change a moment before or after the engine's tables, so those of a restored point may not be those of its tables. A table's properties
//! (`mariadb/ddl/properties.h`) have the version of its definition, and so has the definition itself: [`Definitions::troubles`] names each table for which they
//! differ or whose definition is missing.
//!
//! Not here: writing the files (`terrace_cli`).

use super::check::{self, Settled};
use super::instance::OfflineInstance;
use crate::error::{Error, Result};
use crate::row::Head;
use crate::tree::check as tree;
use std::collections::BTreeMap;

/// The engine's table that has them.
pub const TABLE: &str = "#definitions";
const VERSION: u8 = 1;
const HEAD: usize = 9;
const EXTENSIONS: [&str; 5] = ["frm", "par", "opt", "TRG", "TRN"];
const PARTITION: &str = "#P#";

/// What is kept.
#[derive(Default, Debug)]
pub struct Definitions {
    /// By the path from the data directory, `database/file`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Sentences about tables whose definition is missing or is not the one of their rows.
    pub troubles: Vec<String>,
}

/// Reads them as they are when unfinished transactions are rolled back. None: the instance keeps none.
pub fn read(look: &OfflineInstance) -> Result<Option<Definitions>> {
    let tables = check::read_tables(look);
    if !tables.whole {
        return Err(Error::Corrupt("the catalog cannot be read: terrace check says more".into()));
    }
    let Some(table) = tables.listed.iter().find(|one| one.name == TABLE) else { return Ok(None) };
    let undo = check::read_undo(look);
    let mut parts: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut bad = 0;
    let mut entry = |key: &[u8], value: &[u8]| {
        let older;
        let value = match undo.settle(look, table.id, 0, key, value) {
            Settled::AsIs => value,
            Settled::Older(old) => {
                older = old;
                &older
            }
            Settled::Nothing => return Vec::new(),
            Settled::Unknown => {
                bad += 1;
                return Vec::new();
            }
        };
        match Head::decode(value) {
            Some((head, _)) if head.deleted() => {}
            Some((head, rest)) if head.in_leaf() => _ = parts.insert(key.to_vec(), rest.to_vec()),
            _ => bad += 1,
        }
        Vec::new()
    };
    let wanted = tree::Wanted { entry: &mut entry, named: &[], all_named: false, building: Vec::new() };
    let found = tree::walk(look, table.indexes[0].0, wanted);
    if found.out_of_reach > 0 {
        return Err(Error::Unavailable(
            "definitions are in objects that cannot be read: is the object store named?".into(),
        ));
    }
    if found.incomplete || found.fault_count > 0 || bad > 0 {
        return Err(Error::Corrupt(format!(
            "the table of definitions is damaged ({} faults, {bad} entries): terrace check says more",
            found.fault_count
        )));
    }
    let mut definitions = Definitions { files: join(parts)?, troubles: Vec::new() };
    for table in &tables.listed {
        definitions.compare(&table.name, &table.properties);
    }
    definitions.troubles.dedup();
    Ok(Some(definitions))
}

/// The files of their parts, each checked.
fn join(parts: BTreeMap<Vec<u8>, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>> {
    let corrupt = |what: &str| Error::Corrupt(format!("a kept definition: {what}"));
    let mut files: BTreeMap<String, (usize, u32, Vec<u8>)> = BTreeMap::new();
    for (key, bytes) in parts {
        let (path, number) = split_key(&key).ok_or_else(|| corrupt("a key is none"))?;
        match (number, files.get_mut(&path)) {
            (0, None) => {
                let (head, rest) =
                    bytes.split_at_checked(HEAD).ok_or_else(|| corrupt("its head is cut off"))?;
                if head[0] != VERSION {
                    return Err(corrupt("its format is not known"));
                }
                let u32_at =
                    |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                files.insert(path, (u32_at(1) as usize, u32_at(5), rest.to_vec()));
            }
            // Parts come in the order of their numbers.
            (_, Some((.., whole))) if number > 0 => whole.extend_from_slice(&bytes),
            _ => return Err(corrupt("a first part is missing")),
        }
    }
    let mut whole = BTreeMap::new();
    for (path, (length, crc, bytes)) in files {
        if bytes.len() != length || crc32c::crc32c(&bytes) != crc {
            return Err(corrupt(&format!("{path} is not whole")));
        }
        whole.insert(path, bytes);
    }
    Ok(whole)
}

/// `path 0 number`. None also for a path that leads elsewhere than into a database of the data directory.
fn split_key(key: &[u8]) -> Option<(String, u32)> {
    let (path, number) = key.split_at_checked(key.len().checked_sub(5)?)?;
    let [0, number @ ..] = number else { return None };
    let path = String::from_utf8(path.to_vec()).ok()?;
    let (database, file) = path.split_once('/')?;
    let is_name =
        |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    let is_kind = file.rsplit_once('.').is_some_and(|(_, kind)| EXTENSIONS.contains(&kind));
    (is_name(database) && is_name(file) && is_kind)
        .then_some((path, u32::from_be_bytes(number.try_into().ok()?)))
}

/// What a table's properties say: the version of its definition; None: it is a temporary table, or they are of an unknown format.
fn version_in(properties: &[u8]) -> Option<&[u8]> {
    const TEMPORARY: u8 = 1;
    let (&[format, flags], rest) = properties.split_first_chunk::<2>()?;
    if flags & TEMPORARY != 0 {
        return None;
    }
    match format {
        1 => Some(rest),
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            rest.get(..usize::from(u16::from_le_bytes(*length)))
        }
        _ => None,
    }
}

/// The version in a table's definition: the first field behind the head of 64 bytes, of type 0.
fn defined_version(frm: &[u8]) -> Option<&[u8]> {
    match (frm.get(..2)?, frm.get(64..66)?) {
        ([0xfe, 1], [0, length]) => frm.get(66..66 + usize::from(*length)),
        _ => None,
    }
}

impl Definitions {
    /// Whether the table's definition is kept, and is the one of its rows.
    fn compare(&mut self, name: &str, properties: &[u8]) {
        // The engine's own tables, those that a statement drops, and its temporary names are of no definition.
        let Some((database, file)) = name.split_once('/') else { return };
        if database.starts_with('#') || file.starts_with("#sql") || file.contains('/') {
            return;
        }
        let Some(version) = version_in(properties) else { return };
        let table = name.split(PARTITION).next().unwrap_or(name);
        let is_partition = table.len() < name.len();
        let Some(frm) = self.files.get(&format!("{table}.frm")) else {
            return self.troubles.push(format!("{table} has rows, and no definition of it is kept"));
        };
        if is_partition && !self.files.contains_key(&format!("{table}.par")) {
            return self.troubles.push(format!("{table} has rows, and no list of its partitions is kept"));
        }
        // ALTER changes the definition of a partitioned table without its other partitions.
        let differs = defined_version(frm).is_some_and(|defined| !version.is_empty() && defined != version);
        if !is_partition && differs {
            self.troubles.push(format!(
                "the definition of {table} is not the one of its rows: it was changed at about this time"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
