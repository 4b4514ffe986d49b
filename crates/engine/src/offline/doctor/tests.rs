//! Stores that lack one thing each: the doctor names that and nothing else, and leaves nothing behind.

use super::*;
use std::sync::atomic::Ordering;
use terrace_io::store::{Purpose, Result, UploadPart, Version};
use terrace_sim::{SimStore, SimWorld};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Nothing,
    IfAbsent,
    IfMatch,
    Order,
    /// The newest object is not listed.
    Consistency,
    /// Deleted objects are still listed.
    Forgetting,
    Ranges,
    Head,
    Parts,
    Delete,
    Bytes,
}

struct Lame {
    store: Arc<SimStore>,
    lack: Lack,
    newest: Mutex<String>,
    deleted: Mutex<Vec<String>>,
}

impl Lame {
    fn lacks(&self, lack: Lack) -> bool {
        self.lack == lack
    }
    /// As a store without conditions does it.
    fn overwrite(&self, purpose: Purpose, key: &str, body: &[u8]) -> Result<Version> {
        self.store.delete(purpose, key)?;
        self.store.put_if_absent(purpose, key, &[Bytes::copy_from_slice(body)])
    }
}

impl ObjectStore for Lame {
    fn describe(&self) -> String {
        self.store.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        *self.newest.lock() = key.to_string();
        match self.lacks(Lack::IfAbsent) {
            true => self.overwrite(purpose, key, &parts.concat()),
            false => self.store.put_if_absent(purpose, key, parts),
        }
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        match self.lacks(Lack::IfMatch) {
            true => self.overwrite(purpose, key, body),
            false => self.store.put_if_match(purpose, key, body, expected),
        }
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let offset = if self.lacks(Lack::Ranges) { 0 } else { offset };
        self.store.get_range(purpose, key, offset, buf)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        let (mut body, version) = self.store.get(purpose, key)?;
        if self.lacks(Lack::Bytes) && body.len() > 60_000 {
            body[60_000] ^= 1;
        }
        Ok((body, version))
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        let (length, version) = self.store.head(purpose, key)?;
        Ok((length + u64::from(self.lacks(Lack::Head)), version))
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        match self.lacks(Lack::Parts) {
            true => Err(StoreError::Refused { key: key.into(), cause: "NotImplemented".into() }),
            false => self.store.begin_upload(purpose, key),
        }
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        n: u32,
        at: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        self.store.put_part(purpose, upload, n, at, body)
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        self.store.complete_upload(purpose, upload, parts)
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        self.store.abort_upload(purpose, upload)
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.deleted.lock().push(key.to_string());
        if self.lacks(Lack::Delete) { Ok(()) } else { self.store.delete(purpose, key) }
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        let mut found = Vec::new();
        self.store.list(purpose, prefix, &mut |key, length| found.push((key.to_string(), length)))?;
        if self.lacks(Lack::Order) {
            found.reverse();
        }
        if self.lacks(Lack::Consistency) {
            found.retain(|(key, _)| *key != *self.newest.lock());
        }
        if self.lacks(Lack::Forgetting) {
            let deleted = self.deleted.lock();
            let gone = deleted.iter().filter(|key| key.starts_with(prefix)).map(|key| (key.clone(), 1));
            found.extend(gone);
            found.sort();
        }
        found.iter().for_each(|(key, length)| each(key, *length));
        Ok(())
    }
}

fn lame(sim: &SimWorld, lack: Lack) -> (Arc<dyn ObjectStore>, Arc<SimStore>) {
    let store = sim.store("store");
    (
        Arc::new(Lame { store: store.clone(), lack, newest: Mutex::default(), deleted: Mutex::default() }),
        store,
    )
}

fn outcome(found: &Diagnosis, what: &str) -> Outcome {
    found.findings.iter().find(|one| one.what == what).unwrap_or_else(|| panic!("{what}: {found:?}")).outcome
}

#[test]
fn a_store_that_can_do_all_is_fit_and_keeps_nothing_of_the_probe() {
    let sim = SimWorld::new(1);
    let (store, inner) = lame(&sim, Lack::Nothing);
    inner.put_if_absent(Purpose::Scrub, "of-others", &[Bytes::from_static(b"x")]).unwrap();
    let found = examine(&store, &sim.world()).unwrap();
    assert_eq!(found.verdict(), Verdict::Fit, "{found:#?}");
    assert_eq!(inner.keys(), ["of-others"]);
    assert_eq!(inner.staged(), Vec::<String>::new());
}

#[test]
fn what_a_store_lacks_is_named_and_decides_the_verdict() {
    let lacks = [
        (Lack::IfAbsent, "put if absent", Outcome::Weaker, Verdict::Restricted),
        (Lack::IfMatch, "put if match", Outcome::Weaker, Verdict::Restricted),
        (Lack::Order, "list", Outcome::Fails, Verdict::Unfit),
        (Lack::Consistency, "list", Outcome::Fails, Verdict::Unfit),
        (Lack::Forgetting, "list", Outcome::Fails, Verdict::Unfit),
        (Lack::Ranges, "range", Outcome::Fails, Verdict::Unfit),
        (Lack::Head, "head", Outcome::Fails, Verdict::Unfit),
        (Lack::Parts, "parts", Outcome::Weaker, Verdict::Restricted),
        (Lack::Delete, "delete", Outcome::Fails, Verdict::Unfit),
        (Lack::Bytes, "get", Outcome::Fails, Verdict::Unfit),
    ];
    for (lack, what, expected, verdict) in lacks {
        let sim = SimWorld::new(2);
        let (store, inner) = lame(&sim, lack);
        let found = examine(&store, &sim.world()).unwrap();
        assert_eq!(outcome(&found, what), expected, "{lack:?}: {found:#?}");
        if lack != Lack::IfAbsent {
            assert_eq!(found.verdict(), verdict, "{lack:?}: {found:#?}");
        }
        if lack == Lack::Delete {
            assert_eq!(outcome(&found, "left behind"), Outcome::Fails, "{found:#?}");
        } else {
            assert_eq!(inner.keys(), Vec::<String>::new(), "{lack:?}");
        }
    }
}

#[test]
fn lost_and_refused_requests_are_no_verdict() {
    for seed in 0..40 {
        let sim = SimWorld::new(seed);
        let (store, inner) = lame(&sim, Lack::Nothing);
        inner.faults.unavailable.store(10, Ordering::SeqCst);
        inner.faults.throttled.store(20, Ordering::SeqCst);
        inner.faults.unknown.store(20, Ordering::SeqCst);
        let found = examine(&store, &sim.world()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(found.verdict(), Verdict::Fit, "seed {seed}: {found:#?}");
    }
}

#[test]
fn a_dead_store_is_an_error_and_an_instance_is_told() {
    let sim = SimWorld::new(3);
    let (store, inner) = lame(&sim, Lack::Nothing);
    let writer = fence::Writer { instance: 7, lineage: 8, epoch: 9, nonce: 1 };
    let held = EpochContent { writer, mark: 0 }.bytes();
    inner.put_if_absent(Purpose::Epoch, fence::KEY, &[Bytes::from(held)]).unwrap();
    let found = examine(&store, &sim.world()).unwrap();
    assert!(found.findings[0].text.contains("writer epoch 9"), "{found:#?}");
    assert_eq!(inner.keys(), [fence::KEY]);
    inner.faults.dead.store(true, Ordering::SeqCst);
    assert!(examine(&store, &sim.world()).unwrap_err().contains("cannot be read"));
}
