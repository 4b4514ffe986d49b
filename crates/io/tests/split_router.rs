//! Properties of the split router alone: which side gets a request, what is counted, and that the fast path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use terrace_io::split::health::ANSWERS;
use terrace_io::split::router::LANES;
use terrace_io::split::{Device, Outcome, Policy, Request, Router, Settings, members};

const MILLI: u64 = 1_000_000;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

struct Counting;

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().chain([
        Policy::Static(0.7),
        Policy::Random(0.3),
        Policy::Batched(0.5),
        Policy::Limited(0, 4),
    ])
}

fn two(policy: Policy) -> Router {
    Router::new(vec![Device::new("flash"), Device::new("volume")], Settings { policy, ..Settings::default() })
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 32) * bound) >> 32
    }
}

#[test]
fn each_request_gets_a_device_that_has_the_bytes_whatever_happened_before() {
    for (seed, policy) in policies().enumerate() {
        let devices = vec![
            Device::new("flash"),
            Device::new("volume"),
            Device::new("peer"),
            Device { billed: true, ..Device::new("store") },
        ];
        let router = Router::new(devices, Settings { policy, ..Settings::default() });
        let (mut random, mut now, mut open) = (Random(seed as u64), 1, Vec::new());
        for _ in 0..20_000 {
            now += random.below(300_000);
            let request = Request { on: 1 + random.below(15) as u8, bytes: 16384 };
            let route = router.route(random.below(40) as usize, &request, now);
            assert!(request.on & 1 << route.device != 0, "{policy:?}: {route:?} of {request:?}");
            if let Some(shadow) = route.shadow {
                assert!(shadow != route.device && request.on & 1 << shadow != 0);
                router.probed(shadow, random.below(2) == 0, now);
            }
            open.push((route.device, now));
            match random.below(50) {
                0 => router.overdue(route.device, now),
                1 => {
                    let next = router.fall_back(1 << route.device, &request);
                    assert_eq!(next.is_none(), request.on.is_power_of_two());
                    open.extend(next.map(|next| (next.device, now)));
                }
                _ => {}
            }
            while open.len() > 20 {
                let (device, started) = open.swap_remove(random.below(20) as usize);
                let outcome =
                    [Outcome::Done, Outcome::Done, Outcome::Failed, Outcome::Stale][random.below(4) as usize];
                router.finished(0, device, 16384, now - started, outcome, now);
            }
        }
        let status = router.status();
        let in_flight: u32 = status.devices.iter().map(|device| device.in_flight).sum();
        assert_eq!(in_flight as usize, open.len(), "{policy:?}");
    }
}

#[test]
fn routing_and_finishing_allocate_nothing_and_ticks_are_rare() {
    for policy in policies() {
        let router = two(policy);
        let mut now = 1;
        let mut serve = |count: u64| {
            for _ in 0..count {
                let route = router.route(1, &Request { on: 3, bytes: 16384 }, now);
                now += 1000;
                router.finished(1, route.device, 16384, 1000, Outcome::Done, now);
            }
        };
        // The window of NetCAS has grown to its length after two seconds.
        serve(3_000_000 / 100);
        let before = ALLOCATIONS.get();
        serve(9_000);
        // 9 ms: at most one tick falls into it.
        let allocated = ALLOCATIONS.get() - before;
        assert!(allocated <= 4, "{policy:?}: {allocated} allocations in 9,000 requests");
    }
}

#[test]
fn shares_hold_within_half_a_request_a_lane() {
    let router = two(Policy::Static(0.37));
    let mut got = [0i64; 2];
    for request in 0..10_000u64 {
        let route = router.route(request as usize % 3, &Request { on: 3, bytes: 1 }, 1 + request);
        got[route.device] += 1;
        router.finished(0, route.device, 1, 1, Outcome::Done, 2 + request);
        let wanted = (request + 1) as f64 * 0.37;
        // Three lanes, and weights rounded to one part of 8192.
        assert!((got[0] as f64 - wanted).abs() <= 3.0 * 0.5 + 1.3, "after {request}: {got:?}");
    }
}

