//! The catalog: which tables there are. One tree, one entry a table, under the table's id.
//!
//! So that create, drop, rename and truncate each are one change of one entry, and thus whole or
//! nothing after a crash. The names are kept in memory as well; they are few beside the data.
//!
//! The value is a definition (`entry`); one that is too long for an entry stands in entries of its own (`definition`).
//! Table and space ids come from one counter in the superblock and are never
//! reused. Spaces that no entry names are leftovers of a crash and are dropped at start.

mod alter;
pub mod definition;
pub mod entry;
mod made;
mod redefine;
pub mod rules;
mod truncate;

use crate::error::{Error, Result};
use crate::row::Shortener;
use crate::storage::checkpoint::Checkpointer;
use crate::table::{Table, TableDef};
use crate::tree::Tree;
use crate::tree::space::{HEADER_PAGE, ROOT_PAGE};
pub use alter::TableOptions;
pub(crate) use alter::{Alter, Source};
pub use entry::{Listed, listed};
use entry::{decode, encode};
use hashbrown::{HashMap, HashSet};
pub use redefine::Redefined;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::lock::{Mutex, MutexGuard, Mutexes, lock_unless_cancelled};
use terrace_log::Urgency;
use terrace_tier::memory::pages::{Pages, Pin};
use terrace_tier::memory::pool::Access;
pub use terrace_tier::objects::object::codec::Codec;
use terrace_tier::objects::object::codec::Codecs;
use terrace_tier::page::{PAGE_SIZE, PageId, SpaceId};

#[derive(Clone)]
pub(crate) struct KnownTable {
    id: u32,
    spaces: Vec<SpaceId>,
    /// What undo calls each index.
    numbers: Vec<u16>,
    /// The oldest view that sees each index as it is; see `Table::is_usable`. Views do not outlive the process.
    built: Vec<u64>,
    def: TableDef,
    /// How its pages are compressed in objects; None: as the instance's are.
    codec: Option<Codec>,
    open: Option<Arc<Table>>,
    /// When it was last opened, by the catalog's count; 0: not since the start.
    used: u64,
}

impl KnownTable {
    /// Says how its pages are compressed from now on.
    fn tell(&self, codecs: &Codecs) {
        self.spaces.iter().for_each(|space| codecs.set(*space, self.codec));
    }

    /// How many hold it, if it is open, the catalog being one.
    fn holders(&self) -> usize {
        self.open.as_ref().map_or(0, |table| Arc::strong_count(table) + usize::from(!table.is_idle()))
    }
}

/// The tables by name, and their names by id.
#[derive(Default)]
struct Tables {
    by_name: HashMap<String, KnownTable>,
    names: HashMap<u32, String>,
    /// Trees that are built and will be indexes of a table: its id, and what they will be called.
    coming: Vec<(u32, SpaceId, String)>,
}

impl Tables {
    fn insert(&mut self, name: &str, known: KnownTable) {
        self.names.insert(known.id, name.to_string());
        self.by_name.insert(name.to_string(), known);
    }
    fn remove(&mut self, name: &str) -> Option<KnownTable> {
        let known = self.by_name.remove(name)?;
        self.names.remove(&known.id);
        Some(known)
    }
}

pub struct Catalog {
    pages: Arc<Pages>,
    tree: Tree,
    /// Its header and root, which stay in memory: a change of definitions needs them, whatever else is used.
    _kept: [Pin; 2],
    /// Keeps in the superblock which ids may be in use. None: all ends with the process (temporary tables).
    checkpointer: Option<Arc<Checkpointer>>,
    known: Mutex<Tables, { Mutexes::Catalog as u8 }>,
    /// One definition change at a time. Holds the tables whose definition is still the group's: they get their own entries
    /// before anything else changes.
    changing: Mutex<Vec<u32>, { Mutexes::Definitions as u8 }>,
    /// Ids reserved in the superblock and not given out: next, end.
    ids: Mutex<(u32, u32), { Mutexes::CatalogIds as u8 }>,
    /// Openings so far.
    openings: AtomicU64,
    /// By the table's id.
    rules: Mutex<HashMap<u32, rules::TableRules>, { Mutexes::Rules as u8 }>,
    codecs: Arc<Codecs>,
    shortener: Arc<Shortener>,
    /// Spaces that were made for a change that failed, and that nothing names.
    abandoned: Mutex<Vec<SpaceId>, { Mutexes::CatalogIds as u8 }>,
}

const IDS: u32 = 64;

/// The longest name of a table, in bytes.
const NAME_MAX: usize = 1000;

/// Open trees for each frame: an open tree takes no frame, but some memory of its own, at most a sixteenth of one. Beyond it, tables that
/// are not in use are closed.
const TREES_A_FRAME: usize = 1;
const _: () = assert!(size_of::<Tree>() * TREES_A_FRAME <= PAGE_SIZE / 16);

