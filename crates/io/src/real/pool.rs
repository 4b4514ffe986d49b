//! Requests through a few threads: where the kernel has no rings.
//!
//! The asking thread works as well, so a batch comes to its end even if every other thread is
//! busy or none could be started. The threads are started when first needed and stay.
//!
//! Locks: `Shared::jobs`, `Job::left`; none is held over a request.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads of one process.
pub(super) const THREADS: usize = 8;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// One batch: `work` is called with each number below `count`.
struct Job {
    work: *const Work<'static>,
    count: usize,
    next: AtomicUsize,
    /// Calls not come to an end.
    left: Mutex<usize>,
    done: Condvar,
}

// SAFETY: `work` is Sync, and alive whenever it is called: see `Job::help`.
unsafe impl Send for Job {}
// SAFETY: as above; the rest synchronises itself.
unsafe impl Sync for Job {}

impl Job {
    /// Works until no number is left.
    fn help(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            // SAFETY: `Pool::run` returns when every number below `count` has been worked on, and this one has
            // not: what `work` points to is still borrowed there.
            let work = unsafe { &*self.work };
            // A panic is this request's: it leaves no answer, which its asker sees.
            let _ = catch_unwind(AssertUnwindSafe(|| work(number)));
            let mut left = self.left.lock();
            *left -= 1;
            if *left == 0 {
                self.done.notify_all();
            }
        }
    }
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<VecDeque<Arc<Job>>>,
    more: Condvar,
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<usize>,
}

impl Pool {
    pub fn new() -> Pool {
        Pool { shared: Arc::default(), threads: Mutex::new(0) }
    }

    /// Calls `work` with each number below `count`, side by side; its answers, None where it panicked.
    pub fn each<T: Send>(&self, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<Option<T>> {
        let answers: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
        self.run(count, &|number| {
            let answer = work(number);
            *answers[number].lock() = Some(answer);
        });
        answers.into_iter().map(Mutex::into_inner).collect()
    }

    fn run(&self, count: usize, work: &Work<'_>) {
        // SAFETY: only the lifetime changes. `Job::help` calls it for numbers below `count` only, and all those
        // calls have ended when this function returns.
        let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let (next, left) = (AtomicUsize::new(0), Mutex::new(count));
        let job = Arc::new(Job { work, count, next, left, done: Condvar::new() });
        let helpers = self.started(count.saturating_sub(1));
        self.shared.jobs.lock().extend((0..helpers).map(|_| job.clone()));
        (0..helpers).for_each(|_| _ = self.shared.more.notify_one());
        job.help();
        let mut left = job.left.lock();
        while *left > 0 {
            job.done.wait(&mut left);
        }
        drop(left);
        self.shared.jobs.lock().retain(|other| !Arc::ptr_eq(other, &job));
    }

    /// How many threads there are for a batch, `wanted` at most.
    fn started(&self, wanted: usize) -> usize {
        let mut threads = self.threads.lock();
        while *threads < wanted.min(THREADS) {
            let shared = self.shared.clone();
            let body = move || {
                let _shown = crate::observe::thread("disk");
                loop {
                    let mut jobs = shared.jobs.lock();
                    let job = loop {
                        match jobs.pop_front() {
                            Some(job) => break job,
                            None => shared.more.wait(&mut jobs),
                        }
                    };
                    drop(jobs);
                    job.help();
                }
            };
            if std::thread::Builder::new().name("terrace-disk".into()).spawn(body).is_err() {
                break; // fewer, or none, are slower and no less right
            }
            *threads += 1;
        }
        wanted.min(*threads)
    }
}

#[cfg(test)]
mod tests;
