//! Why bytes move: the classes of disk traffic and the purposes of object store requests.
//!
//! Both are values with a name, which labels figures, and an urgency, which decides what may queue behind what. The engine's own
//! are constants. A front that has files or objects of its own registers more ([`Class::register`], [`Purpose::register`]); they
//! are counted and scheduled as the engine's are, and listed after them.
//!
//! A value is an index into a table of the process. An entry never changes and is never removed, so an index stays valid and
//! counters are arrays of a fixed size ([`Class::MAX`], [`Purpose::MAX`]).
//!
//! Locks: `Registry::count`, to add an entry only.

use std::sync::{Mutex, OnceLock, PoisonError};

/// What a request may queue behind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Urgency {
    /// A client's request waits for the answer: never behind background work, and a throttled read of an object is repeated for
    /// as long as its time limit allows.
    Foreground,
    /// The engine needs it soon: never behind background work.
    Urgent,
    /// May use some of a device or a store, and waits while others of its kind use that part.
    Background,
}

/// The kind of file, or the object store, that bytes go to or come from. Fixed: `performance_schema` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum IoTarget {
    Log,
    Pages,
    Map,
    Superblock,
    Flash,
    Spill,
    Object,
}

impl IoTarget {
    pub const ALL: [IoTarget; 7] = [
        IoTarget::Log,
        IoTarget::Pages,
        IoTarget::Map,
        IoTarget::Superblock,
        IoTarget::Flash,
        IoTarget::Spill,
        IoTarget::Object,
    ];

    pub fn name(self) -> &'static str {
        match self {
            IoTarget::Log => "log",
            IoTarget::Pages => "pages",
            IoTarget::Map => "map",
            IoTarget::Superblock => "superblock",
            IoTarget::Flash => "flash",
            IoTarget::Spill => "spill",
            IoTarget::Object => "object",
        }
    }
}

/// Why a class or a purpose was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("`{name}` is registered with another urgency or target")]
    Differs { name: &'static str },
    #[error("`{name}` is one too many: this process has {max} already")]
    Full { name: &'static str, max: usize },
}

/// What an index stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    name: &'static str,
    urgency: Urgency,
    target: IoTarget,
}

/// Entries that a process may add to the engine's.
const ADDED_MAX: usize = 8;

/// The engine's entries and those added since.
struct Registry {
    own: &'static [Entry],
    added: [OnceLock<Entry>; ADDED_MAX],
    count: Mutex<usize>,
}

impl Registry {
    const fn new(own: &'static [Entry]) -> Registry {
        Registry { own, added: [const { OnceLock::new() }; ADDED_MAX], count: Mutex::new(0) }
    }

    fn entry(&self, index: u8) -> Entry {
        let index = usize::from(index);
        let added = || self.added.get(index - self.own.len()).and_then(OnceLock::get);
        // An index is only ever made by `add` or for an own entry.
        *self.own.get(index).or_else(added).expect("a registered index")
    }

    fn add(&self, entry: Entry) -> Result<u8, RegisterError> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.own.iter().chain(self.added.iter().filter_map(OnceLock::get));
        if let Some((index, known)) = all.enumerate().find(|(_, known)| known.name == entry.name) {
            let is_same = *known == entry;
            return if is_same { Ok(index as u8) } else { Err(RegisterError::Differs { name: entry.name }) };
        }
        let full = RegisterError::Full { name: entry.name, max: self.own.len() + ADDED_MAX };
        let Some(free) = self.added.get(*count) else { return Err(full) };
        let _ = free.set(entry);
        *count += 1;
        Ok((self.own.len() + *count - 1) as u8)
    }

    /// The indexes of the entries that were added.
    fn added(&self) -> impl Iterator<Item = u8> + '_ {
        let own = self.own.len();
        (0..ADDED_MAX).take_while(|i| self.added[*i].get().is_some()).map(move |i| (own + i) as u8)
    }
}

