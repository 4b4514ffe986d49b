//! `terrace bench`: what the devices can do, and what the engine makes of them. It needs places of its own: whatever
//! is not empty is refused, and what it put there is removed at the end.

pub mod cache;
mod devices;
mod embedded;
mod split;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_engine::Parts;
use terrace_io::emulate::Profile;
use terrace_io::store::{ObjectStore, Purpose};
use terrace_workload::{A, B, C, E, Load, Mix, Plan, Run, Terrace};

/// What is measured: places and the engine on them, unless something else is named.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Bench {
    #[command(subcommand)]
    pub what: Option<What>,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Subcommand)]
pub enum What {
    /// Play traces of page uses through policies for flash: hits, writes and bytes moved
    Cache(cache::Settings),
    /// YCSB in memory through the embedded interface, beside the engine's own
    Embedded(embedded::Settings),
    /// Send reads to flash and to the backend at once: policies beside each other, simulated and on real devices
    Split(split::Settings),
}

#[derive(Args)]
pub struct Settings {
    /// A directory on the volume to measure; empty, or made
    #[arg(long, required = true)]
    volume: Option<PathBuf>,
    /// A directory on local flash; empty, or made
    #[arg(long)]
    flash: Option<PathBuf>,
    /// The object store: s3://bucket/prefix, gs://…, az://… or a directory; empty
    #[arg(long)]
    object: Option<String>,
    /// URL of a server that is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// Any other setting of the engine, as in its configuration file (see `terrace config`); may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = name_and_value)]
    set: Vec<(String, String)>,
    /// Records to load
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// Length of a record's value, in bytes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    value: u64,
    /// Clients that work at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: u64,
    /// Seconds of each workload
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How unevenly popular records are: the exponent of a Zipf distribution
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// YCSB workloads: a half updates, b 5 % updates, c reads, e scans
    #[arg(long, value_delimiter = ',', default_values_t = ['c', 'b', 'a', 'e'])]
    workloads: Vec<char>,
    /// Commits don't wait until they are durable
    #[arg(long)]
    relaxed: bool,
    /// Measure the devices only
    #[arg(long)]
    devices: bool,
    /// Leave what was made where it is
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Settings {
    fn volume(&self) -> Result<&Path> {
        self.volume.as_deref().ok_or_else(|| "--volume is wanted".into())
    }
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
    Ok((name.trim().into(), value.trim().into()))
}

type Result<T, E = String> = std::result::Result<T, E>;

/// A directory that is for this run alone.
struct Scratch {
    path: PathBuf,
    made: bool,
    keep: bool,
}

impl Scratch {
    fn new(path: &Path, keep: bool) -> Result<Scratch> {
        let named = |e: std::io::Error| format!("{}: {e}", path.display());
        let made = !path.exists();
        if made {
            std::fs::create_dir_all(path).map_err(named)?;
        } else if std::fs::read_dir(path).map_err(named)?.next().is_some() {
            return Err(format!(
                "{} is not empty: give the benchmark a directory of its own",
                path.display()
            ));
        }
        Ok(Scratch { path: path.into(), made, keep })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if self.made {
            let _ = std::fs::remove_dir_all(&self.path);
            return;
        }
        // An existing directory stays what it is: another program's, a mount, or a link to one.
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => std::fs::remove_dir_all(entry.path()),
                false => std::fs::remove_file(entry.path()),
            };
        }
    }
}

/// The object store's part of the scratch: every object below the prefix, removed at the end.
struct Objects<'a> {
    store: &'a dyn ObjectStore,
    keep: bool,
}

impl Objects<'_> {
    fn keys(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        self.store
            .list(Purpose::Scrub, "", &mut |key, _| keys.push(key.to_string()))
            .map_err(|e| e.to_string())?;
        Ok(keys)
    }
    fn check_empty(&self) -> Result<()> {
        match self.keys()?.len() {
            0 => Ok(()),
            n => Err(format!(
                "{} has {n} objects: give the benchmark a prefix of its own",
                self.store.describe()
            )),
        }
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for key in self.keys().unwrap_or_default() {
            if let Err(error) = self.store.delete(Purpose::Collect, &key) {
                eprintln!("warning: {key} stays: {error}");
            }
        }
    }
}

