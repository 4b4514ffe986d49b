//! The split on simulated devices: the throughput of each policy in steady states, through congestion, and with failing devices.

use std::sync::Arc;
use terrace_io::split::meter::{Activity, Sample};
use terrace_io::split::model::device::Trouble;
use terrace_io::split::model::{Demand, MILLI, Run, SECOND, Scene, machines, oracle, play, run};
use terrace_io::split::plan::Plan;
use terrace_io::split::planted::{self, Switch};
use terrace_io::split::policy::Start;
use terrace_io::split::profile::{Point, Profile};
use terrace_io::split::{Policy, Settings};

const KIB64: u32 = 64 << 10;

fn scene(machine: &str, block: u32, depth: u32, threads: u32, length: u64) -> Scene {
    Scene::steady(machines::named(machine, block).unwrap(), block, threads, depth * threads, length)
}

fn rate(run: &Run, from: u64, to: u64) -> f64 {
    run.rate(from * MILLI, to * MILLI)
}

/// A machine whose backend has troubles between two moments.
fn troubled(mut scene: Scene, from: u64, to: u64, troubles: &[Trouble]) -> Scene {
    for trouble in troubles {
        scene.devices[1] = scene.devices[1].clone().with(from * MILLI, to * MILLI, *trouble);
    }
    scene
}

#[test]
fn the_model_matches_the_published_profile() {
    // Requests a second at 64 KB of the published table: requests in flight, threads, percent at the cache.
    let published = [
        (1, 1, 100, 53_984.0),
        (1, 1, 0, 2_472.0),
        (16, 4, 100, 111_804.0),
        (16, 16, 100, 78_259.0),
        (16, 16, 60, 135_385.0),
        (16, 16, 55, 119_963.0),
        (16, 16, 0, 53_731.0),
        (8, 8, 70, 155_999.0),
        (2, 4, 100, 112_389.0),
        (1, 8, 0, 16_671.0),
    ];
    for (depth, threads, percent, expected) in published {
        let found = oracle::rate(
            &scene("paper", KIB64, depth, threads, 500 * MILLI),
            Policy::Static(f64::from(percent) / 100.0),
        );
        let off = found / expected;
        assert!(
            (0.8..1.2).contains(&off),
            "depth {depth}, threads {threads}, {percent} %: {found:.0}, not {expected:.0}"
        );
    }
}

#[test]
fn knee_filling_reaches_97_hundredths_of_the_oracle_and_never_falls_below_the_cache_alone() {
    let cells = [
        ("paper", KIB64, 1, 1),
        ("paper", KIB64, 2, 1),
        ("paper", KIB64, 8, 1),
        ("paper", KIB64, 1, 4),
        ("paper", KIB64, 4, 4),
        ("paper", KIB64, 16, 16),
        ("cloud", KIB64, 1, 1),
        ("cloud", KIB64, 8, 1),
        ("cloud", KIB64, 2, 4),
        ("cloud", KIB64, 16, 16),
        ("cloud", 16 << 10, 4, 1),
        ("cloud", 16 << 10, 16, 1),
    ];
    for (machine, block, depth, threads) in cells {
        let best = oracle::best(&scene(machine, block, depth, threads, 250 * MILLI), 8);
        let ran = play(&scene(machine, block, depth, threads, 3 * SECOND), Policy::Knee);
        let found = rate(&ran, 1500, 3000);
        let name = format!("{machine}, {block} bytes, depth {depth}, threads {threads}");
        assert!(found >= 0.97 * best.rate, "{name}: {found:.0} of {best:?}");
        let alone = play(&scene(machine, block, depth, threads, 600 * MILLI), Policy::CacheOnly);
        assert!(found >= 0.99 * rate(&alone, 100, 600), "{name}: {found:.0} is below the cache alone");
    }
}

#[test]
fn knee_filling_holds_95_hundredths_through_congestion_and_recovers_within_a_second() {
    for (machine, depth, threads) in [("paper", 16, 4), ("paper", 16, 16), ("cloud", 16, 4)] {
        for troubles in [
            &[Trouble::Slower(2.67)][..],
            &[Trouble::Slower(10.0)],
            &[Trouble::Slower(2.67), Trouble::Farther(4.0)],
        ] {
            let base = scene(machine, KIB64, depth, threads, 250 * MILLI);
            let before = oracle::best(&base, 8).rate;
            let during = oracle::best(&troubled(base, 0, 1_000_000, troubles), 8).rate;
            let long = Scene { length: 7 * SECOND, ..scene(machine, KIB64, depth, threads, 0) };
            let ran = play(&troubled(long, 2000, 5000, troubles), Policy::Knee);
            let name = format!("{machine}, threads {threads}, {troubles:?}");
            let found = rate(&ran, 2000, 5000) / during;
            assert!(found >= 0.93, "{name}: {found:.3} during the first three seconds of congestion");
            let found = rate(&ran, 3000, 5000) / during;
            assert!(found >= 0.95, "{name}: {found:.3} of the oracle after a second of congestion");
            let found = rate(&ran, 6000, 7000) / before;
            assert!(found >= 0.95, "{name}: {found:.3} of the oracle a second after congestion");
        }
    }
}

