//! Opens the places that a configuration names: devices, store, clock, threads.
//!
//! A profile of `emulate` is put around the devices and the store, and around that the observer, if there is one.

use super::Places;
use std::sync::Arc;
use terrace_engine::Config;
use terrace_engine::Error;
use terrace_engine::Parts;
use terrace_engine::Result;
use terrace_io::disk::Disk;
use terrace_io::emulate::{self, Profile};
use terrace_io::object;
use terrace_io::observe;
use terrace_io::real::disk::RealDisk;
use terrace_io::real::world;
use terrace_io::store::ObjectStore;

/// The places of an instance that does not run. None of them is made.
pub struct OfflinePlaces {
    pub volume: Arc<dyn Disk>,
    pub store: Option<Arc<dyn ObjectStore>>,
    pub flash: Option<Arc<dyn Disk>>,
}

/// Opens the places for looking; one that is not there is an error. Flash only if the places name it.
pub(crate) fn open_to_read(places: &Places) -> Result<OfflinePlaces> {
    open_seen(places, true)
}

/// As [`open_to_read`], but writable: for a caller that has inspected the instance before.
pub(crate) fn open_to_change(places: &Places) -> Result<OfflinePlaces> {
    open_seen(places, false)
}

fn open_seen(places: &Places, read_only: bool) -> Result<OfflinePlaces> {
    let disk = |path: &str| -> Result<Arc<dyn Disk>> {
        let disk = if read_only { RealDisk::open_to_read(path) } else { RealDisk::open(path) };
        Ok(Arc::new(disk.map_err(|error| Error::Invalid(format!("{path}: {error}")))?))
    };
    let volume = disk(places.volume_path.as_deref().unwrap_or_default())?;
    let flash = places.flash_path.as_deref().map(disk).transpose()?;
    let store = places.object.as_deref().map(|url| open_store(url, places, read_only)).transpose()?;
    Ok(OfflinePlaces { volume, store, flash })
}

/// Opens the places; what can't be had is named at once.
pub(crate) fn open(config: &Config, places: &Places) -> Result<Parts> {
    let world = world();
    let profile = places.emulate.as_deref().and_then(Profile::named);
    // The store first: a URL that can't be meant leaves no trace on the volume.
    let mut store = places.object.as_deref().map(|url| open_store(url, places, false)).transpose()?;
    let volume = places.volume_path.as_deref().unwrap_or_default();
    let mut volume: Arc<dyn Disk> = Arc::new(
        RealDisk::open(volume).map_err(|error| Error::Invalid(format!("volume_path = {volume}: {error}")))?,
    );
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
    let (flash, store) = (flash.map(observe::disk), store.map(observe::store));
    Ok(Parts { world, volume: observe::disk(volume), flash, store })
}

/// Opens the object store. Nothing is asked of it yet.
pub(crate) fn open_store(url: &str, places: &Places, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
    let endpoint = places.object_endpoint.clone();
    let settings = object::Settings { endpoint, read_only, ..object::Settings::new(url) };
    Ok(object::open(&settings)?)
}
