//! What the superblock says of the log, and its history of writer epochs: which epoch owns the log from which position on.

use crate::Glsn;

/// What reading the log begins with: where each ring starts, how far it is known to reach, and who wrote it.
#[derive(Clone, Debug)]
pub struct LogBounds {
    /// Format version of the volume.
    pub version: u32,
    /// The volume was closed cleanly.
    pub clean: bool,
    /// The low half of the instance's id.
    pub instance: u64,
    /// The newest writer epoch.
    pub epoch: u32,
    pub checkpoint: Glsn,
    /// Everything below was acknowledged.
    pub attested: Glsn,
    /// Blocks of each ring.
    pub blocks: u64,
    /// A block sequence for each partition.
    pub starts: Vec<u64>,
    /// Which epoch owns the log from which GLSN on, ascending.
    pub history: Vec<(u32, Glsn)>,
}

/// The first GLSN that the epoch after `epoch` owns; `epoch` owned what lies below.
pub fn cut_of(history: &[(u32, Glsn)], epoch: u32) -> Glsn {
    history.iter().find(|(e, _)| *e > epoch).map_or(Glsn::MAX, |(_, first)| *first)
}

/// Forgets epochs whose log lies wholly below the checkpoint.
pub fn prune(history: &mut Vec<(u32, Glsn)>, checkpoint: Glsn) {
    while history.len() > 1 && history[1].1 <= checkpoint {
        history.remove(0);
    }
}

/// Makes room for an epoch that owns the log from `end` on. An epoch that owned nothing needs no entry: the next one's start cuts it as well.
pub fn begin_epoch(history: &mut Vec<(u32, Glsn)>, checkpoint: Glsn, end: Glsn) {
    prune(history, checkpoint);
    while history.last().is_some_and(|(_, first)| *first >= end) {
        history.pop();
    }
}
