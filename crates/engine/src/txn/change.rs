//! Changes of values by a transaction: conflicts, undo records and new values under the leaf's latch, in one mini-transaction. Changes
//! of neighbours go together (`tree::run`): one latch, one mini-transaction, one look at the undo page for all.

use super::{Txn, TxnState};
use crate::error::TreeError;
use crate::error::{Error, Result};
use crate::lock::{InTheWay, WantedLock};
use crate::row::RollPtr;
use crate::row::off_page;
use crate::row::{self, DELETED, Head, TxnId};
use crate::table::Table;
use crate::tree::overflow::Large;
use crate::tree::run::{Run, Step, Wanted};
use crate::tree::{Hint, LeafPosition, MAX_ENTRY, edit};
use crate::undo::chains::{self, CHAINS_MAX};
use crate::undo::record::{self, Body, Change, Record};
use crate::undo::shared::Shared;
use crate::undo::stream::{Stream, append_log};
use terrace_log::{Urgency, record_bound};
use terrace_tier::memory::mtr::Mtr;
use terrace_tier::page::{PAGE_SIZE, SpaceId};

/// Log bytes of a new head: its bytes, in at most two operations.
const HEAD_LOG: u64 = 64;
/// Log bytes of changes that go together: enough for any one of them.
const TOGETHER_LOG: u64 = 16 << 10;
const _: () = assert!(TOGETHER_LOG > 3 * (MAX_ENTRY as u64) + 1024 + CHAINS_MAX as u64);

/// What to do, given the present value: its head and what follows.
pub enum Act<'a> {
    /// Put this behind a new head with these flags.
    Put(u8, &'a [u8]),
    /// Set the delete mark, keep the rest.
    Mark,
    /// Change nothing.
    Keep,
}

/// Why the decision could not be carried out under the latch.
enum Stop {
    Error(Error),
    InTheWay(InTheWay, WantedLock),
    /// The stream's page lacks room for a record so long.
    Room(usize),
    /// A mark makes the value so long, for which the leaf lacks room.
    Grows(usize),
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Stop {
        Stop::Error(error.into())
    }
}

/// Log bytes that the change of the tree itself takes at most. `grown`: the value's length, if a mark makes it longer.
fn tree_log(wanted: &Wanted<'_>, grown: Option<usize>) -> u64 {
    wanted.value_max.max(grown).map_or(HEAD_LOG, |max| edit::log_of_entry(wanted.key.len() + max) as u64)
}

/// Where undo records and a value are put together.
#[derive(Default)]
pub(super) struct Buffers {
    /// The records of a run, one behind the other.
    records: Vec<u8>,
    value: Vec<u8>,
    /// What is left of an old value without what the new one has, too.
    between: Vec<u8>,
    /// Which pages the large values have that a change drops.
    chains: Vec<u8>,
}

/// What happens to the values of one leaf.
struct Changes<'c, 'k, D> {
    txn: &'c Txn,
    table: &'c Table,
    space: SpaceId,
    index: usize,
    me: TxnId,
    /// The view of a caller that changes no row that is newer than it. For rows alone: their entries follow them.
    strict: Option<u64>,
    stream: &'c Stream,
    wanted: &'c [Wanted<'k>],
    buffers: &'c mut Buffers,
    /// How many records there are, and where the last one will be; before the first, where the transaction's last is.
    count: u64,
    last: RollPtr,
    decide: D,
}

impl<'a, D: FnMut(usize, Option<(Head, &[u8])>) -> Result<Act<'a>>> Run for Changes<'_, '_, D> {
    type Error = Stop;

