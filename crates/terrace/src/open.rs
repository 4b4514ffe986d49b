//! From a configuration's text to what the engine opens on.
//!
//! One flat TOML table holds the engine's settings ([`terrace_engine::config::SETTINGS`]) and, beside them, the
//! places: [`PLACES`]. A second text goes before the first, key by key (the server's variables before its file). Every fault of
//! both is named at once.

mod devices;
mod metrics;

pub use devices::OfflinePlaces;
pub use metrics::Listener;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use terrace_engine::Config;
use terrace_engine::Error;
use terrace_engine::Parts;
use terrace_engine::Result;
use terrace_engine::storage::cold::MEMORY_MIN;
use terrace_io::emulate::{PROFILES, Profile};
use toml::{Table, Value};

/// A setting that says where something is.
pub struct PlaceSetting {
    pub name: &'static str,
    pub meaning: &'static str,
}

pub const PLACES: &[PlaceSetting] = &[
    PlaceSetting {
        name: "volume_path",
        meaning: "Directory of the log, the object buffer and the map, on a durable volume.",
    },
    PlaceSetting {
        name: "flash_path",
        meaning: "Directory on local flash for copies of pages; may be lost at any time.",
    },
    PlaceSetting {
        name: "object",
        meaning: "Where cold blocks go: s3://bucket/prefix, gs://…, az://…, or a directory.",
    },
    PlaceSetting { name: "object_endpoint", meaning: "URL of a server that is not the provider's own." },
    PlaceSetting {
        name: "emulate",
        meaning: "Latencies and limits of a profile (`cloud`) for the devices; for trials.",
    },
    PlaceSetting {
        name: "metrics_listen",
        meaning: "Loopback address and port on which Prometheus finds metrics, as 127.0.0.1:9185.",
    },
];

/// The places of a configuration, by name.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Places {
    pub volume_path: Option<String>,
    pub flash_path: Option<String>,
    pub object: Option<String>,
    pub object_endpoint: Option<String>,
    pub emulate: Option<String>,
    pub metrics_listen: Option<String>,
}

impl Places {
    fn field(&mut self, name: &str) -> &mut Option<String> {
        match name {
            "volume_path" => &mut self.volume_path,
            "flash_path" => &mut self.flash_path,
            "object" => &mut self.object,
            "object_endpoint" => &mut self.object_endpoint,
            "metrics_listen" => &mut self.metrics_listen,
            _ => &mut self.emulate,
        }
    }

    /// Those that are given, by name.
    pub fn texts(mut self) -> Vec<(&'static str, String)> {
        PLACES.iter().filter_map(|place| Some((place.name, self.field(place.name).take()?))).collect()
    }

    /// Takes the places out of the table; returns what is wrong with them.
    fn take_from(&mut self, table: &mut Table) -> Vec<String> {
        let mut faults = Vec::new();
        for place in PLACES {
            match table.remove(place.name) {
                None => {}
                Some(Value::String(text)) if text.is_empty() => {}
                Some(Value::String(text)) => *self.field(place.name) = Some(text),
                Some(other) => {
                    faults.push(format!("{} = {other} is not text ({})", place.name, place.meaning));
                }
            }
        }
        faults
    }

    /// What is wrong with the places, alone and together with the other settings.
    fn faults(&self, config: &Config, purpose: Purpose) -> Vec<String> {
        let mut faults = Vec::new();
        if self.volume_path.is_none() && purpose != Purpose::Text {
            faults.push(format!("volume_path is missing ({})", PLACES[0].meaning));
        }
        if self.object_endpoint.is_some() && self.object.is_none() {
            faults.push("object_endpoint is set, object is not".into());
        }
        if config.flash.0 > 0 && self.flash_path.is_none() {
            faults.push(format!("flash = {} has no flash_path", config.flash));
        }
        // A reader of the copies there needs no room for more.
        if let (Some(path), 0, false) = (&self.flash_path, config.flash.0, purpose == Purpose::Look) {
            faults.push(format!("flash_path = {path} is set, flash (how much room it has) is not"));
        }
        // Nothing is made or asked by opening these; a directory would be made.
        if let Some(url) =
            self.object.as_deref().filter(|url| url.contains("://") && !url.starts_with("file:"))
            && let Err(fault) = devices::open_store(url, self, true)
        {
            faults.push(fault.to_string());
        }
        if let Some(name) = self.emulate.as_deref().filter(|name| Profile::named(name).is_none()) {
            let known: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            faults.push(format!("emulate = \"{name}\" is not among {}", known.join(", ")));
        }
        if let Some(Err(fault)) = self.metrics_listen.as_deref().map(metrics_address) {
            faults.push(fault);
        }
        if self.object.is_some() && config.memory < MEMORY_MIN {
            faults.push(format!(
                "memory = {} is less than {MEMORY_MIN}, the least with an object store",
                config.memory
            ));
        }
        let store = self.object.as_deref().map(|url| url.strip_prefix("file://").unwrap_or(url));
        let store = store.filter(|path| !path.contains("://"));
        let places = [
            ("volume_path", self.volume_path.as_deref()),
            ("flash_path", self.flash_path.as_deref()),
            ("object", store),
        ];
        for (i, (name, one)) in places.iter().enumerate() {
            for (other_name, other) in &places[..i] {
                if one.zip(*other).is_some_and(|(one, other)| whole(one) == whole(other)) {
                    faults.push(format!("{name} and {other_name} are the same directory"));
                }
            }
        }
        faults
    }
}

