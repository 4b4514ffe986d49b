//! The catalog: which tables there are. One tree, one entry a table, under the table's id.
//!
//! So that create, drop, rename and truncate each are one change of one entry, and thus whole or
//! nothing after a crash. The names are kept in memory as well; they are few beside the data.
//!
//! Value: `name length u16 · name · indexes u16 · for each: space u32 · unique u8 · name length u16 · name ·
//! then the properties`. A definition that is too long for an entry stands in entries of its own (`definition`).
//! Table and space ids come from one counter in the superblock and are never
//! reused. Spaces that no entry names are leftovers of a crash and are dropped at start.

pub mod definition;

use crate::btree::Tree;
use crate::checkpoint::Checkpointer;
use crate::error::{Error, Result};
use crate::table::{IndexDef, Table, TableDef};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_tier::page::SpaceId;
use terrace_tier::pages::Pages;
use terrace_tier::pool::Access;
use terrace_tier::redo::Urgency;

#[derive(Clone)]
pub(crate) struct Known {
    id: u32,
    spaces: Vec<SpaceId>,
    def: TableDef,
    open: Option<Arc<Table>>,
    /// When it was last opened, by the catalog's count.
    used: u64,
}

impl Known {
    /// Open, and nobody has it but the catalog.
    fn is_unused(&self) -> bool {
        self.open.as_ref().is_some_and(|table| Arc::strong_count(table) == 1 && table.is_idle())
    }
}

/// The tables by name, and their names by id.
#[derive(Default)]
struct Tables {
    by_name: HashMap<String, Known>,
    names: HashMap<u32, String>,
}

impl Tables {
    fn insert(&mut self, name: &str, known: Known) {
        self.names.insert(known.id, name.to_string());
        self.by_name.insert(name.to_string(), known);
    }
    fn remove(&mut self, name: &str) -> Option<Known> {
        let known = self.by_name.remove(name)?;
        self.names.remove(&known.id);
        Some(known)
    }
}

pub struct Catalog {
    pages: Arc<Pages>,
    tree: Tree,
    checkpointer: Arc<Checkpointer>,
    known: Mutex<Tables>,
    /// One definition change at a time.
    changing: Mutex<()>,
    /// Ids reserved in the superblock and not given out: next, end.
    ids: Mutex<(u32, u32)>,
    /// Openings so far.
    openings: AtomicU64,
}

const IDS: u32 = 64;

/// One open tree for each eight frames, because each keeps two pages in memory: a quarter of the frames. Beyond it,
/// tables that nobody uses are closed.
const FRAMES_A_TREE: usize = 8;

pub(crate) fn encode(name: &str, known: &Known) -> Vec<u8> {
    let mut out = Vec::new();
    let text = |out: &mut Vec<u8>, t: &str| {
        out.extend_from_slice(&(t.len() as u16).to_le_bytes());
        out.extend_from_slice(t.as_bytes());
    };
    text(&mut out, name);
    out.extend_from_slice(&(known.spaces.len() as u16).to_le_bytes());
    for (space, index) in known.spaces.iter().zip(&known.def.indexes) {
        out.extend_from_slice(&space.0.to_le_bytes());
        out.push(u8::from(index.unique));
        text(&mut out, &index.name);
    }
    out.extend_from_slice(&known.def.properties);
    out
}

pub(crate) fn decode(id: u32, bytes: &[u8]) -> Option<(String, Known)> {
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
    let (mut spaces, mut indexes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        spaces.push(SpaceId(u32::from_le_bytes(take(4)?.try_into().ok()?)));
        let unique = match take(1)?[0] {
            0 => false,
            1 => true,
            _ => return None,
        };
        let len = u16_of(take(2)?);
        indexes.push(IndexDef { name: String::from_utf8(take(len)?.to_vec()).ok()?, unique });
    }
    if indexes.is_empty() || spaces.iter().any(|space| *space < SpaceId::FIRST_USER) {
        return None;
    }
    let def = TableDef { indexes, properties: rest.to_vec() };
    Some((name, Known { id, spaces, def, open: None, used: 0 }))
}