fn devices_that_share_a_processor_do_not_cost_throughput() {
    for (coupling, depth) in [(0.05, 16), (0.2, 4), (0.2, 16)] {
        let coupled = |length| Scene { coupling, ..scene("cloud", 16 << 10, depth, 4, length) };
        let alone = oracle::rate(&coupled(400 * MILLI), Policy::CacheOnly);
        let shared = oracle::rate(&coupled(400 * MILLI), Policy::Static(0.8));
        let found = rate(&play(&coupled(5 * SECOND), Policy::Knee), 3000, 5000);
        assert!(
            found >= 0.97 * alone,
            "coupling {coupling}, depth {depth}: {found:.0}, and {alone:.0} alone"
        );
        assert!(shared < alone, "a static share would cost throughput: {shared:.0} against {alone:.0}");
    }
}

#[test]
fn a_backend_that_costs_the_cache_more_than_it_adds_is_closed() {
    devices_that_share_a_processor_do_not_cost_throughput();
}

/// A dip in demand to one request, then the demand from before.
fn after_a_dip(policy: Policy) -> (f64, f64) {
    let demand = [(0, 64), (1500, 1), (3500, 64)]
        .map(|(from, outstanding)| Demand { from: from * MILLI, outstanding });
    let scene = Scene { demand: demand.to_vec(), ..scene("cloud", KIB64, 16, 4, 5500 * MILLI) };
    let ran = play(&scene, policy);
    (rate(&ran, 3500, 4000) / rate(&ran, 1000, 1500), rate(&ran, 4500, 5500) / rate(&ran, 1000, 1500))
}

#[test]
fn after_a_dip_in_demand_the_rate_is_what_it_was() {
    let (at_once, later) = after_a_dip(Policy::Knee);
    assert!(at_once >= 0.93 && later >= 0.99, "{at_once:.3}, then {later:.3} of the rate before the dip");
}

/// Periods of a device with 20 requests in flight, then with one: the limits of the plan after each.
fn a_dip_keeps_the_limit() {
    let (mut governor, _) = Policy::Knee.start(&Start { devices: 1, profile: None, threads: 1 });
    let mut limit_after = |periods: u64, in_flight: u64| {
        let mut limit = 0;
        for _ in 0..periods {
            let (latency, elapsed) = (200_000, 10 * MILLI);
            let finished = in_flight * elapsed / latency;
            let mut sample = Sample { now: SECOND, elapsed, usable: 1, threads: 1, ..Sample::default() };
            sample.devices[0] = Activity { finished, bytes: 1, latency: finished * latency, failed: 0 };
            sample.in_flight[0] = in_flight as u32;
            if let Plan::Fill { limits, .. } = governor.tick(&sample) {
                limit = limits[0];
            }
        }
        limit
    };
    let before = limit_after(100, 20);
    let after = limit_after(100, 1);
    assert!(before >= 20 * 16 && after >= before, "{before} before the dip, {after} after it, in sixteenths");
}

#[test]
fn a_dip_in_demand_is_no_congestion() {
    a_dip_keeps_the_limit();
}

/// The backend was slow while few requests came, and is fast again; nothing but a probe can tell.
fn an_idle_backend_is_measured() {
    let base = scene("cloud", KIB64, 2, 1, 6 * SECOND);
    let ran = play(&base, Policy::CacheOnly);
    let idle = &ran.devices[1];
    assert!(
        idle.probes >= 10,
        "{idle:?}: at full share for the cache the backend is measured again and again"
    );
}

#[test]
fn a_backend_without_a_share_is_measured_again() {
    an_idle_backend_is_measured();
}

fn hangs_are_hedged() {
    for machine in ["paper", "cloud"] {
        let hung = troubled(scene(machine, KIB64, 16, 4, 6 * SECOND), 2000, 4000, &[Trouble::Hangs]);
        let ran = play(&hung, Policy::Knee);
        let alone = oracle::rate(&scene(machine, KIB64, 16, 4, 300 * MILLI), Policy::CacheOnly);
        let found = rate(&ran, 2100, 4000) / alone;
        assert!(found >= 0.99, "{machine}: {found:.3} of the cache alone while the backend hangs");
        assert!(ran.latency_max <= 100 * MILLI, "{machine}: {} ms", ran.latency_max / MILLI);
        let found = rate(&ran, 5000, 6000) / rate(&ran, 1000, 2000);
        assert!(found >= 0.97, "{machine}: {found:.3} a second after the hang");
        assert_eq!(ran.failed, 0);
        assert!(ran.devices[1].suspicions >= 1 && ran.devices[1].probes >= 4, "{:?}", ran.devices[1]);
    }
}

#[test]
fn a_hung_backend_is_hedged_probed_and_used_again() {
    hangs_are_hedged();
}