    fn decide(
        &mut self,
        number: usize,
        spot: &mut LeafPosition<'_, '_>,
        log: u64,
    ) -> std::result::Result<Step, Stop> {
        let wanted = &self.wanted[number];
        let (core, me, key) = (self.txn.core(), self.me, wanted.key);
        let old = spot.value();
        let parsed = match old {
            Some(value) => Some(
                Head::decode(value)
                    .ok_or_else(|| Stop::Error(Error::Corrupt("a value without a head".into())))?,
            ),
            None => None,
        };
        let inserts = wanted.value_max.is_some() && parsed.is_none_or(|(head, _)| head.deleted());
        let want = WantedLock { inserts, ..WantedLock::EXCLUSIVE };
        if let Some((head, _)) = parsed
            && self.txn.is_others(me, head)
            && !crate::planted::ROW_LOCK_IGNORED.on()
        {
            return Err(Stop::InTheWay(InTheWay::Txn(head.txn), want));
        }
        if let (Some((head, _)), Some(view)) = (parsed, self.strict)
            && head.txn != me
            && !core.ids.sees(view, head.txn)
        {
            return Err(Stop::Error(Error::RowChanged));
        }
        let owns = parsed.is_some_and(|(head, _)| head.txn == me);
        let act = (self.decide)(number, parsed);
        // A caller that finds that the key exists has read the row, and changes nothing.
        let want = if matches!(act, Err(Error::Duplicate { .. })) { WantedLock::SHARED } else { want };
        let admitted = core.locks.admit_writer(self.txn.session, (self.space, key), want, owns);
        if let Some(way) = admitted.map_err(Stop::Error)? {
            return Err(Stop::InTheWay(way, want));
        }
        let (flags, rest, marked) = match (act.map_err(Stop::Error)?, parsed) {
            (Act::Mark, None) | (Act::Keep, _) => return Ok(Step::Done),
            (Act::Put(flags, rest), _) => (flags, rest, false),
            (Act::Mark, Some((head, rest))) => (head.flags | DELETED, rest, true),
        };
        let Buffers { records, value, between, chains } = &mut *self.buffers;
        // What is marked stays where it is, and so does much of a row; of large values purge is to know.
        let (mut kept, mut sum, mut shared) = (old, None, None);
        if let (Some((head, before)), Some(old)) = (parsed, old)
            && head.in_leaf()
        {
            let old_head = &old[..old.len() - before.len()];
            if marked {
                (kept, sum) = (Some(old_head), Some(record::sum(before)));
            } else if let Some(found) = Shared::of(before, rest).filter(|_| Head { flags, ..head }.in_leaf())
            {
                between.clear();
                between.extend_from_slice(old_head);
                between.extend_from_slice(found.between(before));
                (kept, sum, shared) = (Some(&between[..]), Some(record::sum(rest)), Some(found));
            }
        }
        // The mark names its transaction, where an old entry has a short head.
        let grown =
            Some(row::HEAD + rest.len()).filter(|len| marked && old.is_some_and(|old| old.len() < *len));
        if let Some(len) = grown.filter(|len| !spot.fits(*len)) {
            return Err(Stop::Grows(len));
        }
        let number_of_index = self.table.number(self.index);
        let parts = match parsed {
            Some((head, old)) if flags & row::APART != 0 && head.apart() && !head.deleted() && !marked => {
                off_page::kept(old, rest)
            }
            _ => 0,
        };
        chains.clear();
        let change = Change {
            table: self.table.id,
            index: number_of_index,
            key,
            old: kept,
            marked,
            sum,
            shared,
            kept: parts,
            chains: &[],
        };
        // A mark's went with the row: they may be free already, when this is purged.
        if let Some((head, rest)) = parsed.filter(|(head, _)| !head.deleted())
            && let Some(larges) = change.larges_dropped()
        {
            let placed = off_page::placed(head, rest).unwrap_or_default();
            let pages =
                |large: &Large| placed.iter().find(|one| one.large == *large).map(|one| &one.pages[..]);
            let dropped = larges.iter().map(|large| (*large, pages(large).unwrap_or_default()));
            chains::append(self.space, dropped, chains);
        }
        let change = Change { chains, ..change };
        let start = records.len();
        record::append(&Record { txn: me, before: self.last, body: Body::Change(change) }, records);
        let len = records.len() - start;
        let at = RollPtr::new(self.stream.next().page(), (self.stream.next().at() + start) as u16);
        let is_last =
            number > 0 && append_log(records.len()) + record_bound(0) + tree_log(wanted, grown) > log;
        let lacks_room = at.at() + len > PAGE_SIZE;
        if is_last || lacks_room {
            records.truncate(start);
            return if number > 0 { Ok(Step::Full) } else { Err(Stop::Room(len)) };
        }
        let roll = if parsed.is_none() { at.fresh() } else { at };
        let head = Head { flags, txn: me, roll };
        match marked && grown.is_none() {
            true => spot.put_start(&head.encode()),
            false => {
                row::value_into(head, rest, value);
                spot.put(value);
            }
        }
        self.count += 1;
        self.last = at;
        Ok(Step::Done)
    }

