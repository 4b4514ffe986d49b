//! What a server could not decide about an instance that was brought to a point: transactions that were prepared there for a decision in the server's binary log, which
//! does not come with the instance. They had not committed by the point, and are rolled back.

use crate::Engine;
use crate::config::{Bytes, Config};
use crate::error::{Error, Result};
use crate::storage::Parts;
use crate::superblock::Superblock;
use terrace_io::sched::Event;
use terrace_tier::page::PAGE_SIZE;

/// What became of the transactions that had not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub rolled_back: u64,
    /// Prepared by a client (XA), who decides: their names.
    pub prepared: Vec<Vec<u8>>,
}

/// Rolls back what had not ended, except what clients have prepared.
pub fn settle(parts: &Parts) -> Result<Settled> {
    let superblock = Superblock::read(&*parts.volume)?;
    let slots = Bytes(u64::from(superblock.slots) * PAGE_SIZE as u64);
    let least = Bytes(crate::config::OBJECT_BUFFER_MIN);
    let config = Config { object_buffer: slots.max(least), ..Config::default() };
    let Parts { world, volume, flash, store } = parts;
    let (world, volume) = (world.clone(), volume.clone());
    let parts = Parts { world: world.clone(), volume, flash: flash.clone(), store: store.clone() };
    let engine = Engine::open(config, parts)?;
    let mut settled = Settled::default();
    for xid in engine.prepared() {
        match is_of_the_server(&xid) {
            true => {
                engine.rollback_prepared(&xid)?;
                settled.rolled_back += 1;
            }
            false => settled.prepared.push(xid),
        }
    }
    let rollbacks = &engine.core().rollbacks;
    let moment = Event::new();
    while rollbacks.count() > 0 {
        if let Some(trouble) = rollbacks.trouble() {
            return Err(Error::Unavailable(trouble.text));
        }
        world.sched.wait(&moment, moment.ticket(), Some(10_000_000));
    }
    // They begin with the opening: a count of those that are left would miss some.
    settled.rolled_back += rollbacks.added();
    engine.shutdown()?;
    Ok(settled)
}

/// MariaDB names a transaction that it prepares for its binary log so: format 1, a global part of 20 bytes, of which the first eight are fixed, no branch
/// (`mariadb/session/xid.cc` has the bytes before).
fn is_of_the_server(xid: &[u8]) -> bool {
    xid.starts_with(&[1, 0, 0, 0, 0, 0, 0, 0, 20, 0]) && xid[10..].starts_with(b"MySQLXid") && xid.len() == 30
}
