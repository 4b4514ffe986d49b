//! Values by type, with the encodings that `OBJECT ENCODING` names. No protocol in here.

pub mod bits;
pub mod decimal;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod hyperloglog;
pub mod integer;
pub mod intset;
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
