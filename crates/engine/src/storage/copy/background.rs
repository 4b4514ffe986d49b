//! A copy that is followed up in the background until its end is asked for: then little is left to copy.

use super::{Copied, Copier, OnProgress};
use crate::error::{Error, Result};
use crate::storage::Storage;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_io::clock::Nanos;
use terrace_io::disk::Disk;
use terrace_io::sched::{Event, Step, Worker, WorkerHandle};

/// Between two looks at what was written, in nanoseconds.
const REST: Nanos = 1_000_000_000;

/// Dropped before its end, it removes what it made.
pub struct BackgroundCopy {
    worker: Option<Box<dyn WorkerHandle>>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Or why there is none any more. Empty once the end has begun.
    copier: Mutex<Option<Result<Copier>>>,
    stops: AtomicBool,
}

impl BackgroundCopy {
    /// As [`Copier::begin`]. What fails later, `finish` tells.
    pub fn begin(storage: &Arc<Storage>, to: Arc<dyn Disk>) -> Result<BackgroundCopy> {
        let copier = Copier::begin(storage, to)?;
        let shared = Arc::new(Shared { copier: Mutex::new(Some(Ok(copier))), stops: AtomicBool::new(false) });
        let follower = Follower { shared: shared.clone(), wake: Arc::new(Event::new()) };
        let worker = storage.try_spawn(Box::new(follower))?;
        Ok(BackgroundCopy { worker: Some(worker), shared })
    }

    /// As [`Copier::finish`]: the copy is of a moment in this call, or of the one in which it began if there are no writes meanwhile.
    pub fn finish(mut self, tell: OnProgress<'_>) -> Result<Copied> {
        self.stop();
        let copier = self.shared.copier.lock().take();
        let mut copier = copier.expect("the end is asked for once")?;
        copier.follow(tell)?;
        copier.finish(tell)
    }

    fn stop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.worker = None;
    }
}

impl Drop for BackgroundCopy {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Follower {
    shared: Arc<Shared>,
    wake: Arc<Event>,
}

impl Worker for Follower {
    fn name(&self) -> &'static str {
        "copy"
    }

    /// A step is a look and all that it brings; it ends soon when the worker is to stop.
    fn step(&mut self) -> Step {
        let mut place = self.shared.copier.lock();
        let Some(Ok(copier)) = &mut *place else {
            return Step::Idle;
        };
        let stops = || self.shared.stops.load(Ordering::SeqCst);
        let followed = copier.follow(&mut |_| !stops()).and_then(|()| copier.settle());
        match followed {
            Ok(()) => Step::IdleFor(REST),
            // What was chosen and not copied yet is copied by the end.
            Err(Error::Cancelled) => Step::Idle,
            Err(error) => {
                *place = Some(Err(error));
                Step::Idle
            }
        }
    }

    fn wake_event(&self) -> Arc<Event> {
        self.wake.clone()
    }
}
