//! Spaces that no table names any more, until nothing of them is left.
//!
//! Who drops a table need not wait until that is durable (`Engine::drop_table_unwaited`): a crash may bring the table back then, whole. So
//! nothing of its pages is given up before the log has passed the record that took its name away: no dirty page of it, which would bound the checkpoint,
//! and no redo that waits for one. Somebody's commit brings the log so far, or who asks for room (`growth`, `resize`), or purge, [`LINGER`] later.
//!
//! Those in use by somebody come here as well, and are tried again. What is here at a crash the next start drops, if no table names it.

use terrace_io::clock::Nanos;
use terrace_io::lock::{Mutex, Mutexes};
use terrace_tier::page::{Glsn, SpaceId};
use terrace_tier::redo::Redo;

/// How long the log is not asked for. Tables are dropped one after the other, and each statement's own wait is good for those before.
const LINGER: Nanos = 100_000_000;

struct Waiting {
    space: SpaceId,
    /// Where the log must have come to; 0: it has.
    after: Glsn,
    since: Nanos,
}

#[derive(Default)]
pub struct Going {
    spaces: Mutex<Vec<Waiting>, { Mutexes::Catalog as u8 }>,
}

impl Going {
    /// Nobody names the spaces when the log is durable to `after`.
    pub fn when_durable(&self, spaces: Vec<SpaceId>, after: Glsn, now: Nanos) {
        self.spaces.lock().extend(spaces.into_iter().map(|space| Waiting { space, after, since: now }));
    }

    /// The space is in use.
    pub fn in_use(&self, space: SpaceId) {
        self.spaces.lock().push(Waiting { space, after: 0, since: 0 });
    }

    /// Whether some only wait for the log, or for their turn after it.
    pub fn wait_for_log(&self) -> bool {
        self.spaces.lock().iter().any(|one| one.after > 0)
    }

    /// Those that are nobody's for good now. Makes the log durable if some have waited for long.
    pub fn take(&self, redo: &dyn Redo, now: Nanos) -> Vec<SpaceId> {
        let late = |one: &Waiting| one.after > redo.durable() && now.saturating_sub(one.since) >= LINGER;
        let upto = self.spaces.lock().iter().filter(|one| late(one)).map(|one| one.after).max();
        if let Some(upto) = upto {
            let _ = redo.make_durable(upto); // if the log has stopped, they stay
        }
        let durable = redo.durable();
        let is_due = |one: &mut Waiting| one.after <= durable;
        self.spaces.lock().extract_if(.., is_due).map(|one| one.space).collect()
    }

    /// How long to wait before there is something to do again, if nobody else brings it about.
    pub fn look_again(&self) -> Option<Nanos> {
        self.wait_for_log().then_some(LINGER)
    }
}
