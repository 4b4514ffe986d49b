use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn a_panic_costs_its_own_answer_and_no_other() {
    let pool = Pool::new();
    for lost in [0, 7, 39] {
        let answers = pool.each(40, |i| {
            assert_ne!(i, lost, "planted: a request panics");
            i * 2
        });
        let expected: Vec<Option<usize>> = (0..40).map(|i| (i != lost).then_some(i * 2)).collect();
        assert_eq!(answers, expected);
    }
    let all_lost = pool.each(20, |_| -> u8 { panic!("planted: every request panics") });
    assert_eq!(all_lost, vec![None; 20]);
    assert_eq!(pool.each(3, |i| i), [Some(0), Some(1), Some(2)], "the threads outlive it");
}

#[test]
fn requests_are_in_flight_together() {
    let pool = Pool::new();
    // Each waits for all: done one after the other they would never end.
    let met = std::sync::Barrier::new(THREADS + 1);
    assert_eq!(pool.each(THREADS + 1, |_| _ = met.wait()).len(), THREADS + 1);
}

#[test]
fn a_batch_ends_though_all_threads_are_held() {
    let pool = Pool::new();
    let (held, busy) = (AtomicBool::new(true), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pool.each(THREADS + 1, |_| {
                busy.fetch_add(1, Ordering::SeqCst);
                while held.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            })
        });
        while busy.load(Ordering::SeqCst) <= THREADS {
            std::thread::yield_now();
        }
        assert_eq!(pool.each(100, |i| i).into_iter().flatten().sum::<usize>(), 4950);
        assert!(pool.shared.jobs.lock().is_empty(), "a finished batch waits for nobody");
        held.store(false, Ordering::SeqCst);
    });
}
