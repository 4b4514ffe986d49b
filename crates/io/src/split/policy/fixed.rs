//! Policies that decide once: cache only, backend only, a static share.

use super::Governor;
use crate::split::diffuse::weights;
use crate::split::meter::Sample;
use crate::split::plan::{Dispatch, LIMIT_UNIT, Plan};

pub struct Fixed(Plan);

impl Fixed {
    fn of(share: f64, dispatch: Dispatch) -> Fixed {
        Fixed(two(share, dispatch))
    }
    /// The first device's share; the rest is the second's.
    pub fn share(share: f64) -> Fixed {
        Fixed::of(share, Dispatch::Diffused)
    }
    pub fn random(share: f64) -> Fixed {
        Fixed::of(share, Dispatch::Random)
    }
    pub fn limited(device: usize, limit: u32) -> Fixed {
        let mut limits = [0; 4];
        limits[device] = limit * LIMIT_UNIT;
        limits[1 - device] = u32::MAX;
        let order = if device == 0 { [0, 1, 2, 3] } else { [1, 0, 2, 3] };
        Fixed(Plan::Fill { order, limits, costs: [1; 4] })
    }
    pub fn batched(share: f64) -> Fixed {
        Fixed::of(share, Dispatch::Batched { printed: true })
    }
}

/// A plan for two devices.
pub(super) fn two(share: f64, dispatch: Dispatch) -> Plan {
    let share = share.clamp(0.0, 1.0);
    Plan::Share { weights: weights(&[share, 1.0 - share, 0.0, 0.0]), dispatch }
}

impl Governor for Fixed {
    fn tick(&mut self, _: &Sample) -> Plan {
        self.0
    }
}
