//! Settings: each with its name, meaning and default. Every fault is named at once.
//!
//! [`SETTINGS`] is the one list: it reads TOML, documents itself ([`Config::document`]) and names what
//! is unknown. Sizes are numbers of bytes or text with a unit (`"128M"`).

mod memory;
mod volume;

use crate::error::Error;
use std::collections::BTreeSet;
use terrace_cost::prices::DOLLARS_MAX;
use terrace_cost::{Price, Prices};
use terrace_tier::ablation::{Mechanism, Without};
use terrace_tier::flash::admission::filter::Rule;
use terrace_tier::objects::object::codec::Codec;
use terrace_tier::objects::sink;
use terrace_tier::page::PAGE_SIZE;
use terrace_tier::read::split::SplitRule;
use toml::{Table, Value};

pub use memory::{Budget, Buffers};

const MIB: u64 = 1 << 20;

/// A size in bytes, written as a number or as text with a unit: `"128M"`, `"64K"`, `"2G"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    pub fn parse(text: &str) -> Option<Bytes> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let factor = match unit.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KB" | "KIB" => 1 << 10,
            "M" | "MB" | "MIB" => 1 << 20,
            "G" | "GB" | "GIB" => 1 << 30,
            "T" | "TB" | "TIB" => 1 << 40,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(factor).map(Bytes)
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (unit, name) in [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub memory: Bytes,
    pub memory_max: Bytes,
    pub resize_wait_timeout_ms: u64,
    pub log: Bytes,
    pub log_partitions: usize,
    pub log_wait_timeout_ms: u64,
    pub object_buffer: Bytes,
    pub sink_after_ms: u64,
    pub sink_requests_max: usize,
    pub archive_interval_ms: u64,
    pub archive_keep_hours: usize,
    pub compression: Codec,
    pub flash: Bytes,
    pub flash_admission: Rule,
    pub split: SplitRule,
    pub without: Without,
    pub lock_wait_timeout_ms: u64,
    pub locks_max: usize,
    pub purge_lag_max: usize,
    pub temporary_max: Bytes,
    pub prices: Prices,
    /// The settings that a text named ([`Config::take_from`]), also those that it left at their default.
    pub named: BTreeSet<&'static str>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory: Bytes(128 * MIB),
            memory_max: Bytes(0),
            resize_wait_timeout_ms: 60_000,
            log: Bytes(96 * MIB),
            log_partitions: 1,
            log_wait_timeout_ms: 60_000,
            object_buffer: Bytes(8 << 30),
            sink_after_ms: 300_000,
            sink_requests_max: 0,
            archive_interval_ms: 0,
            archive_keep_hours: 0,
            compression: Codec::Zstd,
            flash: Bytes(0),
            flash_admission: Rule::Ghost,
            split: SplitRule::Off,
            without: Without::default(),
            lock_wait_timeout_ms: 50_000,
            locks_max: 1_000_000,
            purge_lag_max: 1_000_000,
            temporary_max: Bytes(8 << 30),
            prices: Prices::default(),
            named: BTreeSet::new(),
        }
    }
}

/// A setting's way in and out.
enum Field {
    Size(fn(&mut Config) -> &mut Bytes),
    Count(fn(&mut Config) -> &mut usize),
    Millis(fn(&mut Config) -> &mut u64),
    Rule(fn(&mut Config) -> &mut Rule),
    Split(fn(&mut Config) -> &mut SplitRule),
    Codec(fn(&mut Config) -> &mut Codec),
    Price(fn(&mut Config) -> &mut Price),
    Without(fn(&mut Config) -> &mut Without),
}

pub struct Setting {
    pub name: &'static str,
    pub meaning: &'static str,
    field: Field,
}

pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "memory",
        meaning: "All memory the engine may use: buffer pool, log buffers, map, flash index, locks.",
        field: Field::Size(|c| &mut c.memory),
    },
    Setting {
        name: "memory_max",
        meaning: "Up to here `memory` can be made more while the engine runs. It costs addresses, not memory.\n\
                  0: what the machine has, or the process's control groups allow.",
        field: Field::Size(|c| &mut c.memory_max),
    },
    Setting {
        name: "resize_wait_timeout_ms",
        meaning: "How long a change of memory, flash or object_buffer waits while nothing moves (pages that are pinned, a\n\
                  store that takes no blocks) before it is given up and the old size stays, in milliseconds.",
        field: Field::Millis(|c| &mut c.resize_wait_timeout_ms),
    },
    Setting {
        name: "log",
        meaning: "All log files together. A longer log means fewer checkpoints and a longer recovery.\n\
                  Counts when the volume is made; later the volume's own size holds.",
        field: Field::Size(|c| &mut c.log),
    },
    Setting {
        name: "log_partitions",
        meaning: "Log files written side by side: 1 for a local disk, more for a network volume.\n\
                  Counts when the volume is made.",
        field: Field::Count(|c| &mut c.log_partitions),
    },
    Setting {
        name: "log_wait_timeout_ms",
        meaning: "How long a change waits for log space before it fails, in milliseconds.",
        field: Field::Millis(|c| &mut c.log_wait_timeout_ms),
    },
    Setting {
        name: "object_buffer",
        meaning: "Space for pages on the volume. Without an object store it bounds the data. It can grow later.",
        field: Field::Size(|c| &mut c.object_buffer),
    },
    Setting {
        name: "sink_after_ms",
        meaning: "A block that nothing was flushed to for so long goes to the object store, in milliseconds.\n\
                  Sooner if the object buffer runs low.",
        field: Field::Millis(|c| &mut c.sink_after_ms),
    },
    Setting {
        name: "sink_requests_max",
        meaning: "Requests a second to the object store that sinking may make; 0: no limit but what the store takes. Writers are\n\
                  slowed to what this lets through.",
        field: Field::Count(|c| &mut c.sink_requests_max),
    },
    Setting {
        name: "archive_interval_ms",
        meaning: "How often the log is copied to the object store, so that a backup can be brought to any point since (terrace restore\n\
                  --at), in milliseconds; 0: never. Nothing bypasses the log then.",
        field: Field::Millis(|c| &mut c.archive_interval_ms),
    },
    Setting {
        name: "archive_keep_hours",
        meaning: "How long that copy of the log is kept, in hours; 0: for good.",
        field: Field::Count(|c| &mut c.archive_keep_hours),
    },
    Setting {
        name: "compression",
        meaning: "How pages are compressed in objects, one by one, where it saves a sixteenth: zstd, lz4 or none. For tables\n\
                  that do not say it themselves; what is stored already stays as it is.",
        field: Field::Codec(|c| &mut c.compression),
    },
    Setting {
        name: "flash",
        meaning: "Space for clean copies of pages on local flash; 0 turns it off.",
        field: Field::Size(|c| &mut c.flash),
    },
    Setting {
        name: "flash_admission",
        meaning: "Which pages that leave memory are copied to flash once it is full: admit-all; one-hit-discard (those used\n\
                  again in memory); ghost (those, and those that had left lately); tiny-lfu (those asked for more often than\n\
                  what would leave for them); ghost-tiny-lfu (both of the last two: about half the writes of ghost);\n\
                  ghost-whole (as ghost, and remembers twice as many of those that had left).",
        field: Field::Rule(|c| &mut c.flash_admission),
    },
    Setting {
        name: "split",
        meaning: "How reads of pages that are both on flash and on the volume are divided: off (flash serves them), on or knee (each\n\
                  device is filled to just past its knee), shortest-wait, equal-latency, orthus, backend-only (the volume serves them).",
        field: Field::Split(|c| &mut c.split),
    },
    Setting {
        name: "without",
        meaning: "Mechanisms to leave out, by comma, to see what each is worth: clean-copies (reads of what sank from the free\n\
                  slots it left), prefetch, shared-misses, flash-for-the-store (flash leaves to the volume what the volume\n\
                  has), warm-flash, deferral (blocks written again and again sink later), pacing (of writers), patches (objects\n\
                  of a block's changed pages alone), lock-order (who holds up most has a row first), give-way (builds in bulk leave\n\
                  slots to small writers), single-flight (who wants a page that another is fetching waits for him), vectored-reads\n\
                  (what a scan reads together from flash or the volume is one batch), kept-copies (what flash has is not written\n\
                  there again).",
        field: Field::Without(|c| &mut c.without),
    },
    Setting {
        name: "lock_wait_timeout_ms",
        meaning: "How long a statement waits for a row lock, in milliseconds.",
        field: Field::Millis(|c| &mut c.lock_wait_timeout_ms),
    },
    Setting {
        name: "locks_max",
        meaning: "Row locks that may be held at a time, in all transactions together. Each takes about 90 bytes, which the buffer pool\n\
                  lends; an eighth of `memory` bounds them, too. Neighbours that a scan locks are one; of a session that holds more than\n\
                  a thousand others count by the memory that they take.",
        field: Field::Count(|c| &mut c.locks_max),
    },
    Setting {
        name: "purge_lag_max",
        meaning: "Undo records that nobody needs any more and that are not purged yet: beyond so many, writers are slowed,\n\
                  the more, the longer purge stays behind. 0: never. What a long reader holds back does not count.",
        field: Field::Count(|c| &mut c.purge_lag_max),
    },
    Setting {
        name: "temporary_max",
        meaning: "All temporary tables together, in memory and where they spill: flash, or the volume where there is none.",
        field: Field::Size(|c| &mut c.temporary_max),
    },
    Setting {
        name: "price_memory",
        meaning: "Dollars for a GB of memory for a month. Prices change nothing but the costs that are shown.",
        field: Field::Price(|c| &mut c.prices.memory),
    },
    Setting {
        name: "price_flash",
        meaning: "Dollars for a GB of local flash for a month.",
        field: Field::Price(|c| &mut c.prices.flash),
    },
    Setting {
        name: "price_volume",
        meaning: "Dollars for a GB of the volume for a month.",
        field: Field::Price(|c| &mut c.prices.volume),
    },
    Setting {
        name: "price_object",
        meaning: "Dollars for a GB in the object store for a month.",
        field: Field::Price(|c| &mut c.prices.object),
    },
    Setting {
        name: "price_puts",
        meaning: "Dollars for a thousand PUT requests to the object store.",
        field: Field::Price(|c| &mut c.prices.puts),
    },
    Setting {
        name: "price_gets",
        meaning: "Dollars for a thousand GET requests to the object store.",
        field: Field::Price(|c| &mut c.prices.gets),
    },
];

