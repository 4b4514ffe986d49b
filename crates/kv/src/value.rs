//! Values by type, with the encodings that `OBJECT ENCODING` names. No protocol in here.

pub mod bits;
pub mod decimal;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod hyperloglog;
pub mod integer;
pub mod intset;
pub mod large;
pub mod lcs;
pub mod limits;
pub mod list;
pub mod listpack;
pub mod name;
pub mod ranked;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
pub mod zset;

pub use hash::Hash;
use large::{BadElement, ElementValue, Head, LARGE_LIST, LARGE_SET, LARGE_ZSET, Large};
pub use list::List;
pub use set::Set;
pub use stream::Stream;
pub use string::Str;
pub use zset::Zset;

/// What a key holds. A clone is a deep copy.
#[derive(Clone)]
pub enum Value {
    Str(Str),
    List(Box<List>),
    Set(Box<Set>),
    Hash(Box<Hash>),
    Zset(Box<Zset>),
    Stream(Box<Stream>),
}

/// The key holds a value of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

impl Value {
    pub fn as_str(&self) -> Result<&Str, WrongType> {
        match self {
            Value::Str(text) => Ok(text),
            _ => Err(WrongType),
        }
    }

    pub fn as_str_mut(&mut self) -> Result<&mut Str, WrongType> {
        match self {
            Value::Str(text) => Ok(text),
            _ => Err(WrongType),
        }
    }

    pub fn as_stream(&self) -> Result<&Stream, WrongType> {
        match self {
            Value::Stream(stream) => Ok(stream),
            _ => Err(WrongType),
        }
    }

    pub fn as_stream_mut(&mut self) -> Result<&mut Stream, WrongType> {
        match self {
            Value::Stream(stream) => Ok(stream),
            _ => Err(WrongType),
        }
    }

    /// As `TYPE` answers.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Hash(_) => "hash",
            Value::Zset(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }

    /// As `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::Str(text) => text.encoding(),
            Value::List(list) => list.encoding(),
            Value::Set(set) => set.encoding(),
            Value::Hash(hash) => hash.encoding(),
            Value::Zset(zset) => zset.encoding(),
            Value::Stream(_) => "stream",
        }
    }

    /// Memory outside of the value itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Str(text) => text.heap_bytes(),
            Value::List(list) => size_of::<List>() + list.heap_bytes(),
            Value::Set(set) => size_of::<Set>() + set.heap_bytes(),
            Value::Hash(hash) => size_of::<Hash>() + hash.heap_bytes(),
            Value::Zset(zset) => size_of::<Zset>() + zset.heap_bytes(),
            Value::Stream(stream) => size_of::<Stream>() + stream.heap_bytes(),
        }
    }
}

impl Value {
    /// What is known of a large collection, if this is one.
    pub fn large(&self) -> Option<&Large> {
        match self {
            Value::Hash(hash) => hash.large(),
            Value::List(list) => list.large(),
            Value::Set(set) => set.large(),
            Value::Zset(zset) => zset.large(),
            _ => None,
        }
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        match self {
            Value::Hash(hash) => hash.large_mut(),
            Value::List(list) => list.large_mut(),
            Value::Set(set) => set.large_mut(),
            Value::Zset(zset) => zset.large_mut(),
            _ => None,
        }
    }

    /// The head that storage keeps of a large collection.
    pub fn head(&self) -> Option<Head> {
        match self {
            Value::Hash(hash) => hash.head(),
            Value::List(list) => list.head(),
            Value::Set(set) => set.head(),
            Value::Zset(zset) => zset.head(),
            _ => None,
        }
    }

    /// A large collection of which no element is in memory.
    pub fn of_head(head: &Head) -> Value {
        match head.kind {
            LARGE_LIST => Value::List(Box::new(List::of_head(head))),
            LARGE_SET => Value::Set(Box::new(Set::of_head(head))),
            LARGE_ZSET => Value::Zset(Box::new(Zset::of_head(head))),
            _ => Value::Hash(Box::new(Hash::of_head(head))),
        }
    }

    /// Whether it has grown so large that its elements are to be rows of their own.
    pub fn is_to_be_large(&self) -> bool {
        match self {
            Value::Hash(hash) => hash.is_to_be_large(),
            Value::List(list) => list.is_to_be_large(),
            Value::Set(set) => set.is_to_be_large(),
            Value::Zset(zset) => zset.is_to_be_large(),
            _ => false,
        }
    }

