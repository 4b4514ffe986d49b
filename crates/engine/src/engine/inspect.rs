//! What an operator sees of a running engine: counters, gauges, tables, metrics, advice.

pub mod info_tables;
pub mod kept_curve;
pub mod metrics;
pub(crate) mod report;
pub(crate) mod status;