impl Catalog {
    pub fn create(pages: &Arc<Pages>, space: SpaceId) -> Result<()> {
        Tree::create(pages, space, Urgency::Normal)?;
        Ok(())
    }

    pub fn open(pages: &Arc<Pages>, checkpointer: Arc<Checkpointer>, codecs: Arc<Codecs>) -> Result<Catalog> {
        let next = checkpointer.superblock().spaces;
        Catalog::open_in(pages, SpaceId::CATALOG, next, Some(checkpointer), codecs)
    }

    /// The catalog of temporary tables, as it was just created.
    pub fn open_temporary(pages: &Arc<Pages>, codecs: Arc<Codecs>) -> Result<Catalog> {
        let first = SpaceId::FIRST_TEMPORARY_USER.0;
        Catalog::open_in(pages, SpaceId::TEMPORARY_CATALOG, first, None, codecs)
    }

    fn open_in(
        pages: &Arc<Pages>,
        space: SpaceId,
        next: u32,
        checkpointer: Option<Arc<Checkpointer>>,
        codecs: Arc<Codecs>,
    ) -> Result<Catalog> {
        let tree = Tree::open(pages, space)?;
        let keep = |page| pages.load_to_keep(PageId::new(space, page), Access::Normal);
        let kept = [keep(HEADER_PAGE)?, keep(ROOT_PAGE)?];
        let mut known = Tables::default();
        let mut taken = HashSet::new();
        let mut entries = definition::Entries::default();
        let report = tree.check(&mut |key, value| entries.add(key, value))?;
        if let Some(fault) = report.faults.first() {
            return Err(Error::Corrupt(format!("the catalog: {fault}")));
        }
        let definition::Whole { definitions, rules: stored, left, group } = entries.put_together();
        for (id, value) in definitions {
            // Ids come from one counter and name one thing each.
            let mut is_new = |id: u32| id < next && taken.insert(id);
            match value.and_then(|value| decode(id, &value)) {
                Some((name, one))
                    if is_new(one.id)
                        && one.spaces.iter().all(|s| is_new(s.0))
                        && !known.by_name.contains_key(&name) =>
                {
                    one.tell(&codecs);
                    known.insert(&name, one);
                }
                _ => return Err(Error::Corrupt(format!("the catalog's entry of table {id} cannot be read"))),
            }
        }
        for key in left {
            tree.remove(&key)?;
        }
        let mut rules = HashMap::new();
        for (id, value) in stored {
            if !known.names.contains_key(&id) {
                tree.remove(&rules::key(id))?;
                continue;
            }
            let unreadable = || Error::Corrupt(format!("the catalog's rules of table {id} cannot be read"));
            rules.insert(id, rules::decode(&value).ok_or_else(unreadable)?);
        }
        let catalog = Catalog {
            pages: pages.clone(),
            tree,
            _kept: kept,
            checkpointer,
            known: Mutex::new(known),
            changing: Mutex::new(group),
            ids: Mutex::new((next, next)),
            openings: AtomicU64::new(1),
            rules: Mutex::new(rules),
            codecs,
            abandoned: Mutex::default(),
            shortener: Arc::new(Shortener::new(Arc::default())),
        };
        // What a crash left to do; if it fails, the next change does it.
        drop(catalog.change());
        Ok(catalog)
    }

    /// Says below which number every view sees all transactions; for the caller that knows it to set.
    pub fn seen_by_all(&self) -> Arc<AtomicU64> {
        self.shortener.seen()
    }

