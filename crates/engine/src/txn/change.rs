//! One change of one value by a transaction: conflicts, undo record and new value under the leaf's
//! latch, in one mini-transaction.

use super::{Buffers, State, Txn};
use crate::btree::{Flow, Hint, MAX_ENTRY, Plan, TreeError};
use crate::error::{Error, Result};
use crate::lock::{InTheWay, Want};
use crate::row::{self, DELETED, Head};
use crate::table::Table;
use crate::undo::record::{self, Body, Change, Record};
use crate::undo::stream::append_log;
use terrace_tier::page::PAGE_SIZE;
use terrace_tier::redo::Urgency;

/// Log bytes of a new head: its bytes, in two operations at the most.
const HEAD_LOG: u64 = 64;

/// What to do, seeing the value that is there: its head and what follows.
pub enum Act<'a> {
    /// Put this behind a new head with these flags.
    Put(u8, &'a [u8]),
    /// Set the delete mark, keep the rest.
    Mark,
}

/// Why the decision could not be carried out under the latch.
enum Stop {
    Error(Error),
    InTheWay(InTheWay),
    /// The stream's page lacks room for a record so long.
    Room(usize),
    /// The value has become longer than it was when room was planned.
    Again,
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Stop {
        Stop::Error(error.into())
    }
}

impl Txn {
    /// Changes the value at `key` of one of the table's trees as `decide` says. Waits for locks in the
    /// way. `rest_max` bounds what follows the head of a value put; None: the value is only marked.
    pub(super) fn change<'a>(
        &self,
        state: &mut State,
        table: &Table,
        index: usize,
        key: &[u8],
        rest_max: Option<usize>,
        mut decide: impl FnMut(Option<(Head, &[u8])>) -> Result<Act<'a>>,
    ) -> Result<()> {
        let tree = table.tree(index)?;
        let core = &self.core;
        let me = state.id;
        let space = tree.space().id();
        let mut request = self.request(state, (space, key), Want::EXCLUSIVE);
        // Of rows alone: their entries follow them.
        let strict = state.strict_view().filter(|_| index == 0);
        let mut hint = state.hints.take(tree.space().id());
        if state.pairs {
            hint.expect_pair();
        }
        let mut buffers = std::mem::take(&mut state.buffers);
        loop {
            // A mark keeps the value's length, and changes its head: no room is made for more.
            let value_max = rest_max.map(|rest| row::HEAD + rest);
            let plan = Plan {
                value_max,
                log_bytes: append_log(key.len() + MAX_ENTRY + 64) + HEAD_LOG,
                new_pages: 0,
                urgency: Urgency::Normal,
            };
            let mut written = 0;
            let done = {
                let stream = state
                    .stream
                    .as_ref()
                    .ok_or_else(|| Error::Invalid("the transaction has ended".into()))?;
                let before = state.last;
                tree.modify(&mut hint, key, plan, |spot| {
                    let old = spot.value();
                    let parsed =
                        match old {
                            Some(value) => Some(Head::decode(value).ok_or_else(|| {
                                Stop::Error(Error::Corrupt("a value without a head".into()))
                            })?),
                            None => None,
                        };
                    if let Some((head, _)) = parsed {
                        if head.txn != me
                            && core.ids.is_active(head.txn)
                            && !crate::planted::ROW_LOCK_IGNORED.on()
                        {
                            return Err(Stop::InTheWay(InTheWay::Txn(head.txn)));
                        }
                        if strict.is_some_and(|view| head.txn != me && !core.ids.sees(view, head.txn)) {
                            return Err(Stop::Error(Error::RowChanged));
                        }
                    }
                    let inserts = rest_max.is_some() && parsed.is_none_or(|(head, _)| head.deleted());
                    let want = Want { inserts, ..Want::EXCLUSIVE };
                    if let Some(way) =
                        core.locks.admit(self.session, space, key, want).map_err(Stop::Error)?
                    {
                        request.set_want(want);
                        return Err(Stop::InTheWay(way));
                    }
                    let act = decide(parsed).map_err(Stop::Error)?;
                    let (flags, rest, marked) = match (act, parsed) {
                        (Act::Mark, None) => return Ok(Flow::Done),
                        (Act::Put(flags, rest), _) => (flags, rest, false),
                        (Act::Mark, Some((head, rest))) => (head.flags | DELETED, rest, true),
                    };
                    if value_max.is_some_and(|max| row::HEAD + rest.len() > max) {
                        return Err(Stop::Again);
                    }
                    // What is marked stays where it is; of large values purge is to know.
                    let kept = match parsed {
                        Some((head, _)) if marked && !head.large() => old.map(|old| &old[..row::HEAD]),
                        _ => old,
                    };
                    let change =
                        Change { table: table.id, index: table.number(index), key, old: kept, marked };
                    let Buffers { record: bytes, value } = &mut buffers;
                    record::encode_into(&Record { txn: me, before, body: Body::Change(change) }, bytes);
                    let at = stream.next();
                    if at.at() + bytes.len() > PAGE_SIZE {
                        return Err(Stop::Room(bytes.len()));
                    }
                    let roll = if parsed.is_none() { at.fresh() } else { at };
                    let head = Head { flags, txn: me, roll };
                    if !marked {
                        row::value_into(head, rest, value);
                    }
                    stream.append(spot.mtr(), bytes);
                    match marked {
                        true => spot.put_start(&head.encode()),
                        false => spot.put(value),
                    }
                    written = bytes.len();
                    Ok(Flow::Done)
                })
            };
            match done {
                Ok(_) => {
                    state.hints.put(tree.space().id(), hint);
                    state.buffers = buffers;
                    if written > 0 {
                        state.appended(written);
                        if let Some(watch) = table.watch().filter(|_| index == 0) {
                            watch.add(key, me);
                        }
                    }
                    return Ok(());
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Again) => {}
                Err(Stop::Room(len)) => {
                    if let Some(stream) = &mut state.stream {
                        core.streams.make_room(stream, len, Urgency::Normal)?;
                    }
                }
                Err(Stop::InTheWay(way)) => {
                    hint = Hint::default();
                    request.wait(&way, |txn| core.ids.is_active(txn))?;
                }
            }
        }
    }
}
