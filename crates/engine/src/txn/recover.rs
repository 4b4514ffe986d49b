//! After a crash: the streams say who was committed, prepared or unfinished.
//!
//! Committed transactions go to the history, for purge. Unfinished ones are active again, so that
//! what they changed stays locked, and are rolled back in the background. Prepared ones wait for the
//! decision by their XID (`orphaned`).

use super::TxnState;
use super::history::{History, Past};
use super::orphaned::OrphanedTxn;
use crate::error::{Error, Result};
use crate::row::RollPtr;
use crate::undo::record::{self, Body};
use crate::undo::stream::{FoundStream, Mark, Streams};
use hashbrown::HashSet;

/// What the streams hold.
#[derive(Default)]
pub struct Recovered {
    pub history: History,
    pub unfinished: Vec<OrphanedTxn>,
    pub prepared: Vec<(Vec<u8>, OrphanedTxn)>,
    /// The highest number seen.
    pub highest: u64,
}

struct Open {
    txn: u64,
    state: record::TxnStatus,
    csn: u64,
    begin: RollPtr,
    mark: Mark,
    last: RollPtr,
    has_past: bool,
    records: u64,
    xid: Vec<u8>,
    tables: HashSet<u32>,
}

/// Walks all streams and gives those back that are at rest.
pub fn read_streams(streams: &Streams, found: Vec<FoundStream>) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    for one in found {
        let stream = streams.at_end(&one)?;
        let mut open: Option<Open> = None;
        let end = streams.walk(one.head, None, |at, record| {
            recovered.highest = recovered.highest.max(record.txn);
            match record.body {
                Body::Begin { state, csn } => {
                    let mark = Mark { page: at.page(), end: at.at() };
                    if let Some(before) = open.take() {
                        close(&mut recovered, one.number, before, mark)?;
                    }
                    recovered.highest = recovered.highest.max(csn);
                    let xid = Vec::new();
                    open = Some(Open {
                        txn: record.txn,
                        state,
                        csn,
                        begin: at,
                        mark,
                        last: at,
                        has_past: false,
                        records: 0,
                        xid,
                        tables: HashSet::new(),
                    });
                }
                Body::Prepare { xid } => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.xid = xid.to_vec();
                    }
                }
                Body::Change(change) => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.has_past |= change.old.is_some();
                        open.tables.insert(change.table);
                    }
                }
                Body::Large { .. } | Body::Load { .. } | Body::Extent { .. } | Body::Filled { .. } => {
                    if let Some(open) = &mut open {
                        open.last = at;
                        open.records += 1;
                        open.tables.extend(record.body.table());
                    }
                }
            }
            Ok(true)
        })?;
        match open {
            None => streams.give_back(stream),
            Some(open) if open.state == record::TxnStatus::Committed => {
                close(&mut recovered, one.number, open, end)?;
                streams.give_back(stream);
            }
            Some(open) => {
                let begin_page = streams.pages().load(
                    terrace_tier::page::PageId::new(terrace_tier::page::SpaceId::UNDO, open.begin.page()),
                    terrace_tier::memory::pool::Access::Normal,
                )?;
                let state = TxnState {
                    id: open.txn,
                    stream: Some(stream),
                    begin: open.begin,
                    begin_page: Some(begin_page),
                    begin_mark: Some(open.mark),
                    last: open.last,
                    has_past: open.has_past,
                    changes: open.records,
                    prepared: open.state == record::TxnStatus::Prepared,
                    ..TxnState::default()
                };
                let is_prepared = state.prepared && !crate::planted::PREPARED_FORGOTTEN.on();
                let left = OrphanedTxn::new(state, open.tables);
                if is_prepared {
                    recovered.prepared.push((open.xid, left));
                } else {
                    recovered.unfinished.push(left);
                }
            }
        }
    }
    Ok(recovered)
}

fn close(recovered: &mut Recovered, stream: usize, open: Open, end: Mark) -> Result<()> {
    if open.state != record::TxnStatus::Committed {
        return Err(Error::Corrupt(format!(
            "transaction {} did not end, but its stream {stream} goes on",
            open.txn
        )));
    }
    recovered.history.push(Past { csn: open.csn, stream, begin: open.mark, end }, open.records);
    Ok(())
}
