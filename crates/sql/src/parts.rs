//! Opens the places that a configuration names: devices, store, clock, threads.
//!
//! A profile of `emulate` is put around the devices and the store.

use crate::config::Places;
use crate::error::{Fault, Result};
use std::sync::Arc;
use terrace_engine::{Config, Parts};
use terrace_io::disk::Disk;
use terrace_io::emulate::{self, Profile};
use terrace_io::object;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::store::ObjectStore;

/// Opens the places; what can't be had is named at once.
pub(crate) fn open(config: &Config, places: &Places) -> Result<Parts> {
    let world = world();
    let profile = places.emulate.as_deref().map(profile).transpose()?;
    // The store first: a URL that can't be meant leaves no trace on the volume.
    let mut store = places.object.as_deref().map(|url| open_store(url, places)).transpose()?;
    let volume = places.volume_path.as_deref().unwrap_or_default();
    let mut volume: Arc<dyn Disk> = Arc::new(RealDisk::open(volume).map_err(terrace_engine::Error::from)?);
    let mut flash: Option<Arc<dyn Disk>> = match places.flash_path.as_deref().filter(|_| config.flash.0 > 0) {
        // Flash that can't be had is a cache that is off: the engine finds it so, and says why in its status.
        Some(path) => Some(Arc::new(RealDisk::open(path).unwrap_or_else(|_| RealDisk::at(path)))),
        None => None,
    };
    if let Some(profile) = profile {
        volume = emulate::disk(world.clone(), volume, profile.volume);
        flash = flash.map(|flash| emulate::disk(world.clone(), flash, profile.flash));
        store = store.map(|store| emulate::store(world.clone(), store, profile.store));
    }
    Ok(Parts { world, volume, flash, store })
}

fn profile(name: &str) -> Result<&'static Profile> {
    Profile::named(name).ok_or_else(|| {
        let known: Vec<&str> = emulate::PROFILES.iter().map(|profile| profile.name).collect();
        Fault::invalid(format!("configuration: emulate = \"{name}\" is not among {}", known.join(", ")))
    })
}

/// Opens the object store. Nothing is asked of it yet.
fn open_store(url: &str, places: &Places) -> Result<Arc<dyn ObjectStore>> {
    let settings = object::Settings { endpoint: places.object_endpoint.clone(), ..object::Settings::new(url) };
    Ok(object::open(&settings).map_err(terrace_engine::Error::from)?)
}
