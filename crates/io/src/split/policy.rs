//! The policies, side by side behind one interface.
//!
//! A policy is a [`Governor`]: a pure state machine that turns the activity of one period into the plan of the next. It knows no
//! device, no clock and no thread. Adding one is one file below `policy/` and one line in [`Policy`].

pub mod equal_latency;
pub mod fixed;
pub mod hill;
pub mod knee;
pub mod mended;
pub mod netcas;
pub mod shortest_wait;

use super::meter::Sample;
use super::plan::Plan;
use super::profile::Profile;
use std::str::FromStr;
use std::sync::Arc;

/// The slow half of a router.
pub trait Governor: Send {
    /// The plan of the next period.
    fn tick(&mut self, sample: &Sample) -> Plan;

    /// The mode that an operator sees; empty if the policy has no modes.
    fn mode(&self) -> &'static str {
        ""
    }
}

/// What a governor is told at the start.
pub struct Start {
    pub devices: usize,
    pub profile: Option<Arc<Profile>>,
    pub threads: u32,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Policy {
    /// The nearest device takes all.
    CacheOnly,
    /// The second device takes all.
    BackendOnly,
    /// A share for the first device, 0 to 1; the rest is the second's. Rounding errors are carried on.
    Static(f64),
    /// The same, drawn for each request. For Fig. 5.
    Random(f64),
    /// The same by Algorithm 1 of NetCAS as printed. For Fig. 5.
    Batched(f64),
    /// At most this many requests at a device (0 or 1), the rest at the other one. For the oracle.
    Limited(usize, u32),
    /// Orthus: hill climbing on total throughput.
    HillClimbing,
    /// MOST, Colloid: the share moves until both devices are equally fast.
    EqualLatency,
    /// Each request goes where it is expected to end first.
    ShortestWait,
    /// NetCAS as printed.
    NetcasPrinted,
    /// NetCAS with its known faults mended.
    NetcasMended,
    /// Each device is filled to just past its knee; the rest goes where the queue is shortest in time.
    #[default]
    Knee,
}

impl Policy {
    /// Every policy that needs no parameter.
    pub const ALL: [Policy; 8] = [
        Policy::CacheOnly,
        Policy::BackendOnly,
        Policy::HillClimbing,
        Policy::EqualLatency,
        Policy::ShortestWait,
        Policy::NetcasPrinted,
        Policy::NetcasMended,
        Policy::Knee,
    ];

    pub fn name(&self) -> &'static str {
        match self {
            Policy::CacheOnly => "cache-only",
            Policy::BackendOnly => "backend-only",
            Policy::Static(_) => "static",
            Policy::Random(_) => "random",
            Policy::Batched(_) => "batched",
            Policy::Limited(..) => "limited",
            Policy::HillClimbing => "orthus",
            Policy::EqualLatency => "equal-latency",
            Policy::ShortestWait => "shortest-wait",
            Policy::NetcasPrinted => "netcas-printed",
            Policy::NetcasMended => "netcas-mended",
            Policy::Knee => "knee",
        }
    }

    /// The governor, and the plan until its first tick.
    pub fn start(&self, start: &Start) -> (Box<dyn Governor>, Plan) {
        let mut governor: Box<dyn Governor> = match *self {
            Policy::CacheOnly => Box::new(fixed::Fixed::share(1.0)),
            Policy::BackendOnly => Box::new(fixed::Fixed::share(0.0)),
            Policy::Static(share) => Box::new(fixed::Fixed::share(share)),
            Policy::Random(share) => Box::new(fixed::Fixed::random(share)),
            Policy::Batched(share) => Box::new(fixed::Fixed::batched(share)),
            Policy::Limited(device, limit) => Box::new(fixed::Fixed::limited(device, limit)),
            Policy::HillClimbing => Box::new(hill::HillClimbing::new()),
            Policy::EqualLatency => Box::new(equal_latency::EqualLatency::new()),
            Policy::ShortestWait => Box::new(shortest_wait::ShortestWait::new(start)),
            Policy::NetcasPrinted => Box::new(netcas::Netcas::new(start)),
            Policy::NetcasMended => Box::new(mended::Mended::new(start)),
            Policy::Knee => Box::new(knee::Knee::new(start)),
        };
        let plan = governor.tick(&Sample::default());
        (governor, plan)
    }
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Policy, String> {
        if let Some(share) = text.strip_prefix("static:") {
            return match share.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(Policy::Static(share)),
                _ => Err(format!("static:{share}: a share from 0 to 1 is wanted")),
            };
        }
        Policy::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| {
            let names = Policy::ALL.map(|policy| policy.name()).join(", ");
            format!("there is no policy `{text}`: static:SHARE, {names}")
        })
    }
}

/// Sums short periods into one of at least `length` nanoseconds.
#[derive(Default)]
pub(crate) struct Epoch {
    sum: Sample,
}

impl Epoch {
    /// The whole epoch once it is long enough.
    pub(crate) fn add(&mut self, sample: &Sample, length: u64) -> Option<Sample> {
        if sample.elapsed == 0 {
            return None;
        }
        let elapsed = self.sum.elapsed + sample.elapsed;
        let mut devices = self.sum.devices;
        devices.iter_mut().zip(&sample.devices).for_each(|(sum, more)| sum.add(*more));
        self.sum = Sample { elapsed, devices, ..*sample };
        (elapsed >= length).then(|| std::mem::take(&mut self.sum))
    }
}