#[test]
fn a_hung_cache_is_served_by_the_backend() {
    let mut hung = scene("cloud", KIB64, 16, 4, 4 * SECOND);
    hung.devices[0] = hung.devices[0].clone().with(SECOND, 3 * SECOND, Trouble::Hangs);
    let ran = play(&hung, Policy::Knee);
    let alone = oracle::rate(&scene("cloud", KIB64, 16, 4, 300 * MILLI), Policy::BackendOnly);
    let found = rate(&ran, 1100, 3000) / alone;
    assert!(found >= 0.95 && ran.failed == 0, "{found:.3} of the backend alone, {} failed", ran.failed);
}

#[test]
fn failures_fall_back_and_no_request_fails() {
    for policy in Policy::ALL {
        let failing = troubled(scene("cloud", KIB64, 4, 4, 2 * SECOND), 500, 1500, &[Trouble::Fails]);
        let ran = play(&failing, policy);
        assert_eq!(ran.failed, 0, "{policy:?}");
        assert!(rate(&ran, 600, 1500) >= 0.9 * 30_000.0 || policy == Policy::BackendOnly, "{policy:?}");
    }
}

#[test]
fn every_policy_serves_through_random_troubles_and_the_default_ends_at_its_best() {
    for seed in 0..6u64 {
        let mut troubles = scene("cloud", KIB64, 8, 4, 6 * SECOND);
        troubles.seed = seed;
        let mut random = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for _ in 0..6 {
            let (device, from, length) = (below(2) as usize, below(3500), 50 + below(900));
            let what = match below(4) {
                0 => Trouble::Hangs,
                1 => Trouble::Fails,
                2 => Trouble::Farther(2.0 + below(8) as f64),
                _ => Trouble::Slower(2.0 + below(9) as f64),
            };
            let model = troubles.devices[device].clone();
            troubles.devices[device] = model.with(from * MILLI, (from + length) * MILLI, what);
        }
        let ran = play(&troubles, Policy::Knee);
        let best = play(&scene("cloud", KIB64, 8, 4, SECOND), Policy::Knee);
        let found = rate(&ran, 5500, 6000) / rate(&best, 500, 1000);
        assert!(
            found >= 0.95,
            "seed {seed}: {found:.3} a second after the last trouble, of what it was without any"
        );
        for policy in [Policy::HillClimbing, Policy::EqualLatency, Policy::ShortestWait, Policy::NetcasMended]
        {
            let ran = play(&troubles, policy);
            assert!(rate(&ran, 5500, 6000) > 0.0, "seed {seed}, {policy:?}: starved");
        }
    }
}

#[test]
fn netcas_needs_its_profile_and_builds_a_cell_without_one() {
    let cell = scene("paper", KIB64, 16, 4, 8 * SECOND);
    let mut profile = Profile::new("model");
    let alone = Scene { length: 300 * MILLI, ..cell.clone() };
    let rates = [oracle::rate(&alone, Policy::CacheOnly), oracle::rate(&alone, Policy::BackendOnly)];
    profile.put(Point { block: KIB64, depth: 16, threads: 4 }, rates);
    let settings = |profile| Settings { policy: Policy::NetcasPrinted, profile, ..Settings::default() };
    let with = run(&cell, settings(Some(Arc::new(profile))));
    let without = run(&cell, settings(None));
    // The share that the formula names, in the stable mode or near it.
    let (rho, share) = (rates[0] / (rates[0] + rates[1]), with.share(0, SECOND, 3 * SECOND));
    assert!((share - rho).abs() < 0.04, "{share:.3}, and the formula says {rho:.3}");
    assert!(without.share(0, 0, SECOND) > 0.99 && without.share(0, 1200 * MILLI, 2 * SECOND) < 0.01);
    let share = without.share(0, 2500 * MILLI, 4500 * MILLI);
    assert!((share - rho).abs() < 0.08, "{share:.3} with its own cell, and the formula says {rho:.3}");
}

#[test]
fn a_run_repeats_from_its_seed() {
    let scene = troubled(scene("paper", KIB64, 8, 4, SECOND), 300, 600, &[Trouble::Slower(3.0)]);
    assert_eq!(play(&scene, Policy::Knee).by_device, play(&scene, Policy::Knee).by_device);
}

/// Turns a planted bug on and expects the test to find it.
fn finds(bug: &Switch, test: fn()) {
    bug.set(true);
    let found = std::panic::catch_unwind(test);
    bug.set(false);
    assert!(found.is_err(), "the planted bug was not found by {}", std::any::type_name_of_val(&test));
}

#[test]
#[ignore = "plants bugs: run with -- --ignored planted"]
fn planted_bugs_of_the_split_are_found() {
    finds(&planted::BACKEND_NEVER_CLOSED, devices_that_share_a_processor_do_not_cost_throughput);
    finds(&planted::IDLE_NOT_PROBED, an_idle_backend_is_measured);
    finds(&planted::HANG_NOT_SUSPECTED, hangs_are_hedged);
    finds(&planted::DIP_TAKEN_FOR_CONGESTION, a_dip_keeps_the_limit);
}
