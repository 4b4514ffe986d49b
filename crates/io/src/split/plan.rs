//! A plan: what a policy decided, in the form that a request needs to find its device.
//!
//! [`choose`] is pure: plan, requests in flight and the lane's word go in, a device and the lane's next word come out. [`Cell`]
//! holds the current plan in atomics. A reader may see half of an old plan and half of a new one: each field alone makes sense,
//! so that costs one request its best place, no more.

use super::diffuse::{Batch, Credits, WHOLE, diffuse};
use super::{DEVICES_MAX, Mask, PerDevice, members};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How shares are enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// Rounding errors are carried on.
    Diffused,
    /// Algorithm 1 of NetCAS, with its printed comparison or the mended one. Two devices.
    Batched { printed: bool },
    /// Each request draws a device. For Fig. 5 alone.
    Random,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Plan {
    /// Each device gets its weight of the requests, in parts of [`WHOLE`].
    Share { weights: PerDevice<u16>, dispatch: Dispatch },
    /// Devices are filled up to their limits, in order. What exceeds all limits goes where (in flight + 1) × cost is least.
    Fill { order: PerDevice<u8>, limits: PerDevice<u32>, costs: PerDevice<u64> },
    /// Each request goes where it is expected to wait least: latency + what is in flight beyond `limits` × cost.
    Wait { limits: PerDevice<u32>, costs: PerDevice<u64>, latencies: PerDevice<u64> },
}

impl Plan {
    /// The plan as text, with the devices' names.
    pub fn describe(&self, names: &[&str]) -> String {
        let limit = |units: u32| match units {
            u32::MAX => "any number".to_string(),
            units => format!("{:.1}", f64::from(units) / f64::from(LIMIT_UNIT)),
        };
        let each = |of: &dyn Fn(usize) -> String| {
            let parts: Vec<String> =
                names.iter().enumerate().map(|(at, name)| format!("{name} {}", of(at))).collect();
            parts.join(", ")
        };
        match self {
            Plan::Share { weights, .. } => {
                let all: u32 = names.iter().enumerate().map(|(at, _)| u32::from(weights[at])).sum();
                let share =
                    |at: usize| format!("{:.1} %", 100.0 * f64::from(weights[at]) / f64::from(all.max(1)));
                format!("shares: {}", each(&share))
            }
            Plan::Fill { limits, .. } => {
                format!("filled up to, in flight: {}", each(&|at| limit(limits[at])))
            }
            Plan::Wait { limits, .. } => {
                format!("the shortest expected wait, beyond, in flight: {}", each(&|at| limit(limits[at])))
            }
        }
    }
}

/// Limits count in sixteenths of a request; `u32::MAX`: no limit.
pub const LIMIT_UNIT: u32 = 16;
/// The cost that excludes a device as long as another one can serve.
pub const NEVER: u64 = u64::MAX;

/// The device for a request that `usable` devices can serve, and the lane's next word. `counts` are the requests in flight.
/// Falls back to the first usable device if the plan names none.
pub fn choose(plan: &Plan, usable: Mask, counts: &PerDevice<u32>, lane: u64) -> (usize, u64) {
    let first = usable.trailing_zeros() as usize;
    if usable.is_power_of_two() {
        return (first, lane);
    }
    match plan {
        Plan::Share { weights, dispatch: Dispatch::Batched { printed } } if usable & 0b11 == 0b11 => {
            let total = u32::from(weights[0]) + u32::from(weights[1]);
            let share = (u32::from(weights[0]) * WHOLE as u32).checked_div(total).unwrap_or(WHOLE as u32);
            let (device, next) = Batch::from_word(lane).next(share as u16, *printed);
            (device, next.word())
        }
        Plan::Share { weights, dispatch: Dispatch::Random } => {
            // SplitMix64.
            let next = lane.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = next;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let total: u64 = members(usable).map(|device| u64::from(weights[device])).sum();
            let mut at = (((z ^ (z >> 31)) >> 32) * total) >> 32;
            for device in members(usable) {
                let weight = u64::from(weights[device]);
                if at < weight {
                    return (device, next);
                }
                at -= weight;
            }
            (first, next)
        }
        // Not both of the two devices that batches know: no state to keep.
        Plan::Share { weights, dispatch: Dispatch::Batched { .. } } => (
            members(usable).max_by_key(|device| (weights[*device], DEVICES_MAX - device)).unwrap_or(first),
            lane,
        ),
        Plan::Share { weights, .. } => match diffuse(Credits::from_word(lane), weights, usable) {
            Some((device, next)) => (device, next.word()),
            None => (first, lane),
        },
        Plan::Fill { order, limits, costs } => {
            for device in order.map(usize::from) {
                if usable & 1 << device != 0 && u64::from(counts[device]) * 16 < u64::from(limits[device]) {
                    return (device, lane);
                }
            }
            let wait = |device: usize| u64::from(counts[device] + 1).saturating_mul(costs[device]);
            (members(usable).min_by_key(|device| wait(*device)).unwrap_or(first), lane)
        }
        Plan::Wait { limits, costs, latencies } => {
            let wait = |device: usize| {
                let beyond = (u64::from(counts[device] + 1) * 16).saturating_sub(u64::from(limits[device]));
                latencies[device].saturating_add(costs[device].saturating_mul(beyond) / 16)
            };
            (members(usable).min_by_key(|device| wait(*device)).unwrap_or(first), lane)
        }
    }
}

