//! Row locks one by one: by name, and by owner.
//!
//! A session may have a name in both modes, each taken and given back by itself: the transaction that took it to read may be another than the one
//! that took it to write.
//!
//! A lock is an entry in a slab, found by a hash of its name and linked to the others of its owner: some 70 bytes with a short
//! key. No holder keeps a second copy of the name to give it back. A session that holds many has the rest of them in compact sets (`crowds`); a
//! name is here or there.

use super::crowds::Crowds;
use super::{Key, Mode, NameRef};
use hashbrown::hash_table::HashTable;
use hashbrown::{DefaultHashBuilder, HashMap};
use std::hash::BuildHasher;
use terrace_tier::page::SpaceId;

const NONE: u32 = u32::MAX;
/// Locks in a piece of the slab: it grows without being copied.
const PIECE: usize = 1024;
/// If fewer locks are left than one for each this many slots, the rest of the slab is given back.
const SPARSE: usize = 8;
/// The most that a lock takes, in bytes, except for a key that is longer than [`KEY_INLINE`]: its slot, its part of the table
/// after that has grown, while it grows.
pub const BYTES: usize = size_of::<Lock>() + 2 * size_of::<(u8, u32)>() + 4;
const KEY_INLINE: usize = 24;

/// In which modes a session has a name.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    shared: bool,
    exclusive: bool,
}

impl Modes {
    /// Those of a name that is locked, by [`Modes::number`].
    pub const ANY: [Modes; 3] = [
        Modes { shared: true, exclusive: false },
        Modes { shared: false, exclusive: true },
        Modes { shared: true, exclusive: true },
    ];
    /// The number of both.
    pub const BOTH: usize = 2;

    /// None: no mode.
    pub fn number(self) -> Option<usize> {
        (usize::from(self.shared) + 2 * usize::from(self.exclusive)).checked_sub(1)
    }
    pub fn with(mut self, mode: Mode) -> Modes {
        *self.place(mode) = true;
        self
    }
    pub fn without(mut self, mode: Mode) -> Modes {
        *self.place(mode) = false;
        self
    }
    fn place(&mut self, mode: Mode) -> &mut bool {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }
    pub fn of(mode: Mode) -> Modes {
        Modes::default().with(mode)
    }
    pub fn strongest(self) -> Mode {
        if self.exclusive { Mode::Exclusive } else { Mode::Shared }
    }
    fn has(mut self, mode: Mode) -> bool {
        *self.place(mode)
    }
    pub fn is_empty(self) -> bool {
        !self.shared && !self.exclusive
    }
}

struct Lock {
    key: Key,
    session: u64,
    space: SpaceId,
    /// The next lock of the same owner; or the next free one.
    next: u32,
    before: u32,
    /// None: the place is free.
    modes: Modes,
}

#[derive(Default)]
pub struct Names {
    /// Several of one name only if all are shared.
    table: HashTable<u32>,
    slab: Vec<Vec<Lock>>,
    free: Option<u32>,
    /// Owner → its locks in the slab.
    heads: HashMap<u64, Chain>,
    crowds: Crowds,
    hasher: DefaultHashBuilder,
    /// Bytes of keys that do not lie in their slots, with what the allocator adds.
    outside: usize,
}

/// The locks of one owner: the one taken last, and how many.
#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    count: u32,
}

fn outside(key: &[u8]) -> usize {
    if key.len() > KEY_INLINE { key.len() + 16 } else { 0 }
}

fn at(slab: &[Vec<Lock>], lock: u32) -> &Lock {
    &slab[lock as usize / PIECE][lock as usize % PIECE]
}