/// Constants of a type with their table: each a line of name, label, urgency and target.
macro_rules! own {
    ($type:ident, $entries:ident: $($(#[$doc:meta])* $value:ident $name:literal $urgency:ident $target:ident,)*) => {
        const $entries: &[Entry] = &[$(
            Entry { name: $name, urgency: Urgency::$urgency, target: IoTarget::$target },
        )*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Index { $($value,)* }

        // Written as variants are: each is one of a closed list of the engine's, and patterns name them.
        #[allow(non_upper_case_globals)]
        impl $type {
            $($(#[$doc])* pub const $value: $type = $type(Index::$value as u8);)*
            /// The engine's own, in the order in which figures list them.
            pub const ALL: [$type; $entries.len()] = [$($type::$value,)*];
        }
    };
}

/// Why bytes move to or from a disk. Queues, counters and emulation are per class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

/// Why a request to the object store is made. Counted per purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Purpose(u8);

const _: () = {
    own! {
        Class, CLASSES:
        LogWrite "log_write" Urgent Log,
        LogRead "log_read" Urgent Log,
        PageRead "page_read" Foreground Pages,
        PageFlush "page_flush" Background Pages,
        MapWrite "map_write" Background Map,
        MapRead "map_read" Urgent Map,
        BpeFill "flash_fill" Background Flash,
        BpeRead "flash_read" Foreground Flash,
        Superblock "superblock" Urgent Superblock,
        Spill "spill" Background Spill,
        /// Pages that are copied into a copy of the volume.
        CopyRead "copy_read" Background Pages,
    }
    static REGISTRY: Registry = Registry::new(CLASSES);

    impl Class {
        /// Classes that a process may have: the length of an array with an item for each index.
        pub const MAX: usize = CLASSES.len() + ADDED_MAX;

        fn registry() -> &'static Registry {
            &REGISTRY
        }
        /// Adds a class to those of this process, or returns it if it was added before.
        pub fn register(
            name: &'static str,
            urgency: Urgency,
            target: IoTarget,
        ) -> Result<Class, RegisterError> {
            REGISTRY.add(Entry { name, urgency, target }).map(Class)
        }
        /// The classes that were added, in the order of their addition.
        pub fn registered() -> impl Iterator<Item = Class> {
            REGISTRY.added().map(Class)
        }
        /// The kind of file that the bytes belong to.
        pub fn target(self) -> IoTarget {
            REGISTRY.entry(self.0).target
        }
    }
};

const _: () = {
    own! {
        Purpose, PURPOSES:
        PageMiss "page_miss" Foreground Object,
        BlockRead "block_read" Foreground Object,
        Merge "merge" Background Object,
        Sink "sink" Background Object,
        Resolve "resolve" Urgent Object,
        Collect "collect" Background Object,
        Epoch "epoch" Urgent Object,
        Scrub "scrub" Background Object,
    }
    static REGISTRY: Registry = Registry::new(PURPOSES);

    impl Purpose {
        /// Purposes that a process may have: the length of an array with an item for each index.
        pub const MAX: usize = PURPOSES.len() + ADDED_MAX;

        fn registry() -> &'static Registry {
            &REGISTRY
        }
        /// Adds a purpose to those of this process, or returns it if it was added before.
        pub fn register(name: &'static str, urgency: Urgency) -> Result<Purpose, RegisterError> {
            REGISTRY.add(Entry { name, urgency, target: IoTarget::Object }).map(Purpose)
        }
        /// The purposes that were added, in the order of their addition.
        pub fn registered() -> impl Iterator<Item = Purpose> {
            REGISTRY.added().map(Purpose)
        }
    }
};

macro_rules! common {
    ($type:ident) => {
        impl $type {
            /// The label of figures.
            pub fn name(self) -> &'static str {
                $type::registry().entry(self.0).name
            }
            pub fn urgency(self) -> Urgency {
                $type::registry().entry(self.0).urgency
            }
            /// Below `MAX`: the place in an array of counters.
            pub fn index(self) -> usize {
                usize::from(self.0)
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

common!(Class);
common!(Purpose);

#[cfg(test)]
mod tests;
