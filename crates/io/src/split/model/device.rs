//! One simulated device: servers with a queue in front of them, and a delay behind them that holds nothing up.

use crate::clock::Nanos;
use crate::emulate::Spread;

/// How many requests are served at a time, and how fast.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Servers {
    /// This many, each with the given mean time for a request.
    Each(u32, Nanos),
    /// The calling threads do the work, as in persistent memory: (threads in it at a time, requests a second by all of them).
    /// Between two entries the rate is interpolated.
    ByThread(&'static [(u32, f64)], f64),
}

/// A stretch of time in which a device is not what it was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Episode {
    pub from: Nanos,
    pub to: Nanos,
    pub what: Trouble,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Trouble {
    /// Service takes this many times as long.
    Slower(f64),
    /// Delay takes this many times as long, whatever this client does.
    Farther(f64),
    /// Requests get no answer until the episode ends.
    Hangs,
    /// Requests fail after the delay.
    Fails,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub servers: Servers,
    /// Added to each request: the network, the medium's own latency.
    pub delay: Nanos,
    /// Spread of the delay.
    pub spread: Spread,
    /// Service times vary evenly by this part of their mean, up and down.
    pub jitter: f64,
    pub episodes: Vec<Episode>,
}

impl Model {
    pub fn with(mut self, from: Nanos, to: Nanos, what: Trouble) -> Model {
        self.episodes.push(Episode { from, to, what });
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Failed,
}

pub struct Queue {
    model: Model,
    /// When each server is free.
    free_at: Vec<Nanos>,
    random: u64,
}

impl Queue {
    pub fn new(model: Model, threads: u32, seed: u64) -> Queue {
        let servers = match model.servers {
            Servers::Each(servers, _) => servers,
            Servers::ByThread(..) => threads,
        };
        Queue { model, free_at: vec![0; servers.max(1) as usize], random: seed }
    }

    /// Evenly from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A request that arrives now, and takes `slower` times as long in service. When it ends, and how; no time: never.
    pub fn serve(&mut self, now: Nanos, slower: f64) -> (Option<Nanos>, Answer) {
        let (jitter, quantile) = (1.0 + self.model.jitter * (2.0 * self.draw() - 1.0), self.draw());
        let (mut slower, mut farther, mut answer, mut held) =
            (slower, self.model.spread.at(quantile), Answer::Done, now);
        for episode in self.model.episodes.iter().filter(|e| e.from <= now && now < e.to) {
            match episode.what {
                Trouble::Slower(by) => slower *= by,
                Trouble::Farther(by) => farther *= by,
                Trouble::Hangs if episode.to == Nanos::MAX => return (None, Answer::Done),
                Trouble::Hangs => held = held.max(episode.to),
                Trouble::Fails => answer = Answer::Failed,
            }
        }
        let delay = (self.model.delay as f64 * farther) as Nanos;
        if answer == Answer::Failed {
            return (Some(now + delay.max(1)), answer);
        }
        let server = (0..self.free_at.len()).min_by_key(|server| self.free_at[*server]).unwrap_or(0);
        let start = held.max(self.free_at[server]);
        let mean = match self.model.servers {
            Servers::Each(_, mean) => mean as f64,
            Servers::ByThread(rates, scale) => {
                let busy = self.free_at.iter().filter(|free| **free > start).count() as u32 + 1;
                f64::from(busy) * 1e9 / (rate_of(rates, busy) * scale)
            }
        };
        let end = start + ((mean * jitter * slower) as Nanos).max(1);
        self.free_at[server] = end;
        (Some(end + delay), answer)
    }
}

fn rate_of(rates: &[(u32, f64)], threads: u32) -> f64 {
    let above = rates.iter().position(|(at, _)| *at >= threads).unwrap_or(rates.len() - 1);
    let ((n, a), (m, b)) = (rates[above.saturating_sub(1)], rates[above]);
    if m <= n { b } else { a + (b - a) * f64::from(threads.clamp(n, m) - n) / f64::from(m - n) }
}
