//! `terrace bench split`: policies that send each read to flash or to the backend, on simulated machines and on real devices.
//!
//! Nothing of an instance is touched. With `--directory` files are made there, and removed at the end.

use super::{Result, Scratch, progress};
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_io::split::experiments::real::{Backend, DevicePair};
use terrace_io::split::experiments::{self, Cell, Congestion, Lengths};
use terrace_io::split::model::{MILLI, SECOND, machines};
use terrace_io::split::profile::{Point, Profile};
use terrace_io::split::{Policy, Settings as Routing};

#[derive(Args)]
pub struct Settings {
    /// Simulated machines: paper (persistent memory, NVMe behind a fabric), cloud (flash, a network volume)
    #[arg(long, value_delimiter = ',', default_values_t = machines::NAMES.map(String::from))]
    machine: Vec<String>,
    /// Block sizes, in KiB
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64])]
    block: Vec<u32>,
    /// Requests in flight of each thread
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    depth: Vec<u32>,
    /// Threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16])]
    threads: Vec<u32>,
    /// Policies; without: all
    #[arg(long, value_delimiter = ',', default_values_t = Policy::ALL.map(|policy| policy.name().to_string()))]
    policy: Vec<String>,
    /// Simulated milliseconds of each trial of the oracle; a policy runs 24 times as long
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u64).range(200..=60_000))]
    trial: u64,
    /// Leave the congestion experiments out
    #[arg(long)]
    cells_only: bool,
    /// Measure real devices too: an empty directory on the cache's disk
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The real backend: an empty directory on another disk; without: a block server with a shaped link, in this process
    #[arg(long, requires = "directory")]
    backend: Option<PathBuf>,
    /// The server's bandwidth in MB/s, and its latency in microseconds
    #[arg(long, default_value_t = 200)]
    bandwidth: u64,
    #[arg(long, default_value_t = 400)]
    latency: u64,
    /// Seconds of each real run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Save the real devices' profile here
    #[arg(long, requires = "directory")]
    save_profile: Option<PathBuf>,
    /// Use a saved profile instead of measuring one; one that is damaged or of another machine is named and ignored
    #[arg(long, requires = "directory")]
    profile: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A cell on real devices.
struct RealCell {
    what: String,
    at: Point,
    rates: Vec<(String, f64)>,
}

fn policies(settings: &Settings) -> Result<Vec<Policy>> {
    settings.policy.iter().map(|name| name.parse()).collect()
}

/// This machine, as a profile names it.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    format!("{} {}", read("/proc/sys/kernel/hostname"), read("/etc/machine-id"))
}

fn simulated(settings: &Settings, policies: &[Policy], lengths: Lengths) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for machine in &settings.machine {
        for block in &settings.block {
            for threads in &settings.threads {
                for depth in &settings.depth {
                    let at = Point { block: block << 10, depth: *depth, threads: *threads };
                    progress(&format!("{machine}, {block} KiB, {threads} threads, {depth} in flight each"));
                    let cell = experiments::cell(machine, at, policies, lengths);
                    cells.push(cell.ok_or_else(|| no_machine(machine))?);
                }
            }
        }
    }
    Ok(cells)
}

fn no_machine(name: &str) -> String {
    format!("there is no machine `{name}`: {}", machines::NAMES.join(", "))
}

