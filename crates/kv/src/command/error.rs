//! Errors that a command replies, with Redis's texts.

use std::borrow::Cow;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    WrongType,
    Syntax,
    NotInteger,
    NotFloat,
    NoSuchKey,
    OutOfRange,
    InvalidExpiry,
    /// An error with its code.
    Text(Cow<'static, str>),
}

impl CommandError {
    /// An error with the code `ERR`.
    pub fn err(text: impl std::fmt::Display) -> CommandError {
        CommandError::Text(format!("ERR {text}").into())
    }

    /// An error whose text begins with its code.
    pub const fn of(text: &'static str) -> CommandError {
        CommandError::Text(Cow::Borrowed(text))
    }

    pub fn text(&self) -> &str {
        match self {
            CommandError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            CommandError::Syntax => "ERR syntax error",
            CommandError::NotInteger => "ERR value is not an integer or out of range",
            CommandError::NotFloat => "ERR value is not a valid float",
            CommandError::NoSuchKey => "ERR no such key",
            CommandError::OutOfRange => "ERR index out of range",
            CommandError::InvalidExpiry => "ERR invalid expire time",
            CommandError::Text(text) => text,
        }
    }

    pub fn arity(name: &str) -> CommandError {
        CommandError::err(format_args!("wrong number of arguments for '{name}' command"))
    }

    pub fn invalid_expiry(name: &str) -> CommandError {
        CommandError::err(format_args!("invalid expire time in '{name}' command"))
    }
}

impl From<crate::value::WrongType> for CommandError {
    fn from(_: crate::value::WrongType) -> CommandError {
        CommandError::WrongType
    }
}