/// A table as its entry in the catalog says.
#[derive(Clone, Debug)]
pub struct Listed {
    pub id: u32,
    pub name: String,
    /// The trees, the primary one first.
    pub indexes: Vec<(SpaceId, IndexDef)>,
}

/// Reads a table's definition, without opening anything. None: it cannot be read.
pub fn listed(id: u32, value: &[u8]) -> Option<Listed> {
    let (name, known) = decode(id, value)?;
    Some(Listed { id, name, indexes: known.spaces.into_iter().zip(known.def.indexes).collect() })
}

impl Catalog {
    pub fn create(pages: &Arc<Pages>) -> Result<()> {
        Tree::create(pages, SpaceId::CATALOG, Urgency::Normal)?;
        Ok(())
    }

    pub fn open(pages: &Arc<Pages>, checkpointer: Arc<Checkpointer>) -> Result<Catalog> {
        let tree = Tree::open(pages, SpaceId::CATALOG)?;
        let next = checkpointer.superblock().spaces;
        let mut known = Tables::default();
        let mut taken = hashbrown::HashSet::new();
        let mut entries = definition::Entries::default();
        let report = tree.check(&mut |key, value| entries.add(key, value))?;
        if let Some(fault) = report.faults.first() {
            return Err(Error::Corrupt(format!("the catalog: {fault}")));
        }
        let (definitions, left) = entries.put_together();
        for (id, value) in definitions {
            // Ids come from one counter and name one thing each.
            let mut is_new = |id: u32| id < next && taken.insert(id);
            match value.and_then(|value| decode(id, &value)) {
                Some((name, one))
                    if is_new(one.id)
                        && one.spaces.iter().all(|s| is_new(s.0))
                        && !known.by_name.contains_key(&name) =>
                {
                    known.insert(&name, one);
                }
                _ => return Err(Error::Corrupt(format!("the catalog's entry of table {id} cannot be read"))),
            }
        }
        for key in left {
            tree.remove(&key)?;
        }
        Ok(Catalog {
            pages: pages.clone(),
            tree,
            checkpointer,
            known: Mutex::new(known),
            changing: Mutex::new(()),
            ids: Mutex::new((next, next)),
            openings: AtomicU64::new(0),
        })
    }

