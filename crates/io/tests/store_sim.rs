//! The simulated store keeps the contract, and bends it only where faults are switched on.

mod store_contract;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store_contract::uploads::{PART, body, put, stream};
use terrace_io::store::{
    Bytes, MultipartPlan, ObjectStore, Purpose, Result, StoreError, Upload, UploadPart, Version,
};
use terrace_sim::SimWorld;

#[test]
fn the_simulated_store_keeps_the_contract() {
    let sim = SimWorld::new(1);
    let store = sim.store("objects");
    store_contract::all(&*store);
    store_contract::uploads::a_part_that_the_store_never_got_makes_no_object(&*store);
    store_contract::one_of_many_wins(&*store);
}

#[test]
fn acknowledged_puts_are_never_lost() {
    let (mut unknown, mut late) = (0, 0);
    for seed in 0..100 {
        let sim = SimWorld::new(seed);
        let store = sim.store("objects");
        store.faults.unknown.store(3, Ordering::SeqCst);
        store.faults.unavailable.store(5, Ordering::SeqCst);
        store.faults.throttled.store(7, Ordering::SeqCst);
        let mut kept = Vec::new();
        let mut doubtful = Vec::new();
        for i in 0..30u8 {
            let key = format!("k/{i}");
            match store.put_if_absent(Purpose::Sink, &key, &[Bytes::from(vec![i; 10])]) {
                Ok(_) => kept.push((key, i)),
                Err(StoreError::Unknown { .. }) => doubtful.push(key),
                Err(StoreError::Unavailable { .. } | StoreError::Throttled { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.faults.unavailable.store(0, Ordering::SeqCst);
        store.faults.throttled.store(0, Ordering::SeqCst);
        unknown += doubtful.len();
        let before = doubtful.iter().filter(|key| store.keys().contains(key)).count();
        store.land_late_puts();
        late += doubtful.iter().filter(|key| store.keys().contains(key)).count() - before;
        for (key, i) in kept {
            assert_eq!(store.get(Purpose::Merge, &key).unwrap().0, [i; 10], "seed {seed}");
        }
    }
    assert!(unknown > 500 && late > 10, "the harness must bite: {unknown} unknown, {late} late");
}

#[test]
fn a_late_conditional_put_replaces_only_the_version_it_named() {
    let (mut landed, mut came_to_nothing) = (0, 0);
    for seed in 0..100 {
        let store = SimWorld::new(seed).store("objects");
        let put = |body: &[u8], expected: &Version| store.put_if_match(Purpose::Epoch, "e", body, expected);
        let first = store.put_if_absent(Purpose::Epoch, "e", &[Bytes::from_static(b"first")]).unwrap();
        store.faults.unknown.store(1, Ordering::SeqCst);
        assert!(matches!(put(b"late", &first), Err(StoreError::Unknown { .. })));
        store.faults.unknown.store(0, Ordering::SeqCst);
        let replaced = seed % 2 == 0 && put(b"second", &first).is_ok();
        let before = store.get(Purpose::Epoch, "e").unwrap().0;
        store.land_late_puts();
        let after = store.get(Purpose::Epoch, "e").unwrap().0;
        assert!(!replaced || after == b"second", "seed {seed}");
        landed += u32::from(before != after);
        came_to_nothing += u32::from(replaced);
    }
    assert!(landed > 5 && came_to_nothing > 10, "{landed} landed late, {came_to_nothing} came to nothing");
}

fn put_small_parts(store: &dyn ObjectStore, key: &str, body: &[u8]) -> Result<Version> {
    let mut pieces = body.chunks(7);
    let plan = MultipartPlan { part_bytes: 10, in_flight_max: 4 };
    store.put_multipart(Purpose::Sink, key, &plan, &mut || Ok(pieces.next().map(Bytes::copy_from_slice)))
}

#[test]
fn power_lost_at_any_step_of_an_upload_leaves_the_whole_object_or_none() {
    let body = body(45);
    let (mut whole, mut none, mut pending) = (0, 0, 0);
    // The beginning, five parts, the completion.
    for step in 1..=8 {
        let sim = SimWorld::new(step);
        let simulated = sim.store("objects");
        sim.crash_at(sim.steps() + step);
        let done = put_small_parts(&*simulated, "k", &body);
        sim.power_on();
        match simulated.get(Purpose::Merge, "k") {
            Ok((read, _)) => {
                assert_eq!(read, body, "step {step}");
                whole += 1;
            }
            Err(StoreError::Absent { .. }) => {
                assert!(done.is_err(), "step {step}: acknowledged and lost");
                none += 1;
            }
            Err(error) => panic!("{error}"),
        }
        // The owner of the key finds and removes what is left.
        let left = simulated.staged();
        pending += left.len();
        let removed = simulated.remove_staged(Purpose::Scrub, "k", &|_| true).unwrap();
        assert_eq!((removed as usize, simulated.staged().len()), (left.len(), 0));
    }
    assert_eq!((whole, none, pending), (1, 7, 6), "the crashes must fall on every step");
}

#[test]
fn lost_replies_never_leave_a_part_of_an_object_nor_an_object_after_a_failure_that_is_known() {
    let body = body(45);
    let (mut done, mut unknown_there, mut unknown_absent) = (0, 0, 0);
    for seed in 0..400 {
        let store = SimWorld::new(seed).store("objects");
        store.faults.unknown.store(8, Ordering::SeqCst);
        let result = put_small_parts(&*store, "k", &body);
        store.faults.unknown.store(0, Ordering::SeqCst);
        store.land_late_puts();
        let is_there = store.keys().len() == 1;
        match result {
            Ok(_) => {
                assert!(is_there, "seed {seed}");
                done += 1;
            }
            Err(StoreError::Unknown { .. }) if is_there => unknown_there += 1,
            Err(StoreError::Unknown { .. }) => unknown_absent += 1,
            Err(error) => assert!(!is_there, "seed {seed}: {error}"),
        }
        if is_there {
            assert_eq!(stream(&*store, "k", 4, 2).unwrap(), body, "seed {seed}");
        }
    }
    assert!(
        done > 50 && unknown_there > 3 && unknown_absent > 3,
        "the faults must fall on completions: {done} done, {unknown_there} unknown and there, {unknown_absent} unknown and absent"
    );
}

/// A planted bug: the store acknowledges a part and drops it.
#[test]
fn a_part_lost_in_the_middle_is_found_when_the_upload_is_completed() {
    let store = SimWorld::new(1).store("objects");
    let body = body(45);
    let mut pieces = body.chunks(10);
    let mut given = 0;
    let plan = MultipartPlan { part_bytes: 10, in_flight_max: 1 };
    let done = store_of(&store).put_multipart(Purpose::Sink, "k", &plan, &mut || {
        given += 1;
        // Two parts are read before the first is sent: the third is sent while the fourth is to come.
        store.faults.dropped_parts.store(u64::from(given == 4), Ordering::SeqCst);
        Ok(pieces.next().map(Bytes::copy_from_slice))
    });
    assert!(matches!(&done, Err(StoreError::Refused { cause, .. }) if cause.contains("part")), "{done:?}");
    assert!(store.keys().is_empty() && store.staged().is_empty());
}

fn store_of(store: &Arc<terrace_sim::SimStore>) -> &dyn ObjectStore {
    &**store
}

/// A planted bug: a layer that closes the gap over a part in the middle, so that the store below sees nothing wrong.
struct ClosesGap(Arc<terrace_sim::SimStore>);

impl ObjectStore for ClosesGap {
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn put_if_absent(&self, purpose: Purpose, key: &str, parts: &[Bytes]) -> Result<Version> {
        self.0.put_if_absent(purpose, key, parts)
    }
    fn put_if_match(&self, purpose: Purpose, key: &str, body: &[u8], expected: &Version) -> Result<Version> {
        self.0.put_if_match(purpose, key, body, expected)
    }
    fn get_range(&self, purpose: Purpose, key: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.get_range(purpose, key, offset, buf)
    }
    fn get(&self, purpose: Purpose, key: &str) -> Result<(Vec<u8>, Version)> {
        self.0.get(purpose, key)
    }
    fn head(&self, purpose: Purpose, key: &str) -> Result<(u64, Version)> {
        self.0.head(purpose, key)
    }
    fn begin_upload(&self, purpose: Purpose, key: &str) -> Result<Upload> {
        self.0.begin_upload(purpose, key)
    }
    fn put_part(
        &self,
        purpose: Purpose,
        upload: &Upload,
        n: u32,
        offset: u64,
        body: &Bytes,
    ) -> Result<UploadPart> {
        let (number, at) = if n > 1 { (n - 1, offset - PART as u64) } else { (n, offset) };
        if n != 1 {
            self.0.put_part(purpose, upload, number, at, body)?;
        }
        Ok(UploadPart { number: n, offset, bytes: body.len() as u64, tag: String::new() })
    }
    fn complete_upload(&self, purpose: Purpose, upload: &Upload, parts: &[UploadPart]) -> Result<Version> {
        let mut closed: Vec<UploadPart> = parts.iter().filter(|part| part.number != 1).cloned().collect();
        closed.iter_mut().skip(1).for_each(|part| {
            (part.number, part.offset) = (part.number - 1, part.offset - PART as u64);
        });
        self.0.complete_upload(purpose, upload, &closed)
    }
    fn abort_upload(&self, purpose: Purpose, upload: &Upload) -> Result<()> {
        self.0.abort_upload(purpose, upload)
    }
    fn delete(&self, purpose: Purpose, key: &str) -> Result<()> {
        self.0.delete(purpose, key)
    }
    fn list(&self, purpose: Purpose, prefix: &str, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.0.list(purpose, prefix, each)
    }
}

#[test]
fn the_contract_finds_a_layer_that_loses_a_part_in_the_middle() {
    let store = ClosesGap(SimWorld::new(1).store("objects"));
    put(&store, "k", &body(PART + 10)).unwrap();
    assert_eq!(store.get(Purpose::Merge, "k").unwrap().0.len(), PART, "the planted bug does nothing");
    let found = std::panic::catch_unwind(AssertUnwindSafe(|| store_contract::uploads::all(&store)));
    let found = found.expect_err("the contract was kept");
    let message =
        found.downcast_ref::<String>().map(String::as_str).or(found.downcast_ref::<&str>().copied());
    assert!(message.is_some_and(|message| message.contains("differs from what was uploaded")), "{message:?}");
}
