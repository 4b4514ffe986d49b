use super::*;
use crate::page::SpaceId;
use std::sync::mpsc;
use std::time::Duration;
use terrace_io::real::world;

fn key(block: u32) -> ObjectKey {
    ObjectKey { lineage: 7, space: SpaceId(20), block, epoch: 9, sequence: 1 }
}

fn page(block: u32, offset: usize) -> InObject {
    InObject { key: key(block), offset, length: 100 }
}

/// A reader waits for an object's request as soon as there is one.
fn coalescer(memory: usize) -> Coalescer {
    Coalescer { busy: 1, patience: 600_000_000_000, ..Coalescer::new(world().sched, memory) }
}

/// What the page at `at` holds, and how often the store was asked.
fn fetch(c: &Coalescer, at: InObject, requests: &AtomicUsize) -> Vec<u8> {
    match c.turn(&at) {
        FetchTurn::Come(span) => span.body(&at).to_vec(),
        FetchTurn::Go(flight) => {
            requests.fetch_add(1, Ordering::SeqCst);
            let (from, to) = flight.range(&at).unwrap_or(extent(&at));
            flight.come(from, answer(at.key, from, to)).body(&at).to_vec()
        }
    }
}

/// Bytes of an object.
fn bytes(key: ObjectKey, from: usize, to: usize) -> Vec<u8> {
    (from..to).map(|at| (at / 100 * 31 + key.block as usize) as u8).collect()
}

/// The same, as they come.
fn answer(key: ObjectKey, from: usize, to: usize) -> AlignedBuf {
    let mut answer = AlignedBuf::zeroed(to - from);
    answer[..to - from].copy_from_slice(&bytes(key, from, to));
    answer
}

fn whole(at: &InObject) -> Vec<u8> {
    bytes(at.key, at.offset, at.offset + at.length)
}

fn go(c: &Coalescer, at: InObject) -> Flight<'_> {
    match c.turn(&at) {
        FetchTurn::Go(flight) => flight,
        FetchTurn::Come(_) => panic!("nobody fetches it"),
    }
}

fn until(condition: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}

fn waiting(c: &Coalescer, block: u32) -> usize {
    c.state.lock().objects.get(&key(block)).map_or(0, Vec::len)
}

#[test]
fn waiting_reads_are_combined_into_one_request() {
    let (c, requests) = (coalescer(1 << 20), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let first = go(&c, page(1, 0));
        assert_eq!(first.range(&page(1, 0)), None);
        for i in 1..=3 {
            let (c, requests) = (&c, &requests);
            scope.spawn(move || assert_eq!(fetch(c, page(1, 500 * i), requests), whole(&page(1, 500 * i))));
        }
        until(|| waiting(&c, 1) == 3);
        assert_eq!(requests.load(Ordering::SeqCst), 0);
        // Another object's are not waited for.
        assert_eq!(fetch(&c, page(2, 0), &AtomicUsize::new(0)), whole(&page(2, 0)));
        drop(first);
    });
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert_eq!(c.room.load(Ordering::SeqCst), 1 << 20);
    let state = c.state.lock();
    assert!(state.requests == 0 && state.objects.is_empty());
}

#[test]
fn no_read_waits_where_few_requests_are_under_way() {
    let c = Coalescer { busy: 3, patience: PATIENCE, ..coalescer(1 << 20) };
    let flights = [go(&c, page(1, 0)), go(&c, page(1, 100)), go(&c, page(2, 0))];
    assert!(flights.iter().all(|flight| flight.with.is_empty()));
    // A fourth would wait for the end of the first, in vain.
    let before = std::time::Instant::now();
    drop(go(&c, page(1, 200)));
    assert!(before.elapsed() >= Duration::from_nanos(PATIENCE));
    assert_eq!(waiting(&c, 1), 0);
    drop(flights);
    assert_eq!(c.state.lock().requests, 0);
}

#[test]
fn a_range_takes_no_more_memory_than_there_is() {
    let (c, requests) = (coalescer(1000), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let first = go(&c, page(1, 0));
        for (before, offset) in [5000, 5900, 9000].into_iter().enumerate() {
            let (c, requests) = (&c, &requests);
            scope.spawn(move || assert_eq!(fetch(c, page(1, offset), requests), whole(&page(1, offset))));
            until(|| waiting(c, 1) > before);
        }
        drop(first);
    });
    // Two together, and the one that is far away.
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert_eq!(c.room.load(Ordering::SeqCst), 1000);
}

/// An error is not passed on: misses that waited for the failed request send their own.
#[test]
fn waiters_of_a_failed_request_ask_again_by_themselves() {
    let c = coalescer(1 << 20);
    let (told, went) = mpsc::channel();
    std::thread::scope(|scope| {
        let first = go(&c, page(1, 0));
        for i in 1..=3 {
            let (c, told) = (&c, told.clone());
            scope.spawn(move || {
                let flight = go(c, page(1, 100 * i));
                told.send(flight.range(&page(1, 100 * i))).unwrap();
                // And fails.
            });
        }
        until(|| waiting(&c, 1) == 3);
        drop(first);
    });
    drop(told);
    let ranges: Vec<_> = went.iter().collect();
    assert_eq!(ranges.len(), 3);
    assert_eq!(ranges.iter().flatten().count(), 1, "one would have brought all three: {ranges:?}");
    assert_eq!(c.room.load(Ordering::SeqCst), 1 << 20);
    assert!(c.state.lock().requests == 0 && c.state.lock().objects.is_empty());
}

/// Threads that fetch, fail and give up: each gets its page, and nothing is left over.
#[test]
fn parallel_reads_of_one_object_share_requests() {
    many_who_wait(600_000_000_000);
}

/// About as long as a request takes.
#[test]
fn parallel_reads_that_stop_waiting_leave_the_others_whole() {
    many_who_wait(60_000);
}

fn many_who_wait(patience: u64) {
    let c = Coalescer { busy: 4, patience, ..coalescer(3000) };
    let (requests, pages) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..16usize {
            let (c, requests, pages) = (&c, &requests, &pages);
            scope.spawn(move || {
                for round in 0..500 {
                    let n = thread * 7919 + round * 104_729;
                    let at = page((n % 3) as u32, n / 3 % 40 * 100);
                    match c.turn(&at) {
                        FetchTurn::Come(span) => assert_eq!(span.body(&at), whole(&at)),
                        FetchTurn::Go(flight) => {
                            requests.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_micros(50));
                            if n % 17 == 0 {
                                continue; // it fails
                            }
                            let (from, to) = flight.range(&at).unwrap_or(extent(&at));
                            assert_eq!(flight.come(from, answer(at.key, from, to)).body(&at), whole(&at));
                        }
                    }
                    pages.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let (requests, pages) = (requests.into_inner(), pages.into_inner());
    assert!(requests < 16 * 500 && pages > 7000, "{requests} requests for {pages} pages");
    assert_eq!(c.room.load(Ordering::SeqCst), 3000);
    let state = c.state.lock();
    assert!(state.requests == 0 && state.objects.is_empty());
}
