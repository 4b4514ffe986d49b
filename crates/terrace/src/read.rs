//! Reads that trees, transactions and snapshots share.

use crate::error::Result;
use terrace_engine::Lock;
use terrace_engine::Table;
use terrace_engine::Txn;

/// Keys that [`multi_get`] asks for at a time.
const TOGETHER: usize = 64;

pub(crate) fn get(txn: &Txn, table: &Table, key: &[u8], lock: Lock) -> Result<Option<Vec<u8>>> {
    let mut value = Vec::new();
    Ok(txn.get(table, key, lock, &mut value)?.then_some(value))
}

/// Reads several keys. What is not in memory is fetched side by side.
pub(crate) fn multi_get(
    txn: &Txn,
    table: &Table,
    keys: &[impl AsRef<[u8]>],
    lock: Lock,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = Vec::with_capacity(keys.len());
    for some in keys.chunks(TOGETHER) {
        if some.len() > 1 {
            txn.fetch_soon(table, 0, some.iter().map(AsRef::as_ref));
        }
        for key in some {
            values.push(get(txn, table, key.as_ref(), lock)?);
        }
    }
    Ok(values)
}