fn mixes(letters: &[char]) -> Result<Vec<Mix>> {
    let mix = |letter: &char| match letter.to_ascii_lowercase() {
        'a' => Ok(A),
        'b' => Ok(B),
        'c' => Ok(C),
        'e' => Ok(E),
        other => Err(format!("there is no workload `{other}`: a, b, c and e")),
    };
    letters.iter().map(mix).collect()
}

/// As TOML: numbers and switches as they are, everything else a string.
fn toml_value(text: &str) -> String {
    let plain = text.parse::<i64>().is_ok() || matches!(text, "true" | "false");
    if plain { text.into() } else { Value::from(text).to_string() }
}

fn open(settings: &Settings) -> Result<(terrace_engine::config::Config, Parts)> {
    let mut text = String::new();
    let mut put = |name: &str, value: &str| text.push_str(&format!("{name} = {}\n", toml_value(value)));
    put("volume_path", &settings.volume()?.to_string_lossy());
    if let Some(flash) = &settings.flash {
        put("flash_path", &flash.to_string_lossy());
        if !settings.set.iter().any(|(name, _)| name == "flash") {
            put("flash", "1G");
        }
    }
    settings.object.iter().for_each(|url| put("object", url));
    settings.object_endpoint.iter().for_each(|url| put("object_endpoint", url));
    settings.set.iter().for_each(|(name, value)| put(name, value));
    terrace::open::assemble("", &text).map_err(|error| error.to_string())
}

fn progress(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{what}");
        let _ = terminal.flush();
    }
}

