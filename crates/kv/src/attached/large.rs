//! Large collections, attached: which of them are in memory, whose elements are all being read, and who walks over one. What runs on it is in
//! `dispatch::large`.

use crate::client::ClientId;
use crate::storage::{Element, Elements, Key, Name, Position, StorageError};
use std::collections::HashMap;

/// All elements of a collection are being read, a piece at a time. None of them is evicted meanwhile, so that what a command does to an element is newer than
/// what a piece says of it.
pub(crate) struct Load {
    /// Tells its pieces from those of a load that was given up.
    pub(crate) id: u64,
    pub(crate) waiters: Vec<ClientId>,
}

/// A walk of a client over a collection: one piece of it.
pub(crate) struct ElementWalk {
    pub(crate) generation: u64,
    pub(crate) from: Position,
    /// Elements on their way to storage when it was asked.
    pub(crate) held: Vec<Key>,
    pub(crate) piece: Option<Result<Elements, StorageError>>,
}

/// The load or the client that asked for a piece of a collection.
pub enum Asker {
    Load(u64),
    Client(ClientId),
}

/// Counters of `INFO tiering`.
#[derive(Default)]
pub struct LargeCounters {
    /// Elements read one by one, those that were absent included.
    pub fetched: u64,
    /// Collections of which all elements were read.
    pub loads: u64,
    /// Elements read by loads and walks.
    pub ranged: u64,
    pub evicted: u64,
}

#[derive(Default)]
pub struct Collections {
    /// The keys of the large collections in memory, by generation.
    names: HashMap<u64, Key>,
    /// The next generation; `None`: storage keeps collections whole.
    next: Option<u64>,
    next_load: u64,
    pub(crate) loads: HashMap<u64, Load>,
    pub(crate) walks: HashMap<ClientId, ElementWalk>,
    pub counters: LargeCounters,
}

impl Collections {
    pub fn new(next: Option<u64>) -> Collections {
        Collections { next, ..Collections::default() }
    }

    /// A generation for a collection that becomes large.
    pub(crate) fn take_generation(&mut self) -> Option<u64> {
        let generation = self.next?;
        self.next = Some(generation + 1);
        Some(generation)
    }

    pub fn name(&self, generation: u64) -> Option<&Key> {
        self.names.get(&generation)
    }

    /// How many large collections are in memory.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A collection is in memory under a key.
    pub(crate) fn note(&mut self, generation: u64, key: &Key) {
        if self.names.get(&generation) != Some(key) {
            self.names.insert(generation, key.clone());
        }
    }

    /// A collection is not in memory any more. Returns the clients that wait for its elements.
    pub(crate) fn forget(&mut self, generation: u64) -> Vec<ClientId> {
        if !crate::planted::GENERATION_IGNORED.on() {
            self.names.remove(&generation);
        }
        self.loads.remove(&generation).map(|load| load.waiters).unwrap_or_default()
    }

    /// All collections of a database are gone.
    pub(crate) fn forget_database(&mut self, db: u16) -> Vec<ClientId> {
        let gone: Vec<u64> =
            self.names.iter().filter(|(_, key)| key.db == db).map(|(generation, _)| *generation).collect();
        gone.into_iter().flat_map(|generation| self.forget(generation)).collect()
    }

    /// Two databases have exchanged their keys.
    pub(crate) fn swap_databases(&mut self, first: u16, second: u16) {
        for key in self.names.values_mut() {
            match key.db {
                db if db == first => key.db = second,
                db if db == second => key.db = first,
                _ => {}
            }
        }
    }

    /// `client` waits for all elements of a collection. Returns the number of the load if it has to begin.
    pub(crate) fn want_all(&mut self, generation: u64, client: ClientId) -> Option<u64> {
        if let Some(load) = self.loads.get_mut(&generation) {
            if !load.waiters.contains(&client) {
                load.waiters.push(client);
            }
            return None;
        }
        let id = self.next_load;
        self.next_load += 1;
        self.counters.loads += 1;
        self.loads.insert(generation, Load { id, waiters: vec![client] });
        Some(id)
    }

    /// A client is gone.
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.loads.values_mut().for_each(|load| load.waiters.retain(|other| *other != client));
    }
}

/// What a walk has found: elements of storage, and the names of those that memory knows better.
pub struct Walked {
    pub found: Vec<Element>,
    pub held: Vec<Name>,
    /// The cursor of the next piece, 0 at the end.
    pub cursor: u64,
}

impl Walked {
    /// The elements that exist, each once. `is_there` is told whether storage has an element.
    pub fn names(&self, is_there: impl Fn(&[u8], bool) -> bool) -> Vec<&[u8]> {
        let stored = self.found.iter().map(|found| (&*found.name, true));
        let held = self.held.iter().map(|name| (&**name, false));
        let mut names: Vec<&[u8]> = stored
            .chain(held)
            .filter(|(name, is_stored)| is_there(name, *is_stored))
            .map(|(name, _)| name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl ElementWalk {
    pub(crate) fn end(self) -> Option<Walked> {
        let piece = self.piece?.ok()?;
        let last = piece.next.unwrap_or(Position(u64::MAX));
        let is_in = |name: &[u8]| (self.from..last).contains(&Position::of_element(name));
        let held = self.held.into_iter().map(|key| key.name).filter(|name| is_in(name)).collect();
        Some(Walked { found: piece.found, held, cursor: piece.next.map_or(0, |next| next.0) })
    }
}
