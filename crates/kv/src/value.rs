//! Values by type, with the encodings that `OBJECT ENCODING` names. No protocol in here.

pub mod string;

pub use string::Str;

/// What a key holds.
pub enum Value {
    Str(Str),
}

/// The key holds a value of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

impl Value {
    #[allow(unreachable_patterns, reason = "true while strings are the only type of value")]
    pub fn as_str(&self) -> Result<&Str, WrongType> {
        match self {
            Value::Str(text) => Ok(text),
            _ => Err(WrongType),
        }
    }

    #[allow(unreachable_patterns, reason = "true while strings are the only type of value")]
    pub fn as_str_mut(&mut self) -> Result<&mut Str, WrongType> {
        match self {
            Value::Str(text) => Ok(text),
            _ => Err(WrongType),
        }
    }

    /// As `TYPE` answers.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "string",
        }
    }

    /// As `OBJECT ENCODING` answers.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::Str(text) => text.encoding(),
        }
    }

    /// Memory outside of the value itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Str(text) => text.heap_bytes(),
        }
    }
}

impl Clone for Value {
    /// A deep copy, for `COPY`.
    fn clone(&self) -> Value {
        match self {
            Value::Str(text) => Value::Str(text.clone()),
        }
    }
}

impl From<Str> for Value {
    fn from(text: Str) -> Value {
        Value::Str(text)
    }
}