    /// Makes a collection large; all its elements count as changed.
    pub fn become_large(&mut self, generation: u64) {
        match self {
            Value::Hash(hash) => hash.become_large(generation),
            Value::List(list) => list.become_large(generation),
            Value::Set(set) => set.become_large(generation),
            Value::Zset(zset) => zset.become_large(generation),
            _ => {}
        }
    }

    /// Makes a large collection an ordinary one again, which the caller knows to be complete.
    pub fn end_large(&mut self) {
        match self {
            Value::Hash(hash) => hash.end_large(),
            Value::List(list) => list.end_large(),
            Value::Set(set) => set.end_large(),
            Value::Zset(zset) => zset.end_large(),
            _ => {}
        }
    }

    /// Whether an element is in memory.
    pub fn has_element(&self, name: &[u8]) -> bool {
        match self {
            Value::Hash(hash) => hash.has_element(name),
            Value::List(list) => list.has_element(name),
            Value::Set(set) => set.has_element(name),
            Value::Zset(zset) => zset.has_element(name),
            _ => false,
        }
    }

    /// Whether it is large and is known not to have an element.
    pub fn is_known_absent(&self, name: &[u8]) -> bool {
        !self.has_element(name) && self.large().is_some_and(|large| large.knows_absent(name))
    }

    /// What storage is to keep of an element; `None`: nothing.
    pub fn element(&self, name: &[u8]) -> Option<ElementValue> {
        match self {
            Value::Hash(hash) => hash.stored_element(name),
            Value::List(list) => list.stored_element(name),
            Value::Set(set) => set.stored_element(name),
            Value::Zset(zset) => zset.stored_element(name),
            _ => None,
        }
    }

    /// Takes an element of storage into memory: no change.
    pub fn admit(&mut self, name: &[u8], stored: &ElementValue) -> Result<(), BadElement> {
        match self {
            Value::Hash(hash) => hash.admit(name, stored),
            Value::Set(set) => set.admit(name),
            Value::Zset(zset) => return zset.admit(name, stored),
            Value::List(list) => return list.admit(name, stored),
            _ => {}
        }
        Ok(())
    }

    /// Storage does not have an element.
    pub fn note_absent(&mut self, name: &[u8]) -> Result<(), BadElement> {
        match self {
            Value::List(list) => return list.note_absent(name),
            _ if self.has_element(name) => {}
            _ => self.large_mut().into_iter().for_each(|large| large.note_absent(name)),
        }
        Ok(())
    }

    /// All elements of storage were taken into memory.
    pub fn end_load(&mut self) -> Result<(), BadElement> {
        match self {
            Value::List(list) => return list.end_load(),
            _ => self.large_mut().into_iter().for_each(Large::completed),
        }
        Ok(())
    }

    /// Takes about `count` elements out of memory that `may_evict`, beginning at a place by chance. Returns how many went, absent ones included.
    pub fn evict_elements(
        &mut self,
        random: u64,
        count: usize,
        may_evict: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        match self {
            Value::Hash(hash) => hash.evict_elements(random, count, may_evict),
            Value::List(list) => list.evict_elements(count, may_evict),
            Value::Set(set) => set.evict_elements(random, count, may_evict),
            Value::Zset(zset) => zset.evict_elements(random, count, may_evict),
            _ => 0,
        }
    }

    /// Elements that are in memory.
    pub fn elements_in_memory(&self) -> usize {
        match self {
            Value::Hash(hash) => hash.elements_in_memory(),
            Value::List(list) => list.elements_in_memory(),
            Value::Set(set) => set.elements_in_memory(),
            Value::Zset(zset) => zset.elements_in_memory(),
            _ => 0,
        }
    }
}

impl From<Str> for Value {
    fn from(text: Str) -> Value {
        Value::Str(text)
    }
}

impl From<List> for Value {
    fn from(list: List) -> Value {
        Value::List(Box::new(list))
    }
}

impl From<Set> for Value {
    fn from(set: Set) -> Value {
        Value::Set(Box::new(set))
    }
}

impl From<Hash> for Value {
    fn from(hash: Hash) -> Value {
        Value::Hash(Box::new(hash))
    }
}

impl From<Zset> for Value {
    fn from(zset: Zset) -> Value {
        Value::Zset(Box::new(zset))
    }
}
