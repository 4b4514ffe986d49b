//! The experiments of `terrace bench split`: NetCAS's figures and ours, on simulated machines and on real ones.
//!
//! Each returns numbers; the command prints them. Simulated ones take no device and repeat from their seeds.

pub mod real;

use super::Policy;
use super::model::device::Trouble;
use super::model::{MILLI, Run, SECOND, Scene, machines, oracle, run};
use super::profile::{DEPTHS, Point, Profile};
use super::router::Settings;
use crate::clock::Nanos;
use std::sync::Arc;

/// How long each trial is. Shorter trials are noisier.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Length of each trial of the oracle and of the profile.
    pub trial: Nanos,
    /// Length of each policy's run; the second half counts.
    pub run: Nanos,
    /// Ratios that the oracle tries.
    pub steps: u32,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { trial: 250 * MILLI, run: 6 * SECOND, steps: 20 }
    }
}

fn scene(machine: &str, at: Point, length: Nanos) -> Option<Scene> {
    let devices = machines::named(machine, at.block)?;
    Some(Scene::steady(devices, at.block, at.threads, at.outstanding(), length))
}

/// A profile of a simulated machine: the cells of one block size and number of threads.
pub fn profile(machine: &str, block: u32, threads: u32, trial: Nanos) -> Option<Profile> {
    let mut profile = Profile::new(machine);
    for depth in DEPTHS {
        let at = Point { block, depth, threads };
        let scene = scene(machine, at, trial)?;
        let alone = |policy| oracle::rate(&scene, policy);
        profile.put(at, [alone(Policy::CacheOnly), alone(Policy::BackendOnly)]);
    }
    Some(profile)
}

fn settings(policy: Policy, profile: &Arc<Profile>) -> Settings {
    Settings { policy, profile: Some(profile.clone()), ..Settings::default() }
}

/// One cell of the grid. Rates are requests a second.
#[derive(Clone, Debug)]
pub struct Cell {
    pub machine: String,
    pub at: Point,
    pub oracle: oracle::Best,
    pub rates: Vec<(Policy, f64)>,
}

/// A steady state. None: there is no such machine.
pub fn cell(machine: &str, at: Point, policies: &[Policy], lengths: Lengths) -> Option<Cell> {
    let profile = Arc::new(profile(machine, at.block, at.threads, lengths.trial)?);
    let oracle = oracle::best(&scene(machine, at, lengths.trial)?, lengths.steps);
    let long = scene(machine, at, lengths.run)?;
    let half = lengths.run / 2 / long.bucket * long.bucket;
    let rates = policies.iter().map(|policy| {
        let ran = run(&long, settings(*policy, &profile));
        (*policy, ran.rate(half, lengths.run))
    });
    let rates = rates.collect();
    Some(Cell { machine: machine.into(), at, oracle, rates })
}

/// What a policy made of congestion.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub policy: Policy,
    /// Requests a second in each bucket.
    pub series: Vec<f64>,
    /// Parts of the oracle's rate: before, during and after.
    pub ratios: [f64; 3],
    /// From the end of congestion until three buckets in a row have 95 % of the oracle; None: never.
    pub recovery: Option<Nanos>,
    /// Its mode at the end.
    pub mode: &'static str,
}

#[derive(Clone, Debug)]
pub struct Congestion {
    pub machine: String,
    pub at: Point,
    pub bucket: Nanos,
    pub from: Nanos,
    pub to: Nanos,
    /// Requests a second without congestion and with it.
    pub oracle: [f64; 2],
    pub policies: Vec<Timeline>,
}

/// NetCAS's Fig. 7: ten flows of 2.5 Gb/s on a link of 40 Gb/s take the backend's bandwidth for `long`, after `quiet` and before
/// as much again.
pub fn congestion(
    machine: &str,
    at: Point,
    policies: &[Policy],
    quiet: Nanos,
    long: Nanos,
    lengths: Lengths,
) -> Option<Congestion> {
    let profile = Arc::new(profile(machine, at.block, at.threads, lengths.trial)?);
    let slower = Trouble::Slower(40.0 / 15.0);
    let (from, to) = (quiet, quiet + long);
    let congested = |mut scene: Scene, from, to| {
        scene.devices[1] = scene.devices[1].clone().with(from, to, slower);
        scene
    };
    let short = || scene(machine, at, lengths.trial);
    let oracle = [
        oracle::best(&short()?, lengths.steps).rate,
        oracle::best(&congested(short()?, 0, Nanos::MAX), lengths.steps).rate,
    ];
    let whole = congested(scene(machine, at, to + quiet)?, from, to);
    let timelines = policies.iter().map(|policy| {
        let ran = run(&whole, settings(*policy, &profile));
        Timeline {
            policy: *policy,
            series: ran.series.iter().map(|n| *n as f64 * 1e9 / ran.bucket as f64).collect(),
            ratios: [
                ran.rate(from / 2, from) / oracle[0],
                ran.rate(from, to) / oracle[1],
                ran.rate(to, to + quiet) / oracle[0],
            ],
            recovery: recovery(&ran, to, oracle[0]),
            mode: ran.mode,
        }
    });
    let policies = timelines.collect();
    Some(Congestion { machine: machine.into(), at, bucket: whole.bucket, from, to, oracle, policies })
}

fn recovery(ran: &Run, end: Nanos, oracle: f64) -> Option<Nanos> {
    let first = (end / ran.bucket) as usize;
    let enough = 0.95 * oracle * ran.bucket as f64 / 1e9;
    let after = ran.series.get(first..)?;
    let found = after.windows(3).position(|three| three.iter().all(|n| *n as f64 >= enough))?;
    Some(found as Nanos * ran.bucket)
}

/// NetCAS's Fig. 8: `flows` uncapped flows share the backend's link for the whole run.
pub fn level(machine: &str, at: Point, flows: u32, policies: &[Policy], lengths: Lengths) -> Option<Cell> {
    let profile = Arc::new(profile(machine, at.block, at.threads, lengths.trial)?);
    let crowded = |length| {
        let mut scene = scene(machine, at, length)?;
        let slower = Trouble::Slower(f64::from(flows + 1));
        scene.devices[1] = scene.devices[1].clone().with(0, Nanos::MAX, slower);
        Some(scene)
    };
    let oracle = oracle::best(&crowded(lengths.trial)?, lengths.steps);
    let long = crowded(lengths.run)?;
    let half = lengths.run / 2 / long.bucket * long.bucket;
    let rates = policies.iter().map(|policy| {
        let ran = run(&long, settings(*policy, &profile));
        (*policy, ran.rate(half, lengths.run))
    });
    let rates = rates.collect();
    Some(Cell { machine: machine.into(), at, oracle, rates })
}

/// NetCAS's Fig. 5: one ratio, the best one, by Algorithm 1, drawn at random, and with its rounding errors carried on.
pub fn dispatch(machine: &str, at: Point, lengths: Lengths) -> Option<Cell> {
    let short = scene(machine, at, lengths.trial)?;
    let oracle = oracle::best(&short, lengths.steps);
    let long = scene(machine, at, lengths.run)?;
    let ways = [Policy::Batched(oracle.ratio), Policy::Random(oracle.ratio), Policy::Static(oracle.ratio)];
    let rates = ways.map(|policy| (policy, oracle::rate(&long, policy))).to_vec();
    Some(Cell { machine: machine.into(), at, oracle, rates })
}