#[test]
fn a_device_that_bills_by_request_gets_no_hits_without_a_weight_and_serves_what_it_alone_has() {
    for policy in policies() {
        for (weight, gets_hits) in [(None, false), (Some(0.0), false), (Some(1.0), true)] {
            let store = Device { billed: true, weight, ..Device::new("store") };
            let router =
                Router::new(vec![Device::new("flash"), store], Settings { policy, ..Settings::default() });
            let (mut hits, mut now) = (0, 1);
            for _ in 0..5_000 {
                now += MILLI / 4;
                let routes: Vec<_> =
                    (0..8).map(|_| router.route(0, &Request { on: 3, bytes: 16384 }, now)).collect();
                for route in routes {
                    hits += u64::from(route.device == 1);
                    router.finished(0, route.device, 16384, 1000, Outcome::Done, now + 1000);
                }
            }
            assert_eq!(hits > 0, gets_hits, "{policy:?}, weight {weight:?}: {hits}");
            assert_eq!(router.route(0, &Request { on: 2, bytes: 16384 }, now).device, 1, "a miss on flash");
        }
    }
}

#[test]
fn a_hung_device_gets_no_requests_until_its_probes_are_answered() {
    for policy in policies().filter(|policy| *policy != Policy::CacheOnly) {
        let router = two(policy);
        let both = Request { on: 3, bytes: 16384 };
        router.overdue(1, 1);
        let (mut now, mut probes) = (1, 0);
        for _ in 0..3_000 {
            now += MILLI;
            let route = router.route(0, &both, now);
            assert_eq!(route.device, 0, "{policy:?}");
            router.finished(0, 0, 16384, 1000, Outcome::Done, now + 1000);
            if let Some(shadow) = route.shadow {
                assert_eq!(shadow, 1);
                probes += 1;
                router.probed(1, false, now);
            }
        }
        // Every 200 ms at least, and not more often than every 5 ms.
        assert!((3_000 / 205..50).contains(&probes), "{policy:?}: {probes}");
        let mut answered = 0;
        while router.status().devices[1].is_suspect {
            now += MILLI;
            let route = router.route(0, &both, now);
            router.finished(0, route.device, 16384, 1000, Outcome::Done, now + 1000);
            if route.shadow.is_some() {
                router.probed(1, true, now);
                answered += 1;
            }
        }
        assert_eq!(answered, ANSWERS, "{policy:?}");
    }
}

#[test]
fn three_failures_in_a_row_are_suspect_and_if_all_are_suspect_requests_still_go_somewhere() {
    let router = two(Policy::Knee);
    let both = Request { on: 3, bytes: 16384 };
    for device in [0, 1] {
        for _ in 0..3 {
            router.finished(0, device, 0, 1000, Outcome::Failed, 5);
        }
    }
    let status = router.status();
    assert!(status.devices.iter().all(|device| device.is_suspect && device.failed == 3), "{status:?}");
    for now in 10..1000 {
        let route = router.route(0, &both, now);
        assert!(members(both.on).any(|device| device == route.device));
    }
}

#[test]
fn threads_share_a_router_and_no_request_is_lost_or_counted_twice() {
    let router = two(Policy::Knee);
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let router = &router;
            scope.spawn(move || {
                for request in 0..50_000u64 {
                    let now = 1 + request * 2000;
                    // Two threads a lane: a lane's word is changed by both.
                    let route = router.route(lane / 2, &Request { on: 3, bytes: 16384 }, now);
                    router.finished(lane / 2 + LANES, route.device, 16384, 1000, Outcome::Done, now);
                }
            });
        }
    });
    let status = router.status();
    assert_eq!(status.devices.iter().map(|device| device.reads).sum::<u64>(), 200_000);
    assert!(status.devices.iter().all(|device| device.in_flight == 0), "{status:?}");
}

#[test]
fn one_reader_that_loses_its_processor_now_and_then_stays_on_the_nearest_device() {
    for seed in 1..=20 {
        let (router, mut random) = (two(Policy::Knee), Random(seed));
        let (mut now, mut served) = (1, [0u64; 2]);
        while now < 60_000 * MILLI {
            let route = router.route(0, &Request { on: 3, bytes: 16384 }, now);
            let latency = [100_000, 300_000][route.device] + random.below(50_000);
            let stall = if random.below(400) == 0 { 20 * MILLI } else { 0 };
            now += latency + stall;
            router.finished(0, route.device, 16384, latency + stall, Outcome::Done, now);
            served[route.device] += 1;
        }
        let farther = served[1] as f64 / (served[0] + served[1]) as f64;
        assert!(farther < 0.005, "seed {seed}: {farther} of the reads went to the farther device");
    }
}
