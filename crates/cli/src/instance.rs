//! Opening an instance without changing it.

use crate::Place;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use terrace_engine::config::{Bytes, OBJECT_BUFFER_MIN};
use terrace_engine::{Engine, Error, Kind, Parts};
use terrace_io::overlay;
use terrace_sql::config;

/// Why an instance can't be looked at.
pub struct Fault {
    code: u8,
    message: String,
}

impl Fault {
    pub fn exit(self) -> ExitCode {
        eprintln!("error: {}", self.message);
        ExitCode::from(self.code)
    }
    fn usage(message: String) -> Fault {
        Fault { code: 2, message }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let code = if error.kind() == Kind::Corrupt { 1 } else { 3 };
        Fault { code, message: error.to_string() }
    }
}

fn read(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| Fault::usage(format!("{}: {e}", path.display())))
}

pub fn config_faults(path: &Path) -> Result<(), Fault> {
    config::read_only(&read(path)?).map_err(|fault| Fault::usage(fault.message))
}

/// As a TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Opens the instance over overlays, without its flash.
pub fn open(place: &Place) -> Result<Arc<Engine>, Fault> {
    let text = place.config.as_deref().map(read).transpose()?.unwrap_or_default();
    let mut overrides = String::from("flash = 0\nflash_path = \"\"\nemulate = \"\"\n");
    let given = [("volume_path", &place.volume), ("object", &place.object), ("object_endpoint", &place.object_endpoint)];
    for (name, value) in given {
        value.iter().for_each(|value| overrides.push_str(&format!("{name} = {}\n", quoted(value))));
    }
    if place.config.is_none() && place.volume.is_none() {
        return Err(Fault::usage("give --config FILE or --volume DIRECTORY".into()));
    }
    if let Some(volume) = &place.volume
        && !Path::new(volume).join("superblock").exists()
    {
        return Err(Fault::usage(format!("{volume}: there is no Terrace instance (no file `superblock`)")));
    }
    let (mut config, parts) = config::assemble(&text, &overrides).map_err(|fault| Fault::usage(fault.message))?;
    if !parts.volume.exists("superblock").map_err(Error::from)? {
        let volume = parts.volume.describe();
        return Err(Fault::usage(format!("{volume}: there is no Terrace instance (no file `superblock`)")));
    }
    // The size that the superblock says, not one that the next start would give it.
    config.object_buffer = Bytes(OBJECT_BUFFER_MIN);
    let parts = Parts {
        volume: overlay::disk(parts.volume).map_err(Error::from)?,
        flash: None,
        store: parts.store.map(overlay::store),
        world: parts.world,
    };
    Ok(Engine::open(config, parts)?)
}
