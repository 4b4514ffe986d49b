//! What a table may have of each tier: shares, placement, rates, write policy; and the counters by space.

pub mod by_space;
pub mod meter;
pub mod quota;
pub mod write_policy;