/// The least memory that an instance works with.
pub const MEMORY_MIN: u64 = 4 * MIB;
/// The least log for one partition.
pub const LOG_MIN: u64 = 2 * MIB;
/// The least object buffer.
pub const OBJECT_BUFFER_MIN: u64 = 4 * MIB;

/// The least that temporary tables are given.
pub const TEMPORARY_MIN: u64 = 4 * MIB;

impl Setting {
    fn set(&self, config: &mut Config, value: &Value) -> Result<(), String> {
        let whole = |v: &Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
        match &self.field {
            Field::Size(field) => {
                let size = value.as_str().and_then(Bytes::parse).or_else(|| whole(value).map(Bytes));
                *field(config) =
                    size.ok_or_else(|| format!("{} = {value} is not a size (like \"128M\")", self.name))?;
            }
            Field::Count(field) => {
                let count = whole(value).and_then(|n| usize::try_from(n).ok());
                *field(config) = count.ok_or_else(|| format!("{} = {value} is not a count", self.name))?;
            }
            Field::Millis(field) => {
                *field(config) = whole(value)
                    .ok_or_else(|| format!("{} = {value} is not a number of milliseconds", self.name))?;
            }
            Field::Codec(field) => {
                *field(config) = value.as_str().and_then(Codec::named).ok_or_else(|| {
                    let known = Codec::NAMES.map(|(name, _)| name).join(", ");
                    format!("{} = {value} is not among {known}", self.name)
                })?;
            }
            Field::Rule(field) => {
                let known = || Rule::NAMES.map(|(name, _)| name).join(", ");
                *field(config) = value
                    .as_str()
                    .and_then(Rule::named)
                    .ok_or_else(|| format!("{} = {value} is not among {}", self.name, known()))?;
            }
            Field::Split(field) => {
                let known = || SplitRule::NAMES.map(|(name, _)| name).join(", ");
                *field(config) = value
                    .as_str()
                    .and_then(SplitRule::named)
                    .ok_or_else(|| format!("{} = {value} is not among {}", self.name, known()))?;
            }
            Field::Without(field) => {
                let text = value
                    .as_str()
                    .ok_or_else(|| format!("{} = {value} is not a list of names", self.name))?;
                *field(config) = Without::named(text).map_err(|name| {
                    let known = Mechanism::NAMES.map(|(name, _)| name).join(", ");
                    format!("{} = {value}: `{name}` is not among {known}", self.name)
                })?;
            }
            Field::Price(field) => {
                let dollars = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
                *field(config) = dollars.and_then(Price::of_dollars).ok_or_else(|| {
                    format!("{} = {value} is not a price in dollars from 0 to {}", self.name, DOLLARS_MAX)
                })?;
            }
        }
        Ok(())
    }