    /// Every space that a table has.
    pub fn spaces(&self) -> hashbrown::HashSet<SpaceId> {
        self.known.lock().by_name.values().flat_map(|k| k.spaces.iter().copied()).collect()
    }
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.known.lock().by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }
    /// What the front keeps of the table, without opening it. None: there is no such table.
    pub fn properties(&self, name: &str) -> Option<Vec<u8>> {
        self.known.lock().by_name.get(name).map(|known| known.def.properties.clone())
    }
    /// Space, table, index of every tree.
    pub fn list(&self) -> Vec<(SpaceId, String, String)> {
        let known = self.known.lock();
        let mut all: Vec<_> = known
            .by_name
            .iter()
            .flat_map(|(name, k)| {
                k.spaces.iter().zip(&k.def.indexes).map(|(s, i)| (*s, name.clone(), i.name.clone()))
            })
            .collect();
        all.sort_unstable();
        all
    }

    fn take_id(&self) -> Result<u32> {
        let mut ids = self.ids.lock();
        if ids.0 == ids.1 {
            let end =
                ids.1.checked_add(IDS).ok_or_else(|| Error::Full("there are no more table ids".into()))?;
            self.checkpointer.write_both(|s| s.spaces = s.spaces.max(end))?;
            ids.1 = end;
        }
        ids.0 += 1;
        Ok(ids.0 - 1)
    }

    fn write(&self, name: &str, known: &Known) -> Result<()> {
        let value = encode(name, known);
        let old = self.tree.get(&known.id.to_be_bytes(), Access::Internal, definition::parts_of)?;
        if value.len() <= definition::ENTRY_MAX {
            self.tree.put(&known.id.to_be_bytes(), &value)?;
        } else {
            // The parts first: the entry of the table's id, put last, makes them the table's.
            let parts = definition::Parts {
                generation: self.take_id()?,
                count: value.len().div_ceil(definition::ENTRY_MAX),
            };
            if parts.count > usize::from(u16::MAX) {
                let max = usize::from(u16::MAX) * definition::ENTRY_MAX;
                return Err(Error::TooLarge { what: "a table definition", len: value.len(), max });
            }
            for (key, part) in parts.keys(known.id).zip(value.chunks(definition::ENTRY_MAX)) {
                self.tree.put(&key, part)?;
            }
            self.tree.put(&known.id.to_be_bytes(), &parts.encode())?;
        }
        self.remove_parts(known.id, old)?;
        self.durable()
    }

    /// Removes entries that the table's own no longer names. What a crash leaves of them the next start removes.
    fn remove_parts(&self, id: u32, parts: Option<definition::Parts>) -> Result<()> {
        for key in parts.iter().flat_map(|parts| parts.keys(id)) {
            self.tree.remove(&key)?;
        }
        Ok(())
    }

    fn durable(&self) -> Result<()> {
        if crate::planted::CATALOG_NOT_WAITED.on() {
            return Ok(());
        }
        let redo = self.pages.redo();
        Ok(redo.make_durable(redo.appended())?)
    }

    /// Writes the row counts of the tables that are open, for a clean shutdown. They are about right without it, so
    /// the first failure ends it and is nobody's concern.
    pub fn save_rows(&self) {
        let open: Vec<Arc<Table>> =
            self.known.lock().by_name.values().filter_map(|k| k.open.clone()).collect();
        let _ = open.iter().try_for_each(|table| table.save_rows());
    }

    fn make_trees(&self, count: usize) -> Result<(Vec<SpaceId>, Vec<Arc<Tree>>)> {
        let (mut spaces, mut trees) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let space = SpaceId(self.take_id()?);
            trees.push(Arc::new(Tree::create(&self.pages, space, Urgency::Normal)?));
            spaces.push(space);
        }
        Ok((spaces, trees))
    }

    pub fn create_table(&self, name: &str, def: &TableDef) -> Result<Arc<Table>> {
        if def.indexes.is_empty() || name.len() > 1000 {
            return Err(Error::Invalid(format!("table {name}: no primary index, or the name is too long")));
        }
        let _one = self.changing.lock();
        if self.known.lock().by_name.contains_key(name) {
            return Err(Error::Exists(format!("table {name}")));
        }
        if crate::planted::SPACE_ID_REUSED.on() {
            let top = self.spaces().iter().map(|space| space.0 + 1).max().unwrap_or(SpaceId::FIRST_USER.0);
            *self.ids.lock() = (top, top);
        }
        self.close_unused(def.indexes.len());
        let id = self.take_id()?;
        let (spaces, trees) = self.make_trees(def.indexes.len())?;
        let table = Arc::new(Table::new(id, name.to_string(), def.clone(), trees));
        let known = Known { id, spaces, def: def.clone(), open: Some(table.clone()), used: self.opening() };
        self.write(name, &known)?;
        self.known.lock().insert(name, known);
        Ok(table)
    }

    pub fn open_table(&self, name: &str) -> Result<Arc<Table>> {
        let known = self.known.lock().by_name.get(name).cloned();
        let Some(known) = known else { return Err(Error::Absent(format!("table {name}"))) };
        if let Some(table) = known.open {
            return Ok(table);
        }
        if let Some(_one) = self.changing.try_lock() {
            self.close_unused(known.spaces.len());
        }
        let trees: Vec<Arc<Tree>> =
            known.spaces.iter().map(|s| Ok(Arc::new(Tree::open(&self.pages, *s)?))).collect::<Result<_>>()?;
        let mut all = self.known.lock();
        let Some(entry) = all.by_name.get_mut(name) else {
            return Err(Error::Absent(format!("table {name}")));
        };
        entry.used = self.opening();
        let table = entry
            .open
            .get_or_insert_with(|| Arc::new(Table::new(known.id, name.to_string(), known.def, trees)));
        Ok(table.clone())
    }

    fn opening(&self) -> u64 {
        self.openings.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes room for so many trees more: closes tables that nobody uses, those opened longest ago first, until open
    /// trees keep no more than their share of the frames. The caller holds `changing`: no space is dropped meanwhile.
    fn close_unused(&self, more: usize) {
        let limit = (self.pages.pool().frames() / FRAMES_A_TREE).max(1);
        let mut closed = Vec::new();
        {
            let mut all = self.known.lock();
            let mut trees = more
                + all.by_name.values().filter(|k| k.open.is_some()).map(|k| k.spaces.len()).sum::<usize>();
            if trees <= limit {
                return;
            }
            let mut unused: Vec<_> = all
                .by_name
                .iter()
                .filter(|(_, k)| k.is_unused())
                .map(|(name, k)| (k.used, name.clone()))
                .collect();
            unused.sort_unstable();
            for (_, name) in unused {
                // Some more than needed, so that not each opening comes here.
                if trees <= limit - limit / 4 {
                    break;
                }
                if let Some(known) = all.by_name.get_mut(&name) {
                    trees -= known.spaces.len().min(trees);
                    closed.extend(known.open.take());
                }
            }
        }
        for table in closed {
            // Without it the count of rows is off by what came since the last structure change, as after a crash.
            let _ = table.save_rows();
        }
    }

    /// The table with this id, if there is still one.
    pub fn by_id(&self, id: u32) -> Result<Option<Arc<Table>>> {
        let (name, open) = {
            let known = self.known.lock();
            let Some(name) = known.names.get(&id) else { return Ok(None) };
            (name.clone(), known.by_name.get(name).and_then(|k| k.open.clone()))
        };
        match open.map_or_else(|| self.open_table(&name), Ok) {
            Ok(table) => Ok(Some(table)),
            Err(Error::Absent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the table's entry, durably. Returns the spaces that nobody names any more.
    pub fn drop_table(&self, name: &str) -> Result<Vec<SpaceId>> {
        let _one = self.changing.lock();
        let Some((id, spaces)) = self.known.lock().by_name.get(name).map(|k| (k.id, k.spaces.clone())) else {
            return Err(Error::Absent(format!("table {name}")));
        };
        let parts = self.tree.get(&id.to_be_bytes(), Access::Internal, definition::parts_of)?;
        self.tree.remove(&id.to_be_bytes())?;
        self.remove_parts(id, parts)?;
        self.durable()?;
        self.known.lock().remove(name);
        Ok(spaces)
    }

    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let _one = self.changing.lock();
        let known = {
            let all = self.known.lock();
            if all.by_name.contains_key(to) {
                return Err(Error::Exists(format!("table {to}")));
            }
            all.by_name.get(from).cloned().ok_or_else(|| Error::Absent(format!("table {from}")))?
        };
        self.write(to, &known)?;
        let mut all = self.known.lock();
        if let Some(known) = all.remove(from) {
            if let Some(table) = &known.open {
                table.set_name(to);
            }
            all.insert(to, known);
        }
        Ok(())
    }

    /// Gives the table empty trees. Returns the spaces that nobody names any more.
    pub fn truncate_table(&self, name: &str) -> Result<Vec<SpaceId>> {
        let table = self.open_table(name)?;
        let _one = self.changing.lock();
        let known = self.known.lock().by_name.get(name).cloned();
        let Some(mut known) = known else { return Err(Error::Absent(format!("table {name}"))) };
        let (spaces, trees) = self.make_trees(known.spaces.len())?;
        if !crate::planted::SERIALS_ANEW.on() {
            trees[0].space().follow_serials(table.tree(0)?.space())?;
        }
        let old = std::mem::replace(&mut known.spaces, spaces.clone());
        self.write(name, &known)?;
        drop(table.replace_trees(trees));
        if let Some(entry) = self.known.lock().by_name.get_mut(name) {
            entry.spaces = spaces;
        }
        Ok(old)
    }
}

/// Definitions as they are stored: for the fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let of = |names: &[&str]| {
        let index = |name: &&str| IndexDef { name: name.to_string(), unique: name.len() % 2 == 1 };
        let indexes: Vec<IndexDef> = names.iter().map(index).collect();
        let spaces = (16..).take(indexes.len()).map(SpaceId).collect();
        let def = TableDef { indexes, properties: b"properties".to_vec() };
        encode("db/table", &Known { id: 9, spaces, def, open: None, used: 0 })
    };
    vec![of(&["PRIMARY"]), of(&["PRIMARY", "a", "other"])]
}