/// The current plan.
#[derive(Default)]
pub struct Cell {
    kind: AtomicU8,
    order: AtomicU32,
    weights: AtomicU64,
    limits: PerDevice<AtomicU32>,
    costs: PerDevice<AtomicU64>,
    latencies: PerDevice<AtomicU64>,
}

fn load<T: Copy, A>(of: &PerDevice<A>, get: impl Fn(&A) -> T) -> PerDevice<T> {
    std::array::from_fn(|device| get(&of[device]))
}

impl Cell {
    pub fn new(plan: &Plan) -> Cell {
        let cell = Cell::default();
        cell.set(plan);
        cell
    }

    pub fn set(&self, plan: &Plan) {
        let per_device = |limits: &PerDevice<u32>, costs: &PerDevice<u64>| {
            for device in 0..DEVICES_MAX {
                self.limits[device].store(limits[device], Relaxed);
                self.costs[device].store(costs[device], Relaxed);
            }
        };
        let kind = match plan {
            Plan::Share { weights, dispatch } => {
                let word =
                    weights.iter().enumerate().fold(0, |word, (d, w)| word | u64::from(*w) << (16 * d));
                self.weights.store(word, Relaxed);
                match dispatch {
                    Dispatch::Diffused => 0,
                    Dispatch::Batched { printed: true } => 1,
                    Dispatch::Batched { printed: false } => 2,
                    Dispatch::Random => 3,
                }
            }
            Plan::Fill { order, limits, costs } => {
                per_device(limits, costs);
                self.order.store(u32::from_le_bytes(*order), Relaxed);
                4
            }
            Plan::Wait { limits, costs, latencies } => {
                per_device(limits, costs);
                latencies
                    .iter()
                    .zip(&self.latencies)
                    .for_each(|(latency, cell)| cell.store(*latency, Relaxed));
                5
            }
        };
        self.kind.store(kind, Relaxed);
    }

    pub fn get(&self) -> Plan {
        let limits = || load(&self.limits, |cell| cell.load(Relaxed));
        let costs = || load(&self.costs, |cell| cell.load(Relaxed));
        let dispatch = match self.kind.load(Relaxed) {
            4 => {
                let order = self.order.load(Relaxed).to_le_bytes();
                return Plan::Fill { order, limits: limits(), costs: costs() };
            }
            5 => {
                let latencies = load(&self.latencies, |cell| cell.load(Relaxed));
                return Plan::Wait { limits: limits(), costs: costs(), latencies };
            }
            1 => Dispatch::Batched { printed: true },
            2 => Dispatch::Batched { printed: false },
            3 => Dispatch::Random,
            _ => Dispatch::Diffused,
        };
        let word = self.weights.load(Relaxed);
        Plan::Share { weights: std::array::from_fn(|device| (word >> (16 * device)) as u16), dispatch }
    }
}

const _: () = assert!(DEVICES_MAX == 4, "`order` is four bytes of one word");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gives_back_the_plan_that_was_set() {
        let plans = [
            Plan::Share { weights: [5000, 3192, 0, 0], dispatch: Dispatch::Diffused },
            Plan::Share { weights: [8192, 0, 0, 0], dispatch: Dispatch::Batched { printed: true } },
            Plan::Share { weights: [4096, 4096, 0, 0], dispatch: Dispatch::Batched { printed: false } },
            Plan::Share { weights: [1, 8191, 0, 0], dispatch: Dispatch::Random },
            Plan::Fill { order: [1, 0, 3, 2], limits: [1, 2, 3, u32::MAX], costs: [9, 8, 7, NEVER] },
            Plan::Wait { limits: [4, 5, 6, 7], costs: [1, 2, 3, 4], latencies: [10, 20, 30, 40] },
        ];
        let cell = Cell::new(&plans[0]);
        for plan in &plans {
            cell.set(plan);
            assert_eq!(cell.get(), *plan);
        }
    }

    #[test]
    fn devices_fill_in_order_and_the_rest_goes_to_the_least_wait() {
        let plan = Plan::Fill { order: [1, 0, 2, 3], limits: [32, 48, 0, 0], costs: [10, 30, NEVER, NEVER] };
        let at = |counts| choose(&plan, 0b111, &counts, 0).0;
        assert_eq!(at([0, 0, 0, 0]), 1);
        assert_eq!(at([0, 3, 0, 0]), 0);
        assert_eq!(at([2, 3, 0, 0]), 0, "30 against 120");
        assert_eq!(at([14, 3, 0, 0]), 1, "150 against 120");
        assert_eq!(choose(&plan, 0b100, &[9; 4], 0).0, 2, "alone it serves, whatever it costs");
    }
}
