//! Bringing a page into memory: whose table has limits of reads waits for its turn first, and only then takes a frame and claims
//! the page. So who waits for tokens holds nothing that others want.

use super::{Lookup, Pool};
use crate::limits::meter;
use crate::memory::frame::FrameNo;
use crate::memory::lower_tiers::{Below, ReadError, TurnNo, may_wait, not_cancelled};
use crate::memory::pool::Access;
use crate::page::PageId;
use std::sync::atomic::Ordering;
use terrace_io::cancel;
use terrace_io::observe;

/// Waits for a page's turn.
struct InTurn<'a> {
    below: &'a dyn Below,
    id: PageId,
    no: Option<TurnNo>,
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        self.no.iter().for_each(|no| self.below.end_turn(self.id, *no));
        meter::settle();
    }
}

impl Pool {
    /// One loader's trip below, or the wait for the one who is on it. Pins the frame.
    #[cold]
    pub(super) fn bring(&self, id: PageId, access: Access) -> Result<FrameNo, ReadError> {
        let claims_ended = &self.shard(id).claims_ended;
        let now = || self.world.clock.now();
        let mut turn = InTurn { below: &*self.below, id, no: None };
        let mut is_first = true;
        loop {
            let ended = claims_ended.ticket();
            match self.lookup(id, access) {
                Lookup::Pinned(no) => return Ok(no),
                Lookup::Claimed => {
                    may_wait(observe::Wait::Page)?;
                    self.counters.claim_waits.fetch_add(1, Ordering::Relaxed);
                    let since = now();
                    let shown = observe::wait(observe::Wait::Page);
                    if std::mem::take(&mut is_first) {
                        self.below.fetch_again(id);
                    }
                    self.world.sched.wait(claims_ended, ended, cancel::patience());
                    drop(shown);
                    meter::waited(now() - since);
                    not_cancelled()?;
                    continue;
                }
                Lookup::Absent => may_wait(observe::Wait::Page)?,
            }
            let wait = self.below.turn(id, &mut turn.no);
            if wait > 0 {
                not_cancelled()?;
                let since = now();
                let wait = cancel::patience().map_or(wait, |patience| patience.min(wait));
                let shown = observe::wait(observe::Wait::Page);
                self.world.sched.wait(claims_ended, ended, Some(wait));
                drop(shown);
                meter::waited(now() - since);
                continue;
            }
            let no = self.take_frame(false)?;
            if self.claim(id, no) {
                return self.load_claimed(id, no, access);
            }
            self.give_frame(no);
        }
    }
}
