//! From a configuration's text to what the engine opens on.
//!
//! Two TOML texts, the second goes before the first key by key (the server's variables before its
//! file). Every fault is named at once.

use crate::error::{Fault, Result};
use std::sync::Arc;
use terrace_engine::config::Bytes;
use terrace_engine::{Config, Parts};
use terrace_io::real::{self, disk::RealDisk};
use toml::{Table, Value};

const TEXTS: [&str; 5] = ["volume_path", "flash_path", "object", "object_endpoint", "emulate"];

struct Reader {
    table: Table,
    faults: Vec<String>,
}

impl Reader {
    fn text(&mut self, name: &str) -> Option<String> {
        match self.table.remove(name)? {
            Value::String(text) => Some(text).filter(|t| !t.is_empty()),
            other => {
                self.faults.push(format!("{name} = {other} is not text"));
                None
            }
        }
    }

    /// A size: a number of bytes, or text with a unit.
    fn size(&mut self, name: &str, into: &mut Bytes) {
        let value = match self.table.remove(name) {
            None => return,
            Some(Value::Integer(n)) => u64::try_from(n).ok().map(Bytes),
            Some(Value::String(text)) => Bytes::parse(&text),
            Some(_) => None,
        };
        match value {
            Some(bytes) => *into = bytes,
            None => self.faults.push(format!("{name} is not a size")),
        }
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        match self.table.remove(name)? {
            Value::Integer(n) if n >= 0 => Some(n as u64),
            other => {
                self.faults.push(format!("{name} = {other} is not a number"));
                None
            }
        }
    }
}

pub(crate) fn assemble(text: &str, overrides: &str) -> Result<(Config, Parts)> {
    let mut reader = Reader { table: Table::new(), faults: Vec::new() };
    for (what, text) in [("the configuration", text), ("the variables", overrides)] {
        match text.parse::<Table>() {
            Ok(table) => reader.table.extend(table),
            Err(error) => reader.faults.push(format!("{what}: {}", error.to_string().trim_end())),
        }
    }
    let [volume, flash, object, endpoint, emulate] = TEXTS.map(|name| reader.text(name));
    let mut config = Config::default();
    reader.size("memory", &mut config.memory);
    reader.size("log", &mut config.log);
    reader.size("object_buffer", &mut config.object_buffer);
    reader.size("flash", &mut config.flash);
    if let Some(n) = reader.number("log_partitions") {
        config.log_partitions = n as usize;
    }
    if let Some(n) = reader.number("locks_max") {
        config.locks_max = n as usize;
    }
    let unknown: Vec<_> = reader.table.keys().map(|name| format!("`{name}` is not a setting")).collect();
    reader.faults.extend(unknown);
    // Named, not ignored: a setting that does nothing would be believed.
    for (name, value) in
        [("flash_path", &flash), ("object", &object), ("object_endpoint", &endpoint), ("emulate", &emulate)]
    {
        if value.is_some() {
            reader.faults.push(format!(
                "{name} is not supported yet: this build keeps pages in memory and on the volume"
            ));
        }
    }
    if config.flash.0 > 0 {
        reader.faults.push("flash is not supported yet".into());
    }
    if volume.is_none() {
        reader.faults.push("volume_path is missing: the directory of the log and the pages".into());
    }
    if let Err(error) = config.check() {
        reader.faults.push(error.to_string());
    }
    let Some(volume) = volume.filter(|_| reader.faults.is_empty()) else {
        return Err(Fault::invalid(format!("configuration: {}", reader.faults.join("; "))));
    };
    let disk = RealDisk::open(volume).map_err(|e| Fault::from(terrace_engine::Error::from(e)))?;
    Ok((config, Parts { world: real::world(), volume: Arc::new(disk), flash: None, store: None }))
}
