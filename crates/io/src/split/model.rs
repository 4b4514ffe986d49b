//! A discrete-event simulation of devices and of closed-loop clients over a router. Deterministic from its seed.
//!
//! [`run`] keeps a number of requests outstanding, each of which asks the router for a device, waits for it there, and is followed
//! by the next one. Devices ([`device`]) queue, slow down, hang and fail by episodes. The router is the real one: only time, devices
//! and clients are simulated. [`oracle`] is the best that any static split or limit reaches on the same devices.

pub mod device;
pub mod machines;
pub mod oracle;

use super::router::{DeviceStatus, Outcome, Request, Router, Settings};
use super::{DEVICES_MAX, Device, Mask, PerDevice, Policy};
use crate::clock::Nanos;
use device::{Answer, Model, Queue};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

/// From a moment on, this many requests are kept outstanding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    pub from: Nanos,
    pub outstanding: u32,
}

#[derive(Clone)]
pub struct Scene {
    pub devices: Vec<Model>,
    /// The devices as the router knows them. Empty: all alike.
    pub named: Vec<Device>,
    pub block: u32,
    pub threads: u32,
    /// The first device takes longer by this part for each request that is in flight elsewhere: they share a processor.
    pub coupling: f64,
    /// In the order of their moments; the first is at 0.
    pub demand: Vec<Demand>,
    pub length: Nanos,
    /// Length of one entry of `Run::series`.
    pub bucket: Nanos,
    pub seed: u64,
}

impl Scene {
    /// `outstanding` requests for `length`.
    pub fn steady(devices: Vec<Model>, block: u32, threads: u32, outstanding: u32, length: Nanos) -> Scene {
        let demand = vec![Demand { from: 0, outstanding }];
        Scene {
            devices,
            named: Vec::new(),
            block,
            threads,
            coupling: 0.0,
            demand,
            length,
            bucket: 100 * MILLI,
            seed: 1,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Requests that ended in each bucket.
    pub series: Vec<u64>,
    /// The same by device.
    pub by_device: Vec<PerDevice<u64>>,
    pub bucket: Nanos,
    /// Requests that no device could serve.
    pub failed: u64,
    /// The longest latency of a request, with its fall-backs.
    pub latency_max: Nanos,
    pub devices: Vec<DeviceStatus>,
    pub mode: &'static str,
}

impl Run {
    /// Requests a second from a moment to another; both are multiples of the bucket.
    pub fn rate(&self, from: Nanos, to: Nanos) -> f64 {
        let (first, end) = ((from / self.bucket) as usize, (to / self.bucket) as usize);
        let sum: u64 = self.series.iter().take(end).skip(first).sum();
        sum as f64 * 1e9 / (to - from) as f64
    }

    /// The share of a device in a stretch.
    pub fn share(&self, device: usize, from: Nanos, to: Nanos) -> f64 {
        let (first, end) = ((from / self.bucket) as usize, (to / self.bucket) as usize);
        let (mut own, mut all) = (0, 0);
        for bucket in self.by_device.iter().take(end).skip(first) {
            own += bucket[device];
            all += bucket.iter().sum::<u64>();
        }
        own as f64 / (all as f64).max(1.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An attempt of a request ended.
    Ended {
        request: u32,
        attempt: u32,
    },
    /// An attempt has had its time.
    Overdue {
        request: u32,
        attempt: u32,
    },
    Probed {
        device: u32,
        answered: bool,
    },
    Demand {
        number: u32,
    },
}

#[derive(Clone, Copy)]
struct Attempt {
    device: usize,
    started: Nanos,
    answer: Answer,
}

struct Pending {
    started: Nanos,
    attempts: Vec<Attempt>,
    tried: Mask,
    /// Served or given up: what still comes is only counted.
    is_over: bool,
    out: u32,
}

struct World<'a> {
    scene: &'a Scene,
    router: Router,
    queues: Vec<Queue>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    requests: Vec<Pending>,
    free: Vec<u32>,
    open: u32,
    wanted: u32,
    lane: usize,
    run: Run,
}

impl World<'_> {
    fn at(&mut self, time: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn all(&self) -> Request {
        Request { on: ((1u16 << self.queues.len()) - 1) as Mask, bytes: self.scene.block }
    }

    fn begin(&mut self, now: Nanos) {
        self.open += 1;
        self.lane += 1;
        let request = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Pending {
                started: 0,
                attempts: Vec::new(),
                tried: 0,
                is_over: false,
                out: 0,
            });
            self.requests.len() as u32 - 1
        });
        let pending = &mut self.requests[request as usize];
        (pending.started, pending.tried, pending.is_over, pending.out) = (now, 0, false, 0);
        pending.attempts.clear();
        let route = self.router.route(self.lane % self.scene.threads.max(1) as usize, &self.all(), now);
        if let Some(shadow) = route.shadow {
            let (end, answer) = self.queues[shadow].serve(now, 1.0);
            if let Some(end) = end {
                let answered = answer == Answer::Done;
                self.at(end, Event::Probed { device: shadow as u32, answered });
            }
        }
        self.attempt(request, route.device, route.hedge_after, now);
    }