    /// None: its value is a name. Prices in billionths of a dollar.
    fn number(&self, config: &mut Config) -> Option<u64> {
        match &self.field {
            Field::Size(field) => Some(field(config).0),
            Field::Count(field) => Some(*field(config) as u64),
            Field::Millis(field) => Some(*field(config)),
            Field::Rule(_) | Field::Split(_) | Field::Codec(_) | Field::Without(_) => None,
            Field::Price(field) => Some(field(config).0),
        }
    }

    fn show(&self, config: &mut Config) -> String {
        match &self.field {
            Field::Size(field) => format!("\"{}\"", field(config)),
            Field::Count(field) => field(config).to_string(),
            Field::Millis(field) => field(config).to_string(),
            Field::Rule(field) => format!("\"{}\"", field(config).name()),
            Field::Split(field) => format!("\"{}\"", field(config).name()),
            Field::Codec(field) => format!("\"{}\"", field(config).name()),
            Field::Price(field) => field(config).to_string(),
            Field::Without(field) => format!("\"{}\"", field(config)),
        }
    }
}

impl Config {
    pub fn from_toml(text: &str) -> Result<Config, Error> {
        let mut table: Table =
            text.parse().map_err(|e: toml::de::Error| Error::Invalid(format!("configuration: {e}")))?;
        let mut config = Config::default();
        let mut faults = config.take_from(&mut table);
        faults.extend(table.keys().map(|name| format!("`{name}` is not a setting")));
        faults.extend(config.faults());
        settle(&faults).map(|()| config)
    }

    /// Takes this list's settings out of a table that may have others as well. Returns what is wrong with
    /// them one by one; see also [`Config::faults`].
    pub fn take_from(&mut self, table: &mut Table) -> Vec<String> {
        let take = |setting: &Setting| {
            let value = table.remove(setting.name)?;
            self.named.insert(setting.name);
            setting.set(self, &value).err()
        };
        SETTINGS.iter().filter_map(take).collect()
    }

