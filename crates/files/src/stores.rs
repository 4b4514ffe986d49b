//! The object store, as this front uses it: its purposes, a limit on requests a second, and failing fast while it does not answer.
//!
//! Not here: retries of one request and requests at a time, which are `io`'s.

pub mod breaker;
pub mod rate;

use crate::catalogue::{Fault, Meta};
use breaker::{Breaker, Gate};
use parking_lot::Mutex;
use rate::Rate;
use std::sync::Arc;
use std::time::Duration;
use terrace_io::World;
use terrace_io::clock::Nanos;
use terrace_io::sched::Event;
use terrace_io::store::{
    Bytes, Listed, ObjectStore, Purpose, Result, StoreError, Upload, UploadPart, Version,
};
use terrace_io::traffic::Urgency;

pub struct Store {
    inner: Arc<dyn ObjectStore>,
    world: World,
    breaker: Mutex<Breaker>,
    rate: Mutex<Rate>,
    read: Purpose,
    write: Purpose,
    list: Purpose,
}

fn fault(error: StoreError) -> Fault {
    match error {
        StoreError::Absent { .. } => Fault::Absent,
        StoreError::Conflict { .. } => Fault::Changed,
        StoreError::Refused { .. } => Fault::Refused(error.to_string()),
        StoreError::Unavailable { .. }
        | StoreError::Unknown { .. }
        | StoreError::Throttled { .. }
        | StoreError::Cancelled { .. } => Fault::Unavailable(error.to_string()),
    }
}

impl Store {
    /// `requests_per_second`: 0 is no limit.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        world: World,
        requests_per_second: u64,
    ) -> std::result::Result<Store, String> {
        let register = |name, urgency| Purpose::register(name, urgency).map_err(|error| error.to_string());
        let rate = Mutex::new(Rate::new(requests_per_second, world.clock.now()));
        Ok(Store {
            inner,
            breaker: Mutex::default(),
            rate,
            read: register("file_read", Urgency::Foreground)?,
            write: register("file_write", Urgency::Urgent)?,
            list: register("file_list", Urgency::Foreground)?,
            world,
        })
    }

    pub fn name(&self) -> String {
        self.inner.describe()
    }

    /// Why the store is taken to be unreachable, if so.
    pub fn outage(&self) -> Option<String> {
        self.breaker.lock().reason()
    }

    /// Requests made, and bytes read and written.
    pub fn totals(&self) -> (u64, u64, u64) {
        let Some(stats) = self.inner.stats() else { return (0, 0, 0) };
        let of = |purpose| stats.of(purpose);
        let requests =
            [self.read, self.write, self.list].into_iter().map(|purpose| of(purpose).requests).sum();
        (requests, of(self.read).bytes, of(self.write).bytes)
    }

    fn ask<T>(&self, request: impl FnOnce(&dyn ObjectStore) -> Result<T>) -> std::result::Result<T, Fault> {
        if let Gate::Closed(reason) = self.breaker.lock().enter(self.world.clock.now()) {
            return Err(Fault::Unavailable(format!("the store does not answer: {reason}")));
        }
        self.wait_for_turn();
        let result = request(&*self.inner);
        let now = self.world.clock.now();
        match &result {
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Unknown { .. })) => {
                self.breaker.lock().failed(now, error.to_string());
            }
            _ => self.breaker.lock().answered(),
        }
        result.map_err(fault)
    }

    /// Makes a request by another way than the store's own, under the same limits: at once an error while the store does not answer, and no more
    /// requests a second than it may be asked.
    pub fn pass<T>(&self, request: impl FnOnce() -> Result<T>) -> std::result::Result<T, Fault> {
        self.ask(|_| request())
    }

    fn wait_for_turn(&self) {
        let wait: Nanos = self.rate.lock().take(self.world.clock.now());
        if wait > 0 {
            let never = Event::new();
            self.world.sched.wait(&never, never.ticket(), Some(wait));
        }
    }

    /// Length, version and the first `max` bytes.
    pub fn start(&self, path: &str, max: u64) -> std::result::Result<(Meta, Bytes), Fault> {
        let start = self.ask(|store| store.get_start(self.read, path, max as usize))?;
        Ok((Meta { version: start.version.0.into(), length: start.length }, start.bytes))
    }

    pub fn head(&self, path: &str) -> std::result::Result<Meta, Fault> {
        let (length, version) = self.ask(|store| store.head(self.read, path))?;
        Ok(Meta { version: version.0.into(), length })
    }

    /// Fills `buf` from this version.
    pub fn range(
        &self,
        path: &str,
        version: &str,
        offset: u64,
        buf: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        let version = Version(version.to_string());
        self.ask(|store| store.get_range_of(self.read, path, offset, buf, &version))
    }

    /// At most `max` entries: more are refused.
    pub fn list(&self, folder: &str, recursive: bool, max: usize) -> std::result::Result<Vec<Listed>, Fault> {
        let mut found = Vec::new();
        let mut is_over = false;
        let mut add = |listed: Listed| match found.len() < max {
            true => found.push(listed),
            false => is_over = true,
        };
        self.ask(|store| match recursive {
            false => store.list_folder(self.list, folder, &mut add),
            true => {
                let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                store.list(self.list, &prefix, &mut |key, length| {
                    add(Listed::Object { key: key.to_string(), length, modified_ms: 0 });
                })
            }
        })?;
        if is_over {
            return Err(Fault::Busy(format!(
                "the listing has more than {max} entries: list its folders one by one"
            )));
        }
        Ok(found)
    }

    /// Writes a whole file; with `creates`, only if there is none.
    pub fn put(&self, path: &str, body: Bytes, creates: bool) -> std::result::Result<Version, Fault> {
        let parts = [body];
        let put = |store: &dyn ObjectStore| match creates {
            true => store.put_if_absent(self.write, path, &parts),
            false => store.replace(self.write, path, &parts),
        };
        self.ask(put).map_err(taken)
    }

    pub fn delete(&self, path: &str) -> std::result::Result<(), Fault> {
        self.ask(|store| store.delete(self.write, path))
    }

    pub fn begin(&self, path: &str) -> std::result::Result<Upload, Fault> {
        self.ask(|store| store.begin_upload(self.write, path))
    }

    pub fn part(
        &self,
        upload: &Upload,
        number: u32,
        offset: u64,
        body: &Bytes,
    ) -> std::result::Result<UploadPart, Fault> {
        self.ask(|store| store.put_part(self.write, upload, number, offset, body))
    }

    pub fn complete(
        &self,
        upload: &Upload,
        parts: &[UploadPart],
        creates: bool,
    ) -> std::result::Result<Version, Fault> {
        let complete = |store: &dyn ObjectStore| match creates {
            true => store.complete_upload(self.write, upload, parts),
            false => store.complete_replacing(self.write, upload, parts),
        };
        self.ask(complete).map_err(taken)
    }

    /// What an abort that fails leaves, a rule of the bucket's life cycle removes.
    pub fn abort(&self, upload: &Upload) {
        let _ = self.ask(|store| store.abort_upload(self.write, upload));
    }
}

fn taken(fault: Fault) -> Fault {
    if fault == Fault::Changed { Fault::Exists } else { fault }
}

/// How patient requests are: a client waits for them.
pub fn patience(settings: &mut terrace_io::object::Settings, in_flight_max: usize) {
    settings.in_flight_max = in_flight_max;
    settings.patience = Duration::from_secs(10);
}
