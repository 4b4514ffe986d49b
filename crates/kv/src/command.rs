//! Commands: one table, one file a family, and what a handler is given.
//!
//! A handler gets its arguments (the first is the command's name), reads and changes the databases through [`Ctx`], and writes one reply. It
//! returns an error instead of writing one. Handlers see resident values alone and do no input or output.
//!
//! To add a family: a file here that exports `ROWS`, and a line in `table::families`.

pub mod acl;
pub mod args;
pub mod bits;
pub mod clients;
pub mod collections;
pub mod compare;
pub mod dump;
pub mod error;
pub mod functions;
pub mod geo;
pub mod geo_search;
pub mod hash_expiry;
pub mod hashes;
pub mod help;
pub mod hyperloglog;
pub mod info;
pub mod keys;
pub mod latency;
pub mod lcs;
pub mod lists;
pub mod memory;
pub mod metrics;
pub mod monitor;
pub mod needs;
pub mod pubsub;
pub mod rights;
pub mod saves;
pub mod scan;
pub mod scripting;
pub mod server;
pub mod sets;
pub mod sort;
pub mod standalone;
pub mod stored_keys;
pub mod streams;
pub mod strings;
pub mod table;
pub mod tracking;
pub mod transactions;
pub mod walk;
pub mod zset_combine;
pub mod zset_ranges;
pub mod zsets;

pub use error::CommandError;
pub use table::{Acl, Flags, Group, Keys, Row};

use crate::client::Client;
use crate::keyspace::{Databases, Keyspace};
use crate::resp::Reply;
use crate::server::Server;

/// An argument, in the query buffer.
pub type Arg<'a> = &'a [u8];

pub type Done = Result<(), CommandError>;
pub type Handler = fn(&mut Ctx<'_>, &[Arg<'_>]) -> Done;

/// What a handler works with.
pub struct Ctx<'a> {
    pub dbs: &'a mut Databases,
    pub server: &'a mut Server,
    pub client: &'a mut Client,
    pub reply: &'a mut Reply,
    /// Whether the command runs in EXEC or a script, where it must not block.
    pub is_nested: bool,
    /// Whether a script runs the command.
    pub from_script: bool,
    /// Whether the client waited and one of its keys changed: a key of another type is then waited for, and no error.
    pub is_resumed: bool,
}

impl Ctx<'_> {
    /// The selected database.
    pub fn db(&mut self) -> &mut Keyspace {
        &mut self.dbs.all[usize::from(self.client.db)]
    }

    /// The selected database, and the reply beside it.
    pub fn split(&mut self) -> (&mut Keyspace, &mut Reply) {
        (&mut self.dbs.all[usize::from(self.client.db)], self.reply)
    }

    pub fn now_ms(&self) -> i64 {
        self.dbs.all[0].now_ms
    }

    /// Waits until one of `keys` changes or `deadline_ms` (Unix time; `None` means for ever) is over: the command is run again then, as
    /// `args` if these are given and otherwise as it was. A client whose time is over gets a null array. The handler must have written no
    /// reply and changed nothing. In EXEC and scripts the null array is the reply at once.
    pub fn block(&mut self, keys: &[Arg<'_>], deadline_ms: Option<i64>, args: Option<Vec<Vec<u8>>>) -> Done {
        if self.is_nested || self.client.denies_blocking {
            self.reply.null_array();
            return Ok(());
        }
        self.client.wants_to_block = Some(crate::client::Block {
            keys: keys.iter().map(|&key| crate::keyspace::Key::new(key)).collect(),
            deadline_ms,
            args,
        });
        Ok(())
    }
}