    /// What is wrong with the values, alone and together.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut least = |name: &str, value: Bytes, min: u64| {
            if value.0 < min {
                faults.push(format!("{name} = {value} is less than {}", Bytes(min)));
            }
        };
        least("memory", self.memory, MEMORY_MIN);
        least("object_buffer", self.object_buffer, OBJECT_BUFFER_MIN);
        least("temporary_max", self.temporary_max, TEMPORARY_MIN);
        if (1..self.memory.0).contains(&self.memory_max.0) {
            faults.push(format!("memory_max = {} is less than memory = {}", self.memory_max, self.memory));
        }
        let partitions_max = crate::superblock::PARTITIONS_MAX;
        if self.log_partitions == 0 || self.log_partitions > partitions_max {
            faults.push(format!("log_partitions = {} is not in 1..={partitions_max}", self.log_partitions));
        } else if self.log.0 / (self.log_partitions as u64) < LOG_MIN {
            let (log, n) = (self.log, self.log_partitions);
            faults
                .push(format!("log = {log} gives each of log_partitions = {n} less than {}", Bytes(LOG_MIN)));
        } else if self.log_blocks() > crate::superblock::LOG_BLOCKS_MAX {
            let max = Bytes(crate::superblock::LOG_BLOCKS_MAX * terrace_log::block::BLOCK as u64);
            let (log, n) = (self.log, self.log_partitions);
            faults.push(format!("log = {log} gives each of log_partitions = {n} more than {max}"));
        }
        let slots_max = u64::from(terrace_tier::address::Slot::COUNT_MAX);
        if self.object_buffer.0 / PAGE_SIZE as u64 > slots_max {
            let max = Bytes(slots_max / 1024 * 1024 * PAGE_SIZE as u64);
            faults.push(format!(
                "object_buffer = {} is more than {max}, the most that it can be: make it smaller; with an object store (object) \
                 what has no room there goes to the store",
                self.object_buffer
            ));
        }
        let index = self.flash_index();
        if index > self.memory.0 / 2 {
            faults.push(format!(
                "flash = {} takes {} MiB of memory for its index, more than half of memory = {}",
                self.flash,
                index.div_ceil(MIB),
                self.memory
            ));
        }
        if self.locks_max < 1000 {
            faults.push(format!("locks_max = {} is less than 1000", self.locks_max));
        }
        faults
    }

    /// Names every fault at once.
    pub fn check(&self) -> Result<(), Error> {
        settle(&self.faults())
    }

    /// The value of every setting that is a number, by name; sizes in bytes, prices in billionths of a dollar.
    pub fn values(&self) -> Vec<(&'static str, u64)> {
        let mut config = self.clone();
        SETTINGS.iter().filter_map(|s| Some((s.name, s.number(&mut config)?))).collect()
    }

    /// The value of every setting that is a text, by name.
    pub fn texts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("compression", self.compression.name().into()),
            ("flash_admission", self.flash_admission.name().into()),
            ("split", self.split.name().into()),
            ("without", self.without.to_string()),
        ]
    }

    /// A configuration file with every setting at its default, and what it means.
    pub fn document() -> String {
        let mut config = Config::default();
        let entry = |s: &Setting| {
            format!("# {}\n{} = {}\n", s.meaning.replace('\n', "\n# "), s.name, s.show(&mut config))
        };
        SETTINGS.iter().map(entry).collect::<Vec<_>>().join("\n")
    }

    /// Bytes that blocks on their way to the object store take: a tenth of the memory.
    pub fn sink_memory(&self) -> usize {
        (self.memory.0 as usize / 10).clamp(sink::MEMORY_MIN, sink::MEMORY_MAX)
    }

    /// Frames of the buffer pool: what memory leaves after all else (`memory`). `map`: bytes of the map at the start.
    pub fn frames(&self, has_store: bool, map: u64) -> usize {
        self.budget(&self.buffers(has_store), map).frames_count()
    }

    /// `memory_max`, or what it is by default; never less than `memory`.
    pub fn memory_max_bytes(&self) -> Bytes {
        let machine = if self.memory_max.0 == 0 { terrace_io::machine::memory() } else { 0 };
        Bytes(self.memory_max.0.max(machine).max(self.memory.0))
    }

    /// Bytes of redo that recovery keeps in memory until it is applied; more is read again.
    pub fn redo_budget(&self) -> usize {
        (self.memory.0 / 16) as usize
    }

    /// Bytes of log that may wait in memory to be written. They are there up to four times: as they wait, while
    /// they are written, and as blocks.
    pub fn log_waiting(&self) -> usize {
        (self.memory.0 / 256).clamp(256 << 10, 4 << 20) as usize
    }

    /// Bytes of the log that are copied to the object store at a time.
    pub fn archive_stretch(&self) -> usize {
        (self.memory.0 / 64).clamp(256 << 10, 4 << 20) as usize
    }

    /// Blocks of one log partition.
    pub fn log_blocks(&self) -> u64 {
        self.log.0 / self.log_partitions as u64 / terrace_log::block::BLOCK as u64
    }

    /// Pages that temporary tables may have together.
    pub fn temporary_pages(&self) -> u64 {
        self.temporary_max.0 / PAGE_SIZE as u64
    }

    pub fn slots(&self) -> u32 {
        (self.object_buffer.0 / PAGE_SIZE as u64) as u32
    }
}

fn settle(faults: &[String]) -> Result<(), Error> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid(format!("configuration: {}", faults.join("; "))))
}

#[cfg(test)]
mod tests;
