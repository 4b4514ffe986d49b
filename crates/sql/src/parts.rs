//! Opens the places that a configuration names: devices, store, clock, threads.
//!
//! What this build can't do is refused by name: a setting that did nothing would be believed.

use crate::config::Places;
use crate::error::{Fault, Result};
use std::sync::Arc;
use terrace_engine::{Config, Parts};
use terrace_io::disk::Disk;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;

/// Opens the places; what can't be had is named at once.
pub(crate) fn open(config: &Config, places: &Places) -> Result<Parts> {
    let wanted = [
        ("object", places.object.is_some()),
        ("emulate", places.emulate.is_some()),
    ];
    let missing: Vec<String> = wanted
        .iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| format!("`{name}` is not supported yet: pages live in memory, on flash and on the volume"))
        .collect();
    if !missing.is_empty() {
        return Err(Fault::invalid(format!("configuration: {}", missing.join("; "))));
    }
    let volume = places.volume_path.as_deref().unwrap_or_default();
    let volume = RealDisk::open(volume).map_err(terrace_engine::Error::from)?;
    let flash: Option<Arc<dyn Disk>> = match places.flash_path.as_deref().filter(|_| config.flash.0 > 0) {
        Some(path) => Some(Arc::new(RealDisk::open(path).map_err(terrace_engine::Error::from)?)),
        None => None,
    };
    Ok(Parts { world: world(), volume: Arc::new(volume), flash, store: None })
}