/// A directory's one name; of one that is not there yet, as good as that can be told.
fn whole(path: &str) -> PathBuf {
    let path = Path::new(path);
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into())
}

/// The address of a setting's text. Err says what is wrong with it.
fn metrics_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("metrics_listen = \"{text}\" is not an address like 127.0.0.1:9185"))?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "metrics_listen = \"{text}\" is not a loopback address (metrics have no access control)"
        ));
    }
    Ok(address)
}

/// What the places are opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Run,
    Look,
    /// Not at all: a text is looked at, and what places it doesn't name the server's variables may.
    Text,
}

/// Reads both texts.
fn read(text: &str, overrides: &str, purpose: Purpose) -> Result<(Config, Places)> {
    let mut faults = Vec::new();
    let mut parse = |text: &str, what: &str| {
        text.parse::<Table>().unwrap_or_else(|error| {
            faults.push(format!("{what}: {}", error.to_string().trim_end()));
            Table::new()
        })
    };
    let mut table = parse(text, "the file");
    table.extend(parse(overrides, "the variables"));
    if !faults.is_empty() {
        // What a text that can't be read would have said is unknown.
        return Err(Error::Invalid(format!("configuration: {}", faults.join("; "))));
    }
    let mut config = Config::default();
    let mut places = Places::default();
    faults.extend(config.take_from(&mut table));
    faults.extend(places.take_from(&mut table));
    faults.extend(table.keys().map(|name| format!("`{name}` is not a setting")));
    faults.extend(config.faults());
    faults.extend(places.faults(&config, purpose));
    if faults.is_empty() {
        return Ok((config, places));
    }
    Err(Error::Invalid(format!("configuration: {}", faults.join("; "))))
}

/// Every setting with its meaning and its default, as a configuration file.
pub fn document() -> String {
    let places: Vec<String> =
        PLACES.iter().map(|p| format!("# {}\n# {} = \"\"\n", p.meaning, p.name)).collect();
    format!("{}\n{}", places.join("\n"), Config::document())
}

/// Reads a configuration without opening anything. Every fault is named at once. Returns whether it names its volume.
pub fn read_only(text: &str) -> Result<bool> {
    read(text, "", Purpose::Text).map(|(_, places)| places.volume_path.is_some())
}

/// Reads both texts and opens the places.
pub fn assemble(text: &str, overrides: &str) -> Result<(Config, Parts)> {
    assemble_to_run(text, overrides).map(|(config, _, parts)| (config, parts))
}

/// The same, and what the places are.
pub fn assemble_to_run(text: &str, overrides: &str) -> Result<(Config, Places, Parts)> {
    let (config, places) = read(text, overrides, Purpose::Run)?;
    let parts = devices::open(&config, &places)?;
    Ok((config, places, parts))
}

/// Where metrics are to be found, if anywhere.
pub fn metrics_listen(places: &Places) -> Option<SocketAddr> {
    places.metrics_listen.as_deref().and_then(|text| metrics_address(text).ok())
}

/// Reads both texts and opens the places for looking only.
pub fn assemble_to_read(text: &str, overrides: &str) -> Result<(Config, OfflinePlaces)> {
    let (config, places) = read(text, overrides, Purpose::Look)?;
    Ok((config, devices::open_to_read(&places)?))
}

/// The same, but writable: for a caller that has inspected the instance before.
pub fn assemble_to_change(text: &str, overrides: &str) -> Result<OfflinePlaces> {
    let (_, places) = read(text, overrides, Purpose::Look)?;
    devices::open_to_change(&places)
}

#[cfg(test)]
mod tests;