fn real(settings: &Settings, policies: &[Policy]) -> Result<Vec<RealCell>> {
    let Some(directory) = &settings.directory else { return Ok(Vec::new()) };
    let _near = Scratch::new(directory, false)?;
    let _far = settings.backend.as_deref().map(|path| Scratch::new(path, false)).transpose()?;
    let length = Duration::from_secs(settings.seconds);
    let mut cells = Vec::new();
    let mut measured = Profile::new(&machine());
    let given = settings.profile.as_ref().and_then(|path| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let loaded =
            text.and_then(|text| Profile::load(&text, Some(&machine())).map_err(|error| error.to_string()));
        loaded.map_err(|error| eprintln!("warning: {}: {error}", path.display())).ok()
    });
    for block in settings.block.iter().map(|kib| kib << 10) {
        let backend = match &settings.backend {
            Some(path) => Backend::Directory(path.clone()),
            None => Backend::Server {
                bandwidth: settings.bandwidth * 1_000_000,
                latency: settings.latency * 1_000,
            },
        };
        let place = DevicePair::new(directory, &backend, block, (64 << 20) / u64::from(block))?;
        for threads in settings.threads.iter().filter(|threads| **threads <= 64) {
            let at = Point { block, depth: 1, threads: *threads };
            let run = |policy: Policy, profile: Option<&Profile>| {
                progress(&format!("real devices, {} KiB, {threads} threads: {}", block >> 10, policy.name()));
                let profile = profile.cloned().map(std::sync::Arc::new);
                let routing = Routing { policy, profile, ..Routing::default() };
                place.run(routing, *threads, length).map(|ran| ran.rate)
            };
            let alone = [run(Policy::CacheOnly, None)?, run(Policy::BackendOnly, None)?];
            measured.put(at, alone);
            let profile = given.as_ref().unwrap_or(&measured);
            let mut rates = Vec::new();
            for share in [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3] {
                let rate = run(Policy::Static(share), None)?;
                rates.push((format!("static:{share}"), rate));
            }
            for policy in policies {
                rates.push((policy.name().to_string(), run(*policy, Some(profile))?));
            }
            cells.push(RealCell { what: "quiet".into(), at, rates });
            if let Some(shape) = place.shape() {
                // Four uncapped flows beside: a fifth of the link is left.
                shape.flows.store(4, Relaxed);
                let mut rates = Vec::new();
                for policy in policies {
                    rates.push((policy.name().to_string(), run(*policy, Some(profile))?));
                }
                shape.flows.store(0, Relaxed);
                cells.push(RealCell { what: "four competing flows".into(), at, rates });
            }
        }
        drop(place);
        for directory in [Some(directory), settings.backend.as_ref()].into_iter().flatten() {
            for name in ["split.blocks", "split.remote"] {
                let _ = std::fs::remove_file(directory.join(name));
            }
        }
    }
    if let Some(path) = &settings.save_profile {
        std::fs::write(path, measured.save()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(cells)
}

fn point(at: &Point) -> Map<String, Value> {
    let value = json!({"block_bytes": at.block, "in_flight_each": at.depth, "threads": at.threads});
    value.as_object().cloned().unwrap_or_default()
}

fn rates(of: &[(Policy, f64)]) -> Value {
    of.iter()
        .map(|(policy, rate)| (policy.name().to_string(), json!(rate.round())))
        .collect::<Map<_, _>>()
        .into()
}

fn cell_json(cell: &Cell, more: &[(&str, Value)]) -> Value {
    let mut value = point(&cell.at);
    value.insert("machine".into(), json!(cell.machine));
    value.insert("oracle".into(), json!(cell.oracle.rate.round()));
    value.insert("oracle_by".into(), json!(format!("{:?}", cell.oracle.policy)));
    value.insert("best_ratio".into(), json!(cell.oracle.ratio));
    value.insert("best_ratio_rate".into(), json!(cell.oracle.ratio_rate.round()));
    value.insert("rates".into(), rates(&cell.rates));
    more.iter().for_each(|(name, of)| _ = value.insert(name.to_string(), of.clone()));
    value.into()
}

fn congestion_json(c: &Congestion) -> Value {
    let mut value = point(&c.at);
    value.insert("machine".into(), json!(c.machine));
    value.insert("bucket_ms".into(), json!(c.bucket / MILLI));
    value.insert("congested_ms".into(), json!([c.from / MILLI, c.to / MILLI]));
    value.insert("oracle".into(), json!(c.oracle));
    let policies = c.policies.iter().map(|line| {
        let of = json!({
            "before": line.ratios[0], "during": line.ratios[1], "after": line.ratios[2], "mode": line.mode,
            "recovery_ms": line.recovery.map(|nanos| nanos / MILLI), "series": line.series,
        });
        (line.policy.name().to_string(), of)
    });
    value.insert("policies".into(), policies.collect::<Map<_, _>>().into());
    value.into()
}

pub fn run(settings: &Settings) -> Result<()> {
    let policies = policies(settings)?;
    if let Some(unknown) = settings.machine.iter().find(|name| machines::named(name, 4096).is_none()) {
        return Err(no_machine(unknown));
    }
    let too_large = settings.threads.iter().any(|n| !(1..=1024).contains(n))
        || settings.depth.iter().any(|n| !(1..=1024).contains(n))
        || settings.block.iter().any(|n| !(4..=1024).contains(n));
    if too_large {
        return Err("threads and requests in flight are from 1 to 1024, blocks from 4 to 1024 KiB".into());
    }
    let trial = settings.trial * MILLI;
    let lengths = Lengths { trial, run: 24 * trial, steps: 20 };
    let cells = simulated(settings, &policies, lengths)?;
    let (mut timelines, mut levels, mut dispatched) = (Vec::new(), Vec::new(), Vec::new());
    if !settings.cells_only {
        for machine in &settings.machine {
            for threads in [4, 16] {
                let at = Point { block: 64 << 10, depth: 16, threads };
                progress(&format!("{machine}, congestion, {threads} threads"));
                let found =
                    experiments::congestion(machine, at, &policies, 10 * SECOND, 20 * SECOND, lengths);
                timelines.extend(found);
            }
            for flows in [0, 1, 2, 4, 8, 16] {
                progress(&format!("{machine}, {flows} competing flows"));
                let at = Point { block: 64 << 10, depth: 16, threads: 16 };
                levels.extend(
                    experiments::level(machine, at, flows, &policies, lengths).map(|cell| (flows, cell)),
                );
            }
            for (depth, threads) in [(1, 4), (4, 4), (16, 4), (1, 16), (4, 16), (16, 16)] {
                progress(&format!("{machine}, dispatch"));
                let at = Point { block: 64 << 10, depth, threads };
                dispatched.extend(experiments::dispatch(machine, at, lengths));
            }
        }
    }
    let real = real(settings, &policies)?;
    progress("");
    if settings.json {
        let level = |(flows, cell): &(u32, Cell)| cell_json(cell, &[("flows", json!(flows))]);
        let real_json = |cell: &RealCell| {
            let mut value = point(&cell.at);
            value.insert("what".into(), json!(cell.what));
            let rates: Map<_, _> =
                cell.rates.iter().map(|(name, rate)| (name.clone(), json!(rate.round()))).collect();
            value.insert("rates".into(), rates.into());
            Value::from(value)
        };
        let whole = json!({
            "cells": cells.iter().map(|cell| cell_json(cell, &[])).collect::<Vec<_>>(),
            "congestion": timelines.iter().map(congestion_json).collect::<Vec<_>>(),
            "levels": levels.iter().map(level).collect::<Vec<_>>(),
            "dispatch": dispatched.iter().map(|cell| cell_json(cell, &[])).collect::<Vec<_>>(),
            "real": real.iter().map(real_json).collect::<Vec<_>>(),
        });
        crate::output::text(&format!("{whole:#}"));
        return Ok(());
    }
    print(&policies, &cells, &timelines, &levels, &real);
    Ok(())
}

fn print(
    policies: &[Policy],
    cells: &[Cell],
    timelines: &[Congestion],
    levels: &[(u32, Cell)],
    real: &[RealCell],
) {
    let out = |line: String| crate::output::text(&line);
    let names: String = policies.iter().map(|policy| format!("{:>16}", policy.name())).collect();
    let of_oracle = |cell: &Cell| -> String {
        cell.rates.iter().map(|(_, rate)| format!("{:>16.3}", rate / cell.oracle.rate)).collect()
    };
    out(format!(
        "of the oracle\n{:8}{:>6}{:>9}{:>9}{:>10}{names}",
        "machine", "KiB", "threads", "in flt.", "oracle/s"
    ));
    for cell in cells {
        let Point { block, depth, threads } = cell.at;
        out(format!(
            "{:8}{:>6}{threads:>9}{depth:>9}{:>10.0}{}",
            cell.machine,
            block >> 10,
            cell.oracle.rate,
            of_oracle(cell)
        ));
    }
    let worst = policies.iter().enumerate().map(|(at, _)| {
        let least =
            cells.iter().map(|cell| cell.rates[at].1 / cell.oracle.rate).fold(f64::INFINITY, f64::min);
        format!("{least:>16.3}")
    });
    out(format!("{:42}{}", "the worst cell", worst.collect::<String>()));
    for c in timelines {
        out(format!("\ncongestion, {}, {} threads of {} in flight", c.machine, c.at.threads, c.at.depth));
        out(format!("{:18}{:>8}{:>8}{:>8}{:>12}", "policy", "before", "during", "after", "recovery ms"));
        for line in &c.policies {
            let recovery = line.recovery.map_or("never".into(), |nanos| (nanos / MILLI).to_string());
            let [before, during, after] = line.ratios;
            out(format!("{:18}{before:>8.3}{during:>8.3}{after:>8.3}{recovery:>12}", line.policy.name()));
        }
    }
    if !levels.is_empty() {
        out(format!(
            "\ncompeting flows, of the oracle\n{:8}{:>8}{:>10}{names}",
            "machine", "flows", "oracle/s"
        ));
    }
    for (flows, cell) in levels {
        out(format!("{:8}{flows:>8}{:>10.0}{}", cell.machine, cell.oracle.rate, of_oracle(cell)));
    }
    for cell in real {
        out(format!(
            "\nreal devices, {} KiB, {} threads, {}",
            cell.at.block >> 10,
            cell.at.threads,
            cell.what
        ));
        cell.rates.iter().for_each(|(name, rate)| out(format!("{name:18}{rate:>10.0}/s")));
    }
}