    fn finish(&mut self, mtr: &mut Mtr<'_>) {
        if self.count > 0 {
            self.stream.append(mtr, &self.buffers.records);
        }
    }
}

impl Txn {
    /// Changes the value at `key` of one of the table's trees as `decide` says. Waits for locks in the
    /// way, and then asks again: `decide` leaves nothing behind that its next answer may make wrong.
    /// `rest_max` bounds what follows the head of a value put; None: the value is only marked.
    pub(super) fn change<'a>(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        key: &[u8],
        rest_max: Option<usize>,
        mut decide: impl FnMut(Option<(Head, &[u8])>) -> Result<Act<'a>>,
    ) -> Result<()> {
        // A mark changes the value's head: no room is made for more, but where it says so.
        let wanted = [Wanted { key, value_max: rest_max.map(|rest| row::HEAD + rest) }];
        let log = append_log(key.len() + MAX_ENTRY + CHAINS_MAX + 64)
            + record_bound(0)
            + tree_log(&wanted[0], None);
        self.change_wanted(state, table, index, &wanted, log, |_, old| decide(old))
    }

    /// As [`Txn::change`], at keys that ascend. `decide` is told the number of the key. An error leaves the changes before it.
    pub(super) fn change_several<'a>(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        wanted: &[Wanted<'_>],
        decide: impl FnMut(usize, Option<(Head, &[u8])>) -> Result<Act<'a>>,
    ) -> Result<()> {
        self.change_wanted(state, table, index, wanted, TOGETHER_LOG, decide)
    }

    fn change_wanted<'a>(
        &self,
        state: &mut TxnState,
        table: &Table,
        index: usize,
        wanted: &[Wanted<'_>],
        log: u64,
        mut decide: impl FnMut(usize, Option<(Head, &[u8])>) -> Result<Act<'a>>,
    ) -> Result<()> {
        let tree = table.tree(index)?;
        let space = tree.space().id();
        let mut hint = state.hints.take(space);
        if state.pairs {
            hint.expect_pair();
        }
        let mut buffers = std::mem::take(&mut state.buffers);
        let (mut from, mut request, mut grown) = (0, None, None);
        while from < wanted.len() {
            let one;
            let (wanted_now, log) = match grown.take() {
                None => (&wanted[from..], log),
                value_max => {
                    one = [Wanted { key: wanted[from].key, value_max }];
                    (&one[..], log + tree_log(&one[0], None))
                }
            };
            let stream =
                state.stream.as_ref().ok_or_else(|| Error::Invalid("the transaction has ended".into()))?;
            buffers.records.clear();
            let mut changes = Changes {
                txn: self,
                table,
                space,
                index,
                me: state.id,
                strict: state.strict_view().filter(|_| index == 0),
                stream,
                wanted: wanted_now,
                buffers: &mut buffers,
                count: 0,
                last: state.last,
                decide: |number, old: Option<(Head, &[u8])>| decide(from + number, old),
            };
            match tree.modify_run(&mut hint, wanted_now, (log, Urgency::Normal), &mut changes) {
                Ok(done) => {
                    let (count, last) = (changes.count, changes.last);
                    state.rows += if index == 0 { count } else { 0 };
                    state.appended_several(count, last, buffers.records.len());
                    if let Some(watch) = table.watch().filter(|_| index == 0) {
                        wanted[from..from + done].iter().for_each(|one| watch.add(one.key, state.id));
                    }
                    if state.locks_many() {
                        let changed = wanted[from..from + done].iter().map(|one| one.key);
                        if self.core.locks.release_changed(self.session, space, changed) > 0 {
                            state.gave_back(self.session, space);
                        }
                    }
                    (from, request) = (from + done, None);
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Room(len)) => {
                    if let Some(stream) = &mut state.stream {
                        self.core.streams.make_room(stream, len, Urgency::Normal)?;
                    }
                }
                Err(Stop::Grows(len)) => grown = Some(len),
                Err(Stop::InTheWay(way, want)) => {
                    hint = Hint::default();
                    let request =
                        request.get_or_insert_with(|| self.request(state, (space, wanted[from].key), want));
                    request.set_want(want);
                    request.wait(&way, |txn| self.core.ids.is_active(txn))?;
                }
            }
        }
        state.hints.put(space, hint);
        state.buffers = buffers;
        Ok(())
    }
}
