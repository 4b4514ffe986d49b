//! The catalog: which tables there are. One tree, one entry a table, under the table's id.
//!
//! So that create, drop, rename and truncate each are one change of one entry, and thus whole or
//! nothing after a crash. The names are kept in memory as well; they are few beside the data.
//!
//! Value: `name length u16 · name · indexes u16 · for each: space u32 · unique u8 · name length u16 · name ·
//! then the properties`. Table and space ids come from one counter in the superblock and are never
//! reused. Spaces that no entry names are leftovers of a crash and are dropped at start.

use crate::btree::Tree;
use crate::checkpoint::Checkpointer;
use crate::error::{Error, Result};
use crate::table::{IndexDef, Table, TableDef};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_tier::page::SpaceId;
use terrace_tier::pages::Pages;
use terrace_tier::redo::Urgency;

#[derive(Clone)]
pub(crate) struct Known {
    id: u32,
    spaces: Vec<SpaceId>,
    def: TableDef,
    open: Option<Arc<Table>>,
}

pub struct Catalog {
    pages: Arc<Pages>,
    tree: Tree,
    checkpointer: Arc<Checkpointer>,
    known: Mutex<HashMap<String, Known>>,
    /// One definition change at a time.
    changing: Mutex<()>,
    /// Ids reserved in the superblock and not given out: next, end.
    ids: Mutex<(u32, u32)>,
}

const IDS: u32 = 64;

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
    Some((name, Known { id, spaces, def, open: None }))
}

/// A table as its entry in the catalog says.
#[derive(Clone, Debug)]
pub struct Listed {
    pub id: u32,
    pub name: String,
    /// The trees, the primary one first.
    pub indexes: Vec<(SpaceId, IndexDef)>,
}