/// A workload's figures, and from where its reads came.
struct Row {
    name: String,
    run: Run,
    reads: [(&'static str, u64); 4],
}

/// Reads since the start, by tier.
fn reads(store: &Terrace) -> [(&'static str, u64); 4] {
    let status: HashMap<String, u64> = store.engine.status().into_iter().collect();
    let of = |name| status.get(name).copied().unwrap_or(0);
    [
        ("memory", of("pool_read_requests")),
        ("flash", of("reads_flash")),
        ("volume", of("reads_volume")),
        ("object", of("reads_object")),
    ]
}

fn engine(settings: &Settings, config: terrace_engine::config::Config, parts: Parts) -> Result<Vec<Row>> {
    let mixes = mixes(&settings.workloads)?;
    let store = Terrace::on(config, parts).map_err(|e| e.to_string())?;
    let (records, durable) = (settings.records, !settings.relaxed);
    let mut rows = Vec::new();
    let mut before = reads(&store);
    let mut row = |name: &str, run: Run, store: &Terrace| {
        let now = reads(store);
        let reads = std::array::from_fn(|i| (now[i].0, now[i].1 - before[i].1));
        before = now;
        rows.push(Row { name: name.into(), run, reads });
    };
    let load =
        Load { key: terrace_workload::key, records, value: settings.value as usize, batch: 100, durable };
    let loaded = terrace_workload::load(&store, load, |done| {
        if done % 1000 == 0 {
            progress(&format!("loading: {done} of {records} records"));
        }
    })?;
    row("load, 100 records a commit", loaded, &store);
    for mix in mixes {
        progress(&format!("{}: {} s", mix.name, settings.seconds));
        let plan = Plan {
            records,
            value: settings.value as usize,
            threads: settings.threads,
            zipf: settings.zipf,
            durable,
            scattered: true,
            ordered: false,
            time: Duration::from_secs(settings.seconds),
        };
        let run = terrace_workload::run(&store, mix, plan, rows_seed(mix))?;
        row(mix.name, run, &store);
    }
    progress("");
    store.engine.core().storage.stop();
    Ok(rows)
}

/// Each workload inserts above its own number.
fn rows_seed(mix: Mix) -> u64 {
    1 + [A, B, C, E].iter().position(|other| other.name == mix.name).unwrap_or(0) as u64
}

pub fn run(bench: &Bench) -> Result<()> {
    let settings = &bench.settings;
    match &bench.what {
        Some(What::Cache(settings)) => return cache::run(settings),
        Some(What::Embedded(settings)) => return embedded::run(settings),
        Some(What::Split(settings)) => return split::run(settings),
        None => {}
    }
    mixes(&settings.workloads)?;
    if !(settings.zipf.is_finite() && settings.zipf > 0.0) {
        return Err(format!("zipf = {}: a number above 0 is wanted", settings.zipf));
    }
    let _volume = Scratch::new(settings.volume()?, settings.keep)?;
    let _flash = settings.flash.as_deref().map(|path| Scratch::new(path, settings.keep)).transpose()?;
    // A store that is a directory is made by opening it.
    let directory = settings.object.as_deref().filter(|url| !url.contains("://")).map(PathBuf::from);
    let _directory =
        directory.filter(|path| !path.exists()).map(|path| Scratch { path, made: true, keep: settings.keep });
    let (config, parts) = open(settings)?;
    let store = parts.store.clone();
    let objects = match &store {
        Some(store) => {
            // Nothing that another program made is deleted: files in the place were put by this run, or the run refuses the place.
            Objects { store: &**store, keep: true }.check_empty()?;
            Some(Objects { store: &**store, keep: settings.keep })
        }
        None => None,
    };
    let profile =
        settings.set.iter().rfind(|(name, _)| name == "emulate").and_then(|(_, name)| Profile::named(name));
    let emulated = profile.map(Profile::describe).unwrap_or_default();
    let measured = devices::measure(&parts, progress)?;
    progress("");
    let rows = if settings.devices { Vec::new() } else { engine(settings, config, parts)? };
    drop(objects);
    if settings.json {
        let device = |d: &devices::Figure| json!({"what": d.what, "p50_us": d.p50, "p99_us": d.p99, "mb_per_s": d.rate});
        let row = |r: &Row| {
            let reads: serde_json::Map<String, Value> =
                r.reads.iter().map(|(tier, n)| (tier.to_string(), json!(n))).collect();
            json!({"workload": r.name, "per_s": r.run.rate, "p50_us": r.run.p50, "p99_us": r.run.p99, "reads": reads})
        };
        let whole = json!({
            "emulated": emulated, "records": settings.records, "value_bytes": settings.value, "threads": settings.threads,
            "zipf": settings.zipf, "durable": !settings.relaxed,
            "devices": measured.iter().map(device).collect::<Vec<_>>(), "workloads": rows.iter().map(row).collect::<Vec<_>>(),
        });
        crate::output::text(&format!("{whole:#}"));
        return Ok(());
    }
    print(settings, &emulated, &measured, &rows);
    Ok(())
}

fn print(settings: &Settings, emulated: &str, measured: &[devices::Figure], rows: &[Row]) {
    let out = |line: String| crate::output::text(&line);
    if !emulated.is_empty() {
        out(format!("emulated: {emulated}"));
    }
    out(format!("{:44}{:>12}{:>12}{:>12}", "device", "p50 µs", "p99 µs", "MB/s"));
    for d in measured {
        out(format!("{:44}{:>12.0}{:>12.0}{:>12.0}", d.what, d.p50, d.p99, d.rate));
    }
    if rows.is_empty() {
        return;
    }
    let commits = if settings.relaxed { "commits don't wait" } else { "durable commits" };
    out(format!(
        "\n{} records of {} bytes, {} clients, Zipf {}, {commits}",
        settings.records, settings.value, settings.threads, settings.zipf
    ));
    out(format!("{:44}{:>12}{:>12}{:>12}   pages read", "workload", "a second", "p50 µs", "p99 µs"));
    for row in rows {
        let all: u64 = row.reads.iter().map(|(_, n)| n).sum::<u64>().max(1);
        let parts: Vec<String> = row
            .reads
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(tier, n)| format!("{tier} {:.1} %", *n as f64 * 100.0 / all as f64))
            .collect();
        let Run { rate, p50, p99 } = row.run;
        out(format!("{:44}{rate:>12.0}{p50:>12.1}{p99:>12.0}   {}", row.name, parts.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_was_there_stays_as_it_is_and_is_empty_again() {
        let top = std::env::temp_dir().join(format!("terrace-scratch-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let (real, link, new) = (top.join("real"), top.join("link"), top.join("new"));
        std::fs::create_dir_all(&real).unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o750)).unwrap();
        symlink(&real, &link).unwrap();
        for path in [&link, &real, &new] {
            let scratch = Scratch::new(path, false).unwrap();
            std::fs::create_dir(path.join("a")).unwrap();
            std::fs::write(path.join("a/b"), b"c").unwrap();
            std::fs::write(path.join("d"), b"e").unwrap();
            drop(scratch);
            assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
        }
        assert!(link.is_symlink() && !new.exists());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o750);
        std::fs::remove_dir_all(&top).unwrap();
    }
}
