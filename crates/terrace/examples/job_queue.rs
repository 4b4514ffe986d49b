//! A job queue: jobs by number, an index of those that are ready by priority, and workers that take them concurrently. A job is done once, whatever
//! crashes: taking it and noting its result are one transaction.
//!
//! `cargo run -p terrace --example job_queue [DIRECTORY]`

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::{Batch, Db, Result, Tree, Txn};

pub struct Queue {
    db: Db,
    /// Number → what is to be done, or its result.
    jobs: Tree,
    /// Priority, number → nothing: jobs that are not done.
    ready: Tree,
    next: AtomicU64,
}

fn entry(priority: u8, number: u64) -> Vec<u8> {
    [&[priority][..], &number.to_be_bytes()].concat()
}

impl Queue {
    pub fn open(directory: &Path) -> Result<Queue> {
        let db = Db::open(directory)?;
        let (jobs, ready) = (db.tree("jobs")?, db.tree("jobs by priority")?);
        // One more than the highest number.
        let last = jobs.iter()?.next_back().transpose()?;
        let last = last.and_then(|(key, _)| key.try_into().ok()).map(u64::from_be_bytes);
        Ok(Queue { db, jobs, ready, next: AtomicU64::new(last.map_or(0, |last| last + 1)) })
    }

    /// Adds jobs, all or none of them. The index has them when the tree of jobs does.
    pub fn add(&self, jobs: &[(u8, String)]) -> Result<()> {
        let mut batch = Batch::new();
        for (priority, what) in jobs {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            batch.put(&self.jobs, number.to_be_bytes(), what);
            batch.put(&self.ready, entry(*priority, number), "");
        }
        self.db.write(&batch)
    }

    /// Takes the job of the lowest priority number that no other worker has taken, does it, and notes its result. False: there is none.
    pub fn work(&self, work: impl Fn(&str) -> String) -> Result<bool> {
        let done = self.db.transact(|txn: &mut Txn| {
            let mut ready = txn.range::<&[u8]>(&self.ready, ..)?;
            let Some((entry, _)) = ready.advance()?.map(|(key, value)| (key.to_vec(), value.len())) else {
                return Ok(false);
            };
            drop(ready);
            let number = &entry[1..];
            // If another worker is at it, this waits until that one has ended, meets a conflict, and `transact` runs it again with the next job.
            txn.delete(&self.ready, &entry)?;
            let what = txn.get_for_update(&self.jobs, number)?.unwrap_or_default();
            let result = work(&String::from_utf8_lossy(&what));
            txn.put(&self.jobs, number, result)?;
            Ok(true)
        })?;
        Ok(done)
    }

    pub fn results(&self) -> Result<Vec<String>> {
        self.jobs.iter()?.map(|job| Ok(String::from_utf8_lossy(&job?.1).into_owned())).collect()
    }
}

/// Adds jobs and has them done by some workers. Returns the results, by number, and how many each worker did.
pub fn run(directory: &Path, jobs: u64, workers: u64) -> Result<(Vec<String>, Vec<u64>)> {
    let queue = Queue::open(directory)?;
    let some: Vec<(u8, String)> = (0..jobs).map(|n| ((n % 3) as u8, format!("job {n}"))).collect();
    queue.add(&some)?;
    let done = std::thread::scope(|scope| {
        let one = || {
            let mut done = 0;
            while queue.work(|what| format!("{what}: done"))? {
                done += 1;
            }
            Ok(done)
        };
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(one)).collect();
        let ended = started.into_iter().map(|one| one.join().expect("a worker ends"));
        ended.collect::<Result<Vec<u64>>>()
    })?;
    Ok((queue.results()?, done))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "queue.db".into());
    let (results, done) = run(directory.as_ref(), 100, 4)?;
    println!("{} jobs; the workers did {done:?}; the last: {:?}", results.len(), results.last());
    Ok(())
}
