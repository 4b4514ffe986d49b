//! The reserved key: a hash in database 0 that says what belongs to the server below as a whole.
//!
//! | field | value |
//! | --- | --- |
//! | `id` | the identity of the server's data |
//! | `owner` | the process whose storage it is |
//! | `log` | the record of the write-back log up to which everything is here |
//! | `kept` and a name | what is kept under the name: libraries of functions |
//!
//! A copy is in memory: emptying database 0 deletes the key, and the same transaction writes it again.

use super::reply::Reply;
use std::collections::BTreeMap;

/// The name of the key. Commands of clients that name it are refused or find nothing, in database 0.
pub const RESERVED: &[u8] = b"{terrace}.storage";

pub const ID: &str = "id";
pub const OWNER: &str = "owner";
pub const LOG: &str = "log";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Note {
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub fn kept_field(name: &str) -> String {
    format!("kept {name}")
}

impl Note {
    /// What `HGETALL` has answered.
    pub fn of_reply(reply: &Reply) -> Result<Note, String> {
        let Reply::Array(all) = reply else { return Err(format!("HGETALL is answered with {reply:?}")) };
        let mut note = Note::default();
        for pair in all.chunks(2) {
            let [Reply::Bulk(name), Reply::Bulk(value)] = pair else {
                return Err("HGETALL is answered with something else than pairs".into());
            };
            note.fields.insert(name.clone(), value.clone());
        }
        Ok(note)
    }

    pub fn get(&self, field: &str) -> Option<&[u8]> {
        self.fields.get(field.as_bytes()).map(Vec::as_slice)
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        std::str::from_utf8(self.get(field)?).ok()
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }

    pub fn set(&mut self, field: &str, value: &[u8]) {
        self.fields.insert(field.as_bytes().to_vec(), value.to_vec());
    }

    /// Writes all of it.
    pub fn command(&self) -> Vec<&[u8]> {
        let mut args: Vec<&[u8]> = vec![b"HSET", RESERVED];
        self.fields.iter().for_each(|(name, value)| args.extend([&name[..], &value[..]]));
        args
    }
}