    /// Every space that a table has.
    pub fn spaces(&self) -> HashSet<SpaceId> {
        self.known.lock().by_name.values().flat_map(|k| k.spaces.iter().copied()).collect()
    }
    pub fn has(&self, name: &str) -> bool {
        self.known.lock().by_name.contains_key(name)
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
    /// The names of the tables that have one of these ids or spaces.
    pub fn named(&self, ids: &HashSet<u32>, spaces: &HashSet<SpaceId>) -> Vec<String> {
        let known = self.known.lock();
        let is_one =
            |k: &KnownTable| ids.contains(&k.id) || k.spaces.iter().any(|space| spaces.contains(space));
        known.by_name.iter().filter(|(_, k)| is_one(k)).map(|(name, _)| name.clone()).collect()
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

    /// The right to change definitions.
    fn change(&self) -> Result<MutexGuard<'_, Vec<u32>, { Mutexes::Definitions as u8 }>> {
        let mut group = lock_unless_cancelled(&self.changing).ok_or(Error::Cancelled)?;
        self.finish_group(&mut group)?;
        Ok(group)
    }

    fn take_id(&self) -> Result<u32> {
        let mut ids = self.ids.lock();
        if ids.0 == ids.1 {
            let last = if self.checkpointer.is_some() { SpaceId::FIRST_TEMPORARY.0 } else { u32::MAX };
            let end = ids.1.checked_add(IDS).filter(|end| *end <= last);
            let end = end.ok_or_else(|| Error::Full("there are no more table ids".into()))?;
            if let Some(checkpointer) = &self.checkpointer {
                checkpointer.write_both(|s| s.spaces = s.spaces.max(end))?;
            }
            ids.1 = end;
        }
        ids.0 += 1;
        Ok(ids.0 - 1)
    }

    fn write(&self, name: &str, known: &KnownTable) -> Result<()> {
        self.write_value(known.id, &encode(name, known))
    }

    /// Puts the value of the id, whole or nothing after a crash. Durable when it returns.
    fn write_value(&self, id: u32, value: &[u8]) -> Result<()> {
        let old = self.tree.get(&id.to_be_bytes(), Access::Internal, definition::parts_of)?;
        if value.len() <= definition::ENTRY_MAX {
            self.tree.put(&id.to_be_bytes(), value)?;
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
            for (key, part) in parts.keys(id).zip(value.chunks(definition::ENTRY_MAX)) {
                self.tree.put(&key, part)?;
            }
            self.tree.put(&id.to_be_bytes(), &parts.encode())?;
        }
        // The put has changed the definition: the old one's remains are unreferenced, and the next start removes them.
        let _ = self.remove_parts(id, old);
        self.durable()
    }

    /// Removes entries that the table's own no longer names. What a crash leaves of them the next start removes.
    fn remove_parts(&self, id: u32, parts: Option<definition::Parts>) -> Result<()> {
        for key in parts.iter().flat_map(|parts| parts.keys(id)) {
            self.tree.remove(&key)?;
        }
        Ok(())
    }

    fn remove_value(&self, id: u32) -> Result<()> {
        let parts = self.tree.get(&id.to_be_bytes(), Access::Internal, definition::parts_of)?;
        self.tree.remove(&id.to_be_bytes())?;
        let _ = self.remove_parts(id, parts); // as above
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
    /// the first failure ends it and is ignored.
    pub fn save_rows(&self) {
        let open: Vec<Arc<Table>> =
            self.known.lock().by_name.values().filter_map(|k| k.open.clone()).collect();
        let _ = open.iter().try_for_each(|table| table.save_rows());
    }

    pub fn create_table(&self, name: &str, def: &TableDef) -> Result<Arc<Table>> {
        if def.indexes.is_empty() || name.len() > NAME_MAX {
            return Err(Error::Invalid(format!("table {name}: no primary index, or the name is too long")));
        }
        let _one = self.change()?;
        if self.known.lock().by_name.contains_key(name) {
            return Err(Error::Exists(format!("table {name}")));
        }
        if crate::planted::SPACE_ID_REUSED.on() && self.checkpointer.is_some() {
            let top = self.spaces().iter().map(|space| space.0 + 1).max().unwrap_or(SpaceId::FIRST_USER.0);
            *self.ids.lock() = (top, top);
        }
        self.close_unused(def.indexes.len());
        let id = self.take_id()?;
        let mut made = self.made();
        let trees = self.make_trees_in(&mut made, def.indexes.len())?;
        let spaces = made.spaces.clone();
        let numbers: Vec<u16> = (0..).take(spaces.len()).collect();
        let built = vec![0; spaces.len()];
        let table = Arc::new(Table::new(
            id,
            name.to_string(),
            def.clone(),
            numbers.clone(),
            built.clone(),
            trees,
            &self.shortener,
        ));
        let open = Some(table.clone());
        let known = KnownTable {
            id,
            spaces,
            numbers,
            built,
            def: def.clone(),
            codec: None,
            open,
            used: self.opening(),
        };
        let written = self.write(name, &known);
        // What failed behind the put is there.
        let is_named = || self.tree.get(&id.to_be_bytes(), Access::Internal, |value| value.is_some());
        if written.is_ok() || is_named().unwrap_or(true) {
            made.keep();
        }
        written?;
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
        let is_half = trees.first().is_some_and(|rows| rows.space().is_filling());
        let mut all = self.known.lock();
        let Some(entry) = all.by_name.get_mut(name) else {
            return Err(Error::Absent(format!("table {name}")));
        };
        if entry.spaces != known.spaces || (entry.open.is_none() && entry.used != known.used) {
            drop(all); // altered meanwhile, or opened, changed and closed again: these trees know nothing of that
            return self.open_table(name);
        }
        if let Some(table) = &entry.open {
            return Ok(table.clone());
        }
        // The session that fills it has it open.
        if is_half {
            return Err(Error::Corrupt(format!("table {name} was not filled to its end: drop it")));
        }
        entry.used = self.opening();
        let (def, numbers, built) = (entry.def.clone(), entry.numbers.clone(), entry.built.clone());
        let table =
            Arc::new(Table::new(entry.id, name.to_string(), def, numbers, built, trees, &self.shortener));
        entry.open = Some(table.clone());
        Ok(table)
    }

    fn opening(&self) -> u64 {
        self.openings.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes room for `more` trees: closes tables that are not in use, those opened longest ago first, until open
    /// trees are no more than they may be. The caller holds `changing`: no space is dropped meanwhile.
    fn close_unused(&self, more: usize) {
        let limit = self.pages.pool().frames() * TREES_A_FRAME;
        let mut chosen = Vec::new();
        {
            let all = self.known.lock();
            let open = all.by_name.iter().filter(|(_, k)| k.open.is_some());
            let mut trees = more + open.clone().map(|(_, k)| k.spaces.len()).sum::<usize>();
            if trees <= limit {
                return;
            }
            let mut unused: Vec<_> =
                open.filter(|(_, k)| k.holders() == 1).map(|(name, k)| (k.used, name, k)).collect();
            unused.sort_unstable_by_key(|(used, ..)| *used);
            for (_, name, known) in unused {
                // Some more than needed, so that not each opening comes here.
                if trees <= limit - limit / 4 {
                    break;
                }
                trees -= known.spaces.len().min(trees);
                chosen.extend(known.open.clone().map(|table| (name.clone(), table)));
            }
        }
        for (name, table) in chosen {
            // Before it is closed: the next opening finds the count of rows in the header. Without it the count is off by what came
            // since the last structure change, as after a crash.
            let _ = table.save_rows();
            let mut all = self.known.lock();
            // This one holds it, too.
            if let Some(known) =
                all.by_name.get_mut(&name).filter(|known| known.holders() == 2 && table.rows_are_saved())
            {
                known.open = None;
            }
        }
    }

    /// Views below `view` are too old for the table.
    pub(crate) fn set_built(&self, table: &Table, view: u64) {
        if let Some(known) = self.known.lock().by_name.values_mut().find(|known| known.id == table.id) {
            known.built.fill(view);
        }
        table.set_built(view);
    }

    /// The table with this id, if there is still one.
    pub fn by_id(&self, id: u32) -> Result<Option<Arc<Table>>> {
        loop {
            let name = {
                let known = self.known.lock();
                let Some(name) = known.names.get(&id) else { return Ok(None) };
                if let Some(table) = known.by_name.get(name).and_then(|k| k.open.clone()) {
                    return Ok(Some(table));
                }
                name.clone()
            };
            if let Some(table) = self.open_as(&name, id)? {
                return Ok(Some(table));
            }
        }
    }

    /// The table with this id, if it has this name. None: it was renamed or dropped, and another may have its name.
    fn open_as(&self, name: &str, id: u32) -> Result<Option<Arc<Table>>> {
        match self.open_table(name) {
            Ok(table) => Ok(Some(table).filter(|table| table.id == id)),
            Err(Error::Absent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the table's entry, durably if `waits`; otherwise a crash may bring it back. Returns the spaces that nothing names any more.
    pub fn drop_table(&self, name: &str, waits: bool) -> Result<Vec<SpaceId>> {
        let _one = self.change()?;
        let Some((id, spaces)) = self.known.lock().by_name.get(name).map(|k| (k.id, k.spaces.clone())) else {
            return Err(Error::Absent(format!("table {name}")));
        };
        self.remove_value(id)?;
        if waits {
            self.durable()?;
        }
        self.known.lock().remove(name);
        self.forget_rules(id);
        spaces.iter().for_each(|space| self.codecs.set(*space, None));
        Ok(spaces)
    }

    /// How the table's pages are compressed in objects from now on; None: as the instance's are. Durable when it returns.
    pub fn set_compression(&self, name: &str, codec: Option<Codec>) -> Result<()> {
        let _one = self.change()?;
        let known = self.known.lock().by_name.get(name).cloned();
        let Some(mut known) = known else { return Err(Error::Absent(format!("table {name}"))) };
        if known.codec == codec {
            return Ok(());
        }
        known.codec = codec;
        self.write(name, &known)?;
        if let Some(entry) = self.known.lock().by_name.get_mut(name) {
            entry.codec = codec;
            entry.tell(&self.codecs);
        }
        Ok(())
    }

    /// What [`Catalog::set_compression`] said last. None, too: there is no such table.
    pub fn compression(&self, name: &str) -> Option<Codec> {
        self.known.lock().by_name.get(name).and_then(|known| known.codec)
    }

    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.redefine_tables(&[Redefined { from, to, properties: None }])
    }
}

#[cfg(test)]
mod tests;
