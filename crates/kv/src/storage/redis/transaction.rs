//! A write as one transaction of the server below.
//!
//! `MULTI`, the commands, the number of keys of each database that they change, `EXEC`. What the server refuses (no memory, a replica, no right) it refuses as the command
//! is queued, and then `EXEC` runs nothing.

use super::link::Commands;
use super::note::RESERVED;
use super::payload;
use super::reply::Reply;
use crate::storage::{Outcome, StorageError, Stored};

/// The commands of a transaction.
pub struct Transaction {
    commands: Commands,
    db: Option<u16>,
}

impl Transaction {
    pub fn begin() -> Transaction {
        let mut commands = Commands::default();
        commands.add(&[b"MULTI"]);
        Transaction { commands, db: None }
    }

    pub fn select(&mut self, db: u16) {
        if self.db.replace(db) != Some(db) {
            self.commands.add(&[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
        }
    }

    pub fn add(&mut self, args: &[&[u8]]) {
        self.commands.add(args);
    }

    /// Sets or deletes a key of the selected database.
    pub fn row(&mut self, name: &[u8], value: Option<Stored>) {
        match value {
            None => self.add(&[b"UNLINK", name]),
            Some(Stored { expires_ms, rdb }) => {
                // 0 stands for a value that does not expire.
                let at_ms = expires_ms.map_or(0, |at_ms| at_ms.max(1));
                let (value, mut number) = (payload::seal(rdb), itoa::Buffer::new());
                let at_ms = number.format(at_ms).as_bytes();
                self.add(&[b"RESTORE", name, at_ms, &value, b"REPLACE", b"ABSTTL"]);
            }
        }
    }

    /// Ends it; counts the keys of databases.
    pub fn end(mut self, counted: &[u16]) -> Commands {
        for &db in counted {
            self.select(db);
            self.add(&[b"DBSIZE"]);
        }
        self.commands.add(&[b"EXEC"]);
        self.commands
    }
}

/// What became of a transaction, and how many keys each of its `counted` databases has: the reserved key is not one of them.
pub fn outcome(replies: &[Reply], counted: &[u16]) -> (Outcome, Vec<(u16, u64)>) {
    let error_of = |replies: &[Reply]| {
        replies.iter().find_map(|reply| match reply {
            Reply::Error(text) => Some(text.clone()),
            _ => None,
        })
    };
    match replies.last() {
        Some(Reply::Array(results)) => {
            // The last numbers, with what `SELECT` answers between them.
            let numbers = results.iter().rev().filter_map(|result| match result {
                Reply::Int(number) => Some(*number),
                _ => None,
            });
            let counts = counted.iter().rev().zip(numbers).map(|(db, size)| (*db, keys_of(*db, size)));
            let outcome = match error_of(results) {
                // The other commands have run.
                Some(text) => Outcome::Unknown(StorageError::Unavailable(text)),
                None => Outcome::Written,
            };
            (outcome, counts.collect())
        }
        // The first one says why; that of `EXEC`, that there was one.
        Some(Reply::Error(text)) => {
            let why = error_of(replies).unwrap_or_else(|| text.clone());
            (Outcome::NotWritten(StorageError::Unavailable(why)), Vec::new())
        }
        other => {
            let why = format!("EXEC is answered with {other:?}");
            (Outcome::Unknown(StorageError::Unavailable(why)), Vec::new())
        }
    }
}

/// The keys of a database by its `DBSIZE`.
pub fn keys_of(db: u16, size: i64) -> u64 {
    (size.max(0) as u64).saturating_sub(u64::from(db == 0))
}

/// Whether a key is the reserved one.
pub fn is_reserved(db: u16, name: &[u8]) -> bool {
    db == 0 && name == RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_those_of_the_transaction() {
        let queued = || vec![Reply::Ok, Reply::Queued, Reply::Queued];
        let with = |last: Reply| [queued(), vec![last]].concat();
        let done = with(Reply::Array(vec![Reply::Ok, Reply::Int(3)]));
        assert_eq!(outcome(&done, &[0]), (Outcome::Written, vec![(0, 2)]));
        let mut refused = with(Reply::Error("EXECABORT Transaction discarded".into()));
        refused[1] = Reply::Error("OOM command not allowed".into());
        let not_written = |text: &str| Outcome::NotWritten(StorageError::Unavailable(text.into()));
        assert_eq!(outcome(&refused, &[0]).0, not_written("OOM command not allowed"));
        let half = with(Reply::Array(vec![Reply::Error("ERR Bad data format".into()), Reply::Int(3)]));
        assert!(matches!(outcome(&half, &[1]), (Outcome::Unknown(_), counts) if counts == [(1, 3)]));
        assert!(matches!(outcome(&with(Reply::Null), &[]).0, Outcome::Unknown(_)));
        let several =
            [Reply::Ok, Reply::Int(1), Reply::Int(8), Reply::Ok, Reply::Int(3), Reply::Ok, Reply::Int(0)];
        assert_eq!(outcome(&with(Reply::Array(several.to_vec())), &[0, 1, 4]).1, [(4, 0), (1, 3), (0, 7)]);
    }
}
