//! The examples do what they say.

#[path = "../examples/counter.rs"]
mod counter;
#[path = "../examples/job_queue.rs"]
mod job_queue;
#[allow(dead_code)]
#[path = "../examples/tiered.rs"]
mod tiered;

#[test]
fn a_counter_loses_no_count() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(counter::run(dir.path(), 4, 50).unwrap(), 200);
    assert_eq!(counter::run(dir.path(), 2, 10).unwrap(), 220, "it goes on where it was");
}

#[test]
fn every_job_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    let (results, done) = job_queue::run(dir.path(), 60, 4).unwrap();
    assert!(results.iter().enumerate().all(|(n, result)| *result == format!("job {n}: done")), "{results:?}");
    assert_eq!((results.len(), done.iter().sum::<u64>()), (60, 60));
}

#[test]
fn data_larger_than_memory_and_volume_is_read_from_the_object_store() {
    let dir = tempfile::tempdir().unwrap();
    let reads = tiered::run(dir.path(), 20_000).unwrap();
    assert!(reads.blocks_sunk > 0 && reads.from_objects > 0, "{reads:?}");
}
