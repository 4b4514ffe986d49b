//! A counter: several threads count in one key, and nothing is lost.
//!
//! `cargo run -p terrace --example counter [DIRECTORY]`

use std::path::Path;
use terrace::{Db, Result, Txn};

/// Adds one to a counter.
fn count(db: &Db, name: &str) -> Result<u64> {
    let counters = db.tree("counters")?;
    db.transact(|txn: &mut Txn| {
        // Locked: another thread that counts waits for the lock, instead of meeting a conflict later.
        let before = txn.get_for_update(&counters, name)?;
        let before = before.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        txn.put(&counters, name, (before + 1).to_be_bytes())?;
        Ok(before + 1)
    })
}

/// Counts from `threads` threads, `times` times each. Returns what the counter has then.
pub fn run(directory: &Path, threads: u64, times: u64) -> Result<u64> {
    let db = Db::open(directory)?;
    let highest = std::thread::scope(|scope| {
        let one = || (0..times).try_fold(0, |_, _| count(&db, "visits"));
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let ended = started.into_iter().map(|one| one.join().expect("a thread counts"));
        ended.collect::<Result<Vec<u64>>>()
    })?;
    let total = highest.into_iter().max().unwrap_or(0);
    db.close()?;
    Ok(total)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "counter.db".into());
    println!("{} visits", run(directory.as_ref(), 4, 250)?);
    Ok(())
}