/// Reads an entry of the catalog's tree, without opening anything. None: it cannot be read.
pub fn listed(key: &[u8], value: &[u8]) -> Option<Listed> {
    let id = key.try_into().map(u32::from_be_bytes).ok()?;
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
        let mut known: HashMap<String, Known> = HashMap::new();
        let mut taken = hashbrown::HashSet::new();
        let mut bad = None;
        let report = tree.check(&mut |key, value| {
            let id = key.try_into().map(u32::from_be_bytes).ok();
            // Ids come from one counter and name one thing each.
            let mut is_new = |id: u32| id < next && taken.insert(id);
            match id.and_then(|id| decode(id, value)) {
                Some((name, one))
                    if is_new(one.id) && one.spaces.iter().all(|s| is_new(s.0)) && !known.contains_key(&name) =>
                {
                    known.insert(name, one);
                }
                _ => bad = Some(key.to_vec()),
            }
        })?;
        if let Some(fault) = report.faults.first() {
            return Err(Error::Corrupt(format!("the catalog: {fault}")));
        }
        if let Some(key) = bad {
            return Err(Error::Corrupt(format!("the catalog's entry {key:02x?} cannot be read")));
        }
        Ok(Catalog {
            pages: pages.clone(),
            tree,
            checkpointer,
            known: Mutex::new(known),
            changing: Mutex::new(()),
            ids: Mutex::new((next, next)),
        })
    }

    /// Every space that a table has.
    pub fn spaces(&self) -> hashbrown::HashSet<SpaceId> {
        self.known.lock().values().flat_map(|k| k.spaces.iter().copied()).collect()
    }
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.known.lock().keys().cloned().collect();
        names.sort_unstable();
        names
    }
    /// Space, table, index of every tree.
    pub fn list(&self) -> Vec<(SpaceId, String, String)> {
        let known = self.known.lock();
        let mut all: Vec<_> = known
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
            let end = ids.1.checked_add(IDS).ok_or_else(|| Error::Full("there are no more table ids".into()))?;
            self.checkpointer.write_both(|s| s.spaces = s.spaces.max(end))?;
            ids.1 = end;
        }
        ids.0 += 1;
        Ok(ids.0 - 1)
    }

    fn write(&self, name: &str, known: &Known) -> Result<()> {
        let value = encode(name, known);
        if value.len() > crate::btree::MAX_INLINE_VALUE {
            return Err(Error::TooLarge { what: "a table definition", len: value.len(), max: crate::btree::MAX_INLINE_VALUE });
        }
        self.tree.put(&known.id.to_be_bytes(), &value)?;
        self.durable()
    }

    fn durable(&self) -> Result<()> {
        if crate::planted::CATALOG_NOT_WAITED.on() {
            return Ok(());
        }
        let redo = self.pages.redo();
        Ok(redo.make_durable(redo.appended())?)
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
        if self.known.lock().contains_key(name) {
            return Err(Error::Exists(format!("table {name}")));
        }
        let id = self.take_id()?;
        let (spaces, trees) = self.make_trees(def.indexes.len())?;
        let table = Arc::new(Table::new(id, name.to_string(), def.clone(), trees));
        let known = Known { id, spaces, def: def.clone(), open: Some(table.clone()) };
        self.write(name, &known)?;
        self.known.lock().insert(name.to_string(), known);
        Ok(table)
    }

    pub fn open_table(&self, name: &str) -> Result<Arc<Table>> {
        let known = self.known.lock().get(name).cloned();
        let Some(known) = known else { return Err(Error::Absent(format!("table {name}"))) };
        if let Some(table) = known.open {
            return Ok(table);
        }
        let trees: Vec<Arc<Tree>> =
            known.spaces.iter().map(|s| Ok(Arc::new(Tree::open(&self.pages, *s)?))).collect::<Result<_>>()?;
        let mut all = self.known.lock();
        let Some(entry) = all.get_mut(name) else { return Err(Error::Absent(format!("table {name}"))) };
        let table = entry
            .open
            .get_or_insert_with(|| Arc::new(Table::new(known.id, name.to_string(), known.def, trees)));
        Ok(table.clone())
    }

    /// The table with this id, if there is still one.
    pub fn by_id(&self, id: u32) -> Result<Option<Arc<Table>>> {
        let name = self.known.lock().iter().find(|(_, k)| k.id == id).map(|(name, k)| (name.clone(), k.open.clone()));
        match name {
            None => Ok(None),
            Some((_, Some(table))) => Ok(Some(table)),
            Some((name, None)) => match self.open_table(&name) {
                Ok(table) => Ok(Some(table)),
                Err(Error::Absent(_)) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes the row counts of the tables that were open to their headers, for a clean shutdown.
    pub fn save_rows(&self) -> Result<()> {
        let open: Vec<_> = self.known.lock().values().filter_map(|k| k.open.clone()).collect();
        for tree in open.iter().flat_map(|table| table.trees().to_vec()) {
            tree.save_rows(Urgency::Normal)?;
        }
        Ok(())
    }

    /// Removes the table's entry, durably. Returns the spaces that nobody names any more.
    pub fn drop_table(&self, name: &str) -> Result<Vec<SpaceId>> {
        let _one = self.changing.lock();
        let Some((id, spaces)) = self.known.lock().get(name).map(|k| (k.id, k.spaces.clone())) else {
            return Err(Error::Absent(format!("table {name}")));
        };
        self.tree.remove(&id.to_be_bytes())?;
        self.durable()?;
        self.known.lock().remove(name);
        Ok(spaces)
    }

    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let _one = self.changing.lock();
        let known = {
            let all = self.known.lock();
            if all.contains_key(to) {
                return Err(Error::Exists(format!("table {to}")));
            }
            all.get(from).cloned().ok_or_else(|| Error::Absent(format!("table {from}")))?
        };
        self.write(to, &known)?;
        let mut all = self.known.lock();
        if let Some(known) = all.remove(from) {
            if let Some(table) = &known.open {
                table.set_name(to);
            }
            all.insert(to.to_string(), known);
        }
        Ok(())
    }

    /// Gives the table empty trees. Returns the spaces that nobody names any more.
    pub fn truncate_table(&self, name: &str) -> Result<Vec<SpaceId>> {
        let table = self.open_table(name)?;
        let _one = self.changing.lock();
        let known = self.known.lock().get(name).cloned();
        let Some(mut known) = known else { return Err(Error::Absent(format!("table {name}"))) };
        let (spaces, trees) = self.make_trees(known.spaces.len())?;
        let old = std::mem::replace(&mut known.spaces, spaces.clone());
        self.write(name, &known)?;
        drop(table.replace_trees(trees));
        if let Some(entry) = self.known.lock().get_mut(name) {
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
        encode("db/table", &Known { id: 9, spaces, def, open: None })
    };
    vec![of(&["PRIMARY"]), of(&["PRIMARY", "a", "other"])]
}