    fn attempt(&mut self, request: u32, device: usize, hedge_after: Nanos, now: Nanos) {
        let elsewhere: u32 = (1..self.queues.len()).map(|device| self.router.in_flight(device)).sum();
        let slower = if device == 0 { 1.0 + self.scene.coupling * f64::from(elsewhere) } else { 1.0 };
        let (end, answer) = self.queues[device].serve(now, slower);
        let pending = &mut self.requests[request as usize];
        let attempt = pending.attempts.len() as u32;
        pending.attempts.push(Attempt { device, started: now, answer });
        pending.tried |= 1 << device;
        pending.out += 1;
        if let Some(end) = end {
            self.at(end, Event::Ended { request, attempt });
        }
        if self.queues.len() > 1 && end.is_none_or(|end| end > now + hedge_after) {
            self.at(now + hedge_after, Event::Overdue { request, attempt });
        }
    }

    /// Tries the next device; false: there is none.
    fn fall_back(&mut self, request: u32, now: Nanos) -> bool {
        let tried = self.requests[request as usize].tried;
        match self.router.fall_back(tried, &self.all()) {
            Some(route) => {
                self.attempt(request, route.device, route.hedge_after, now);
                true
            }
            None => false,
        }
    }

    fn over(&mut self, request: u32, device: Option<usize>, now: Nanos) {
        let pending = &mut self.requests[request as usize];
        pending.is_over = true;
        self.run.latency_max = self.run.latency_max.max(now - pending.started);
        let bucket = (now / self.scene.bucket) as usize;
        if let Some(count) = self.run.series.get_mut(bucket) {
            match device {
                Some(device) => {
                    *count += 1;
                    self.run.by_device[bucket][device] += 1;
                }
                None => self.run.failed += 1,
            }
        }
        self.open -= 1;
        while self.open < self.wanted {
            self.begin(now);
        }
    }

    fn ended(&mut self, request: u32, attempt: u32, now: Nanos) {
        let Attempt { device, started, answer } = self.requests[request as usize].attempts[attempt as usize];
        let outcome = if answer == Answer::Done { Outcome::Done } else { Outcome::Failed };
        let bytes = if answer == Answer::Done { self.scene.block } else { 0 };
        self.router.finished(
            self.lane % self.scene.threads.max(1) as usize,
            device,
            bytes,
            now - started,
            outcome,
            now,
        );
        let pending = &mut self.requests[request as usize];
        pending.out -= 1;
        let waits_for_another = pending.out > 0;
        if !pending.is_over {
            match answer {
                Answer::Done => self.over(request, Some(device), now),
                Answer::Failed if self.fall_back(request, now) || waits_for_another => {}
                Answer::Failed => self.over(request, None, now),
            }
        }
        if self.requests[request as usize].out == 0 && self.requests[request as usize].is_over {
            self.free.push(request);
        }
    }

    fn step(&mut self, event: Event, now: Nanos) {
        match event {
            Event::Ended { request, attempt } => self.ended(request, attempt, now),
            Event::Overdue { request, attempt } => {
                let pending = &self.requests[request as usize];
                // Entries are used again: the attempt must be the one that was meant.
                let is_meant = pending.attempts.get(attempt as usize).is_some_and(|a| a.started < now);
                if !pending.is_over && is_meant && pending.attempts.len() as u32 == attempt + 1 {
                    let device = pending.attempts[attempt as usize].device;
                    self.router.overdue(device, now);
                    self.fall_back(request, now);
                }
            }
            Event::Probed { device, answered } => self.router.probed(device as usize, answered, now),
            Event::Demand { number } => {
                self.wanted = self.scene.demand[number as usize].outstanding;
                while self.open < self.wanted {
                    self.begin(now);
                }
            }
        }
    }
}

/// Runs a scene under a policy.
pub fn run(scene: &Scene, settings: Settings) -> Run {
    assert!((1..=DEVICES_MAX).contains(&scene.devices.len()));
    let names = || scene.devices.iter().map(|model| Device::new(model.name)).collect();
    let named = if scene.named.is_empty() { names() } else { scene.named.clone() };
    let buckets = (scene.length / scene.bucket) as usize;
    let mut world = World {
        router: Router::new(named, Settings { threads: scene.threads, ..settings }),
        queues: scene
            .devices
            .iter()
            .enumerate()
            .map(|(number, model)| Queue::new(model.clone(), scene.threads, scene.seed * 31 + number as u64))
            .collect(),
        events: BinaryHeap::new(),
        sequence: 0,
        requests: Vec::new(),
        free: Vec::new(),
        open: 0,
        wanted: 0,
        lane: 0,
        run: Run {
            series: vec![0; buckets],
            by_device: vec![[0; DEVICES_MAX]; buckets],
            bucket: scene.bucket,
            ..Run::default()
        },
        scene,
    };
    for (number, demand) in scene.demand.iter().enumerate() {
        world.at(demand.from, Event::Demand { number: number as u32 });
    }
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        if now >= scene.length {
            break;
        }
        // The router's zero means "never".
        world.step(event, now.max(1));
    }
    let status = world.router.status();
    (world.run.devices, world.run.mode) = (status.devices, status.mode);
    world.run
}

/// As `run`, with the usual settings.
pub fn play(scene: &Scene, policy: Policy) -> Run {
    run(scene, Settings { policy, ..Settings::default() })
}