impl Names {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty() && self.crowds.is_empty()
    }
    /// The number of locks. Locks in compact sets count by their memory: as the number of single locks that would take it.
    pub fn weight(&self) -> usize {
        self.table.len() + self.crowds.bytes() / BYTES
    }
    /// What the locks themselves take: less than what is kept for them (`bytes_kept`) if there were more of them.
    pub fn bytes(&self) -> usize {
        self.table.len() * BYTES + self.outside + self.crowds.bytes()
    }

    /// What the slab and the table take.
    pub fn bytes_kept(&self) -> usize {
        // All pieces but a single one are whole.
        let locks = self.slab.last().map_or(0, Vec::capacity) * self.slab.len();
        // A slot of the table, of which seven of eight may be used.
        locks * size_of::<Lock>()
            + self.table.capacity() * 8 / 7 * (size_of::<u32>() + 1)
            + self.outside
            + self.crowds.bytes()
    }

    fn hash(&self, name: &NameRef<'_>) -> u64 {
        self.hasher.hash_one(name)
    }
    fn lock(&mut self, lock: u32) -> &mut Lock {
        &mut self.slab[lock as usize / PIECE][lock as usize % PIECE]
    }

    /// Which session has the name, and in which mode: the stronger one, if in both.
    pub fn owners(&self, name: NameRef<'_>) -> impl Iterator<Item = (u64, Mode)> {
        let none = self.table.is_empty();
        let found = (!none).then(|| self.table.iter_hash(self.hash(&name)));
        let locks = found.into_iter().flatten().map(|lock| at(&self.slab, *lock));
        let named = locks.filter(move |lock| lock.space == name.space && *lock.key == *name.key);
        named.map(|lock| (lock.session, lock.modes.strongest())).chain(self.crowds.owners(name))
    }

    pub fn held_by(&self, session: u64, name: NameRef<'_>) -> Option<Mode> {
        self.owners(name).find(|(owner, _)| *owner == session).map(|(_, mode)| mode)
    }

    /// The session has it in this mode, too, from now on; true if it had it before, in whichever mode.
    pub fn set(&mut self, session: u64, name: NameRef<'_>, mode: Mode) -> bool {
        let hash = self.hash(&name);
        let slab = &self.slab;
        let mine = |lock: &u32| is(at(slab, *lock), session, &name);
        if let Some(lock) = self.table.find(hash, mine).copied() {
            *self.lock(lock).modes.place(mode) = true;
            return true;
        }
        let chain = self.heads.get(&session).copied().unwrap_or(Chain { head: NONE, count: 0 });
        let in_crowd = self.crowds.modes(session, name);
        if chain.count >= self.crowds.from || !in_crowd.is_empty() {
            self.crowds.change(session, name, in_crowd, in_crowd.with(mode));
            return !in_crowd.is_empty();
        }
        self.outside += outside(name.key);
        let (modes, head) = (Modes::of(mode), chain.head);
        let lock = Lock { key: name.key.into(), session, space: name.space, next: head, before: NONE, modes };
        let place = self.put(lock);
        if head != NONE {
            self.lock(head).before = place;
        }
        self.heads.insert(session, Chain { head: place, count: chain.count + 1 });
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.table.insert_unique(hash, place, |lock| {
            let lock = at(slab, *lock);
            hasher.hash_one(NameRef { space: lock.space, key: &lock.key })
        });
        false
    }

    fn put(&mut self, lock: Lock) -> u32 {
        if let Some(free) = self.free {
            let place = self.lock(free);
            let next = place.next;
            *place = lock;
            self.free = (next != NONE).then_some(next);
            return free;
        }
        if self.slab.last().is_none_or(|piece| piece.len() == PIECE) {
            self.slab.push(Vec::with_capacity(if self.slab.is_empty() { 4 } else { PIECE }));
        }
        let pieces = self.slab.len() - 1;
        let piece = &mut self.slab[pieces];
        piece.push(lock);
        (pieces * PIECE + piece.len() - 1) as u32
    }

    /// Takes the session's lock on the name in this mode away; true if it has none in the other, either, and had one.
    pub fn remove(&mut self, session: u64, name: NameRef<'_>, mode: Mode) -> bool {
        if !self.table.is_empty() {
            let (hash, slab) = (self.hash(&name), &self.slab);
            let found = self.table.find(hash, |lock| is(at(slab, *lock), session, &name)).copied();
            if let Some(place) = found {
                return self.remove_at(place, mode);
            }
        }
        let modes = self.crowds.modes(session, name);
        if !modes.has(mode) {
            return false;
        }
        self.crowds.change(session, name, modes, modes.without(mode));
        modes.without(mode).is_empty()
    }

    /// Whether the session has at least `many` locks.
    pub fn has_many(&self, session: u64, many: u32) -> bool {
        self.heads.get(&session).is_some_and(|chain| chain.count >= many)
            || self.crowds.spaces_of(session).next().is_some()
    }

    /// Takes the session's locks in shared mode away: of how many names it has none any more.
    pub fn remove_all_shared(&mut self, session: u64) -> usize {
        let mut count = self.crowds.remove_all_shared(session);
        let mut next = self.heads.get(&session).map_or(NONE, |chain| chain.head);
        while next != NONE {
            let place = next;
            next = at(&self.slab, place).next;
            count += usize::from(self.remove_at(place, Mode::Shared));
        }
        count
    }

    /// Takes one mode from a lock; true if that was its last, and it is gone.
    fn remove_at(&mut self, place: u32, mode: Mode) -> bool {
        let lock = self.lock(place);
        *lock.modes.place(mode) = false;
        if !lock.modes.is_empty() {
            return false;
        }
        let (next, before, session) = (lock.next, lock.before, lock.session);
        let lock = at(&self.slab, place);
        let hash = self.hasher.hash_one(NameRef { space: lock.space, key: &lock.key });
        if let Ok(found) = self.table.find_entry(hash, |lock| *lock == place) {
            found.remove();
        }
        if next != NONE {
            self.lock(next).before = before;
        }
        if before != NONE {
            self.lock(before).next = next;
        }
        if let Some(chain) = self.heads.get_mut(&session) {
            chain.count -= 1;
            match before {
                NONE if next == NONE => _ = self.heads.remove(&session),
                NONE => chain.head = next,
                _ => {}
            }
        }
        self.give_back(place);
        true
    }

    /// Takes all of the session's locks away: how many they were.
    pub fn remove_all(&mut self, session: u64) -> usize {
        let mut count = self.crowds.remove_all(session);
        let mut next = self.heads.remove(&session).map_or(NONE, |chain| chain.head);
        while next != NONE {
            let lock = at(&self.slab, next);
            let hash = self.hasher.hash_one(NameRef { space: lock.space, key: &lock.key });
            let (place, after) = (next, lock.next);
            if let Ok(found) = self.table.find_entry(hash, |lock| *lock == place) {
                found.remove();
            }
            self.give_back(place);
            (next, count) = (after, count + 1);
        }
        count
    }

    fn give_back(&mut self, place: u32) {
        let free = self.free.unwrap_or(NONE);
        let lock = self.lock(place);
        let bytes = outside(&lock.key);
        (lock.key, lock.next, lock.modes) = (Key::new(), free, Modes::default());
        self.outside -= bytes;
        self.free = Some(place);
        // A statement that locked many rows leaves no memory behind.
        if self.table.is_empty() && self.slab.len() > 1 {
            (self.slab, self.free, self.table) = (Vec::new(), None, HashTable::new());
        }
    }

    /// Gives back what is kept for many locks if few are left: on a busy server there is always one. Costs a look at each that is left.
    pub fn shrink(&mut self) {
        if self.slab.len() < 2 || self.table.len() > self.slab.len() * PIECE / SPARSE {
            return;
        }
        let old = std::mem::take(self);
        self.crowds = old.crowds;
        for (session, Chain { head, .. }) in old.heads {
            let next = |place: &u32| Some(at(&old.slab, *place).next).filter(|next| *next != NONE);
            let places: Vec<u32> = std::iter::successors(Some(head), next).collect();
            for lock in places.iter().rev().map(|place| at(&old.slab, *place)) {
                for mode in [Mode::Shared, Mode::Exclusive].into_iter().filter(|mode| lock.modes.has(*mode)) {
                    self.set(session, NameRef { space: lock.space, key: &lock.key }, mode);
                }
            }
        }
    }

    /// Calls `each` with the locks of a piece of the slab: whose, where, which, and the stronger of its modes. False: there is no piece after it.
    pub fn piece(&self, piece: usize, mut each: impl FnMut(u64, SpaceId, &[u8], Mode)) -> bool {
        let locks = self.slab.get(piece).map_or(&[][..], Vec::as_slice);
        for lock in locks.iter().filter(|lock| !lock.modes.is_empty()) {
            each(lock.session, lock.space, &lock.key, lock.modes.strongest());
        }
        piece + 1 < self.slab.len()
    }
    /// Those that are in no piece.
    pub fn crowds(&self) -> &Crowds {
        &self.crowds
    }
    #[cfg(test)]
    pub fn crowds_mut(&mut self) -> &mut Crowds {
        &mut self.crowds
    }

    /// The trees in which the session has locks.
    pub fn spaces_of(&self, session: u64) -> impl Iterator<Item = SpaceId> {
        let mut next = self.heads.get(&session).map_or(NONE, |chain| chain.head);
        let in_slab = std::iter::from_fn(move || {
            let lock = (next != NONE).then(|| at(&self.slab, next))?;
            next = lock.next;
            Some(lock.space)
        });
        in_slab.chain(self.crowds.spaces_of(session))
    }
}

fn is(lock: &Lock, session: u64, name: &NameRef<'_>) -> bool {
    lock.session == session && lock.space == name.space && *lock.key == *name.key
}
