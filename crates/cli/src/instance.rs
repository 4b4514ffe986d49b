//! Opening a stopped instance read-only. Nothing is made or changed, except by commands that ask for it ([`change`]).

use crate::exit;
use crate::location::Location;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use terrace::open::{self as places, OfflinePlaces};
use terrace_engine::Error;
use terrace_engine::Kind;
use terrace_engine::offline::instance::OfflineInstance;
use terrace_io::disk::Disk;

/// Why an instance can't be looked at.
pub struct Fault {
    pub code: u8,
    pub message: String,
    /// The instance runs.
    pub is_busy: bool,
}

impl Fault {
    pub fn exit(self) -> ExitCode {
        eprintln!("error: {}", self.message);
        ExitCode::from(self.code)
    }
    pub fn new(code: u8, message: String) -> Fault {
        Fault { code, message, is_busy: false }
    }
    fn usage(message: String) -> Fault {
        Fault::new(exit::UNUSABLE, message)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let code = if error.kind() == Kind::Corrupt { exit::FAULTS } else { exit::UNUSABLE };
        Fault { code, message: error.to_string(), is_busy: matches!(error, Error::Busy(_)) }
    }
}

/// An instance, opened, and the flash directory if it was named.
pub struct Instance {
    pub look: OfflineInstance,
    pub flash: Option<Arc<dyn Disk>>,
}

fn read(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| Fault::usage(format!("{}: {e}", path.display())))
}

/// Whether the file, which is well-formed, names its volume.
pub fn check_config(path: &Path) -> Result<bool, Fault> {
    places::read_only(&read(path)?).map_err(unusable)
}

/// Places that cannot be opened are the caller's to name otherwise.
fn unusable(error: Error) -> Fault {
    Fault::usage(error.to_string())
}

/// As a TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The configuration's text, and what goes before it.
fn texts(location: &Location) -> Result<(String, String), Fault> {
    let text = location.config.as_deref().map(read).transpose()?.unwrap_or_default();
    // Flash only if it is asked for.
    let mut overrides = String::from("flash = 0\nflash_path = \"\"\nemulate = \"\"\n");
    let given = [
        ("volume_path", &location.volume),
        ("object", &location.object),
        ("object_endpoint", &location.object_endpoint),
    ];
    for (name, value) in given {
        value.iter().for_each(|value| overrides.push_str(&format!("{name} = {}\n", quoted(value))));
    }
    if let Some(flash) = &location.flash {
        overrides = overrides.replace("flash_path = \"\"", &format!("flash_path = {}", quoted(flash)));
    }
    Ok((text, overrides))
}

pub fn open(location: &Location) -> Result<Instance, Fault> {
    let (text, overrides) = texts(location)?;
    if location.config.is_none() && location.volume.is_none() {
        return Err(Fault::usage("give --config FILE or --volume DIRECTORY".into()));
    }
    let absent =
        |volume: &str| Fault::usage(format!("{volume}: there is no Terrace instance (no file `superblock`)"));
    if let Some(volume) = &location.volume
        && !Path::new(volume).join("superblock").exists()
    {
        return Err(absent(volume));
    }
    let (config, seen) = places::assemble_to_read(&text, &overrides).map_err(unusable)?;
    if !seen.volume.exists("superblock").map_err(Error::from)? {
        return Err(absent(&seen.volume.describe()));
    }
    let look = OfflineInstance::open(seen.volume, seen.store)?;
    config.overruled(&look.superblock).iter().for_each(|what| eprintln!("warning: {what}"));
    Ok(Instance { look, flash: seen.flash })
}

/// The places of an instance that was opened for looking, to be changed.
pub fn change(location: &Location) -> Result<OfflinePlaces, Fault> {
    let (text, overrides) = texts(location)?;
    places::assemble_to_change(&text, &overrides).map_err(unusable)
}
