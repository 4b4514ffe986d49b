//! What purge, commits and writers share: which transactions wait for purge, and how far purge is.

use super::Unforgotten;
use super::trouble::Trouble;
use crate::txn::history::History;
use crate::txn::purge_throttle::PurgeThrottle;
use std::collections::HashSet;
use std::sync::Arc;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_io::sched::Event;

#[derive(Default)]
pub struct PurgeState {
    /// The committed transactions that are not purged.
    pub history: Mutex<History, { Mutexes::History as u8 }>,
    /// Notified when there is something to purge.
    pub wanted: Arc<Event>,
    /// The commit sequence numbers of transactions that may have been purged in part.
    pub(crate) in_part: Mutex<HashSet<u64>, { Mutexes::History as u8 }>,
    /// What was purged last, as long as its undo is not forgotten: nothing else is purged before.
    pub(crate) unforgotten: Mutex<Option<Unforgotten>, { Mutexes::History as u8 }>,
    /// What purge could not read and passed by.
    pub trouble: Trouble,
    /// How much writers are slowed.
    pub throttle: PurgeThrottle,
}
