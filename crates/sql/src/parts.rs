//! Opens the places that a configuration names: devices, store, clock, threads.
//!
//! What this build can't do is refused by name: a setting that did nothing would be believed.

use crate::config::Places;
use crate::error::{Fault, Result};
use std::sync::Arc;
use terrace_engine::{Config, Parts};
use terrace_io::disk::Disk;
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::store::ObjectStore;

/// Opens the places; what can't be had is named at once.
pub(crate) fn open(config: &Config, places: &Places) -> Result<Parts> {
    if places.emulate.is_some() {
        return Err(Fault::invalid("configuration: `emulate` is not supported yet".into()));
    }
    // The store first: a URL that can't be meant leaves no trace on the volume.
    let store = places.object.as_deref().map(|url| open_store(url, places)).transpose()?;
    let volume = places.volume_path.as_deref().unwrap_or_default();
    let volume = RealDisk::open(volume).map_err(terrace_engine::Error::from)?;
    let flash: Option<Arc<dyn Disk>> = match places.flash_path.as_deref().filter(|_| config.flash.0 > 0) {
        Some(path) => Some(Arc::new(RealDisk::open(path).map_err(terrace_engine::Error::from)?)),
        None => None,
    };
    Ok(Parts { world: world(), volume: Arc::new(volume), flash, store })
}

/// Opens the object store. Nothing is asked of it yet.
fn open_store(url: &str, places: &Places) -> Result<Arc<dyn ObjectStore>> {
    let settings = object::Settings { endpoint: places.object_endpoint.clone(), ..object::Settings::new(url) };
    Ok(object::open(&settings).map_err(terrace_engine::Error::from)?)
}
