//! What other sizes of memory and flash would bring: misses and money by size, and the same in plain words.
//!
//! Memory and flash are taken for one LRU of both sizes: a page that leaves memory goes to flash. That is near what is
//! while admission lets most pages in that are read again; flash that is not admitted to misses more. Volume and store
//! keep their cost; only the reads among the requests to the store change.

use crate::curve::Curve;
use crate::prices::{GB, MONTH_SECONDS, Prices};

/// What was measured, over the time of the curve.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Observed {
    pub seconds: f64,
    /// Sizes now, in bytes.
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
    pub page_bytes: u64,
    /// Share of the reads below memory and flash that the store had to answer, from 0 to 1.
    pub store_share: f64,
    pub puts: u64,
}

/// One size of memory and flash.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// In bytes.
    pub memory: u64,
    pub flash: u64,
    pub is_current: bool,
    /// Share of the reads that memory alone would miss.
    pub memory_miss: f64,
    /// Share of the reads that neither memory nor flash would have.
    pub miss: f64,
    /// Dollars a month.
    pub storage: f64,
    pub requests: f64,
}

impl Point {
    pub fn dollars(&self) -> f64 {
        self.storage + self.requests
    }
}

const SIZES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Flash to look at where there is none, as shares of what is stored below.
const NEW_FLASH: [f64; 4] = [0.05, 0.1, 0.2, 0.5];

/// Expected misses and money at this size; None while nothing was read.
pub fn point(curve: &Curve, seen: &Observed, prices: &Prices, memory: u64, flash: u64) -> Option<Point> {
    let page = seen.page_bytes.max(1) as f64;
    let memory_miss = curve.miss_ratio(memory as f64 / page)?;
    let miss = curve.miss_ratio((memory + flash) as f64 / page)?;
    let gb = |bytes: u64| bytes as f64 / GB;
    let storage = gb(memory) * prices.memory.dollars()
        + gb(flash) * prices.flash.dollars()
        + gb(seen.volume) * prices.volume.dollars()
        + gb(seen.object) * prices.object.dollars();
    let month = if seen.seconds > 0.0 { MONTH_SECONDS / seen.seconds } else { 0.0 };
    let gets = curve.reads() * miss * seen.store_share * month;
    let requests =
        gets / 1000.0 * prices.gets.dollars() + seen.puts as f64 * month / 1000.0 * prices.puts.dollars();
    let is_current = memory == seen.memory && flash == seen.flash;
    Some(Point { memory, flash, is_current, memory_miss, miss, storage, requests })
}

/// A grid of sizes around those in force, memory first. Empty while nothing was read.
pub fn points(curve: &Curve, seen: &Observed, prices: &Prices) -> Vec<Point> {
    let times = |size: u64, factor: f64| (size as f64 * factor) as u64;
    let mut flash: Vec<u64> = vec![0];
    if seen.flash > 0 {
        flash.extend(SIZES.map(|factor| times(seen.flash, factor)));
    } else {
        let below = (seen.volume + seen.object).max(seen.memory);
        flash.extend(NEW_FLASH.map(|share| times(below, share)));
    }
    let memory = [0.5, 1.0, 2.0].map(|factor| times(seen.memory, factor));
    memory.iter().flat_map(|m| flash.iter().filter_map(|f| point(curve, seen, prices, *m, *f))).collect()
}

fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= GB => format!("{:.1} GB", b / GB),
        b if b >= 1024.0 * 1024.0 => format!("{:.0} MB", b / 1024.0 / 1024.0),
        b => format!("{:.0} KB", b / 1024.0),
    }
}

/// Money, with as many digits as it takes to tell it from nothing.
fn money(dollars: f64) -> String {
    let sign = if dollars < 0.0 { "-" } else { "" };
    let dollars = dollars.abs();
    if dollars >= 1.0 || dollars == 0.0 {
        format!("{sign}${dollars:.2}")
    } else {
        format!("{sign}${dollars:.4}")
    }
}

/// A difference in misses below this is noise of the sample.
const NOISE: f64 = 0.01;

/// Requests of less time than this say little about a month.
const SHORT: f64 = 3600.0;

/// What is said of money that was watched for too short a time.
fn too_short(seconds: f64) -> Option<String> {
    let time = match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < SHORT => format!("{:.0} min", (s / 60.0).floor()),
        _ => return None,
    };
    Some(format!(
        "Requests are counted since the engine's start, for {time}: too short a time to say what they cost a month."
    ))
}

/// In plain words: how it is, what more or less flash would bring, and what is best. At least one line. `off`: why flash is
/// not used, if so; `seen` has the size that it would have.
pub fn advise(curve: &Curve, seen: &Observed, prices: &Prices, off: Option<&str>) -> Vec<String> {
    let failed = off.map(|why| {
        let flash = size(seen.flash);
        format!(
            "Flash has failed and is not used ({why}). When the device works, a restart of the server uses it again: what is said here \
             of flash ({flash}) is from then on."
        )
    });
    let mut lines: Vec<String> = failed.into_iter().collect();
    let now = point(curve, seen, prices, seen.memory, seen.flash);
    let Some(now) = now.filter(|_| curve.reads() >= READS_MIN) else {
        let reads = curve.reads();
        lines.push(format!("Too few reads to say anything: {reads:.0}, and {READS_MIN:.0} are needed."));
        return lines;
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    lines.push(format!(
        "Of {:.0} reads, memory ({}) misses about {} and memory with flash ({}) about {}; {} are of pages read for the \
         first time, which no size would help.",
        curve.reads(),
        size(seen.memory),
        percent(now.memory_miss),
        size(seen.flash),
        percent(now.miss),
        percent(curve.first_ratio()),
    ));
    lines.push(format!(
        "Memory, flash, volume and store cost about {} a month at these prices, requests to the store {}.",
        money(now.storage),
        money(now.requests)
    ));
    lines.extend(too_short(seen.seconds).filter(|_| now.requests > 0.0));
    let others: Vec<Point> =
        points(curve, seen, prices).into_iter().filter(|p| p.memory == seen.memory).collect();
    for other in others.iter().filter(|p| p.flash != seen.flash) {
        let effect = if is_alike(now.miss, other.miss) {
            "would make no difference that can be told from chance".to_string()
        } else {
            format!("would miss {} instead of {}", percent(other.miss), percent(now.miss))
        };
        let dearer = other.dollars() - now.dollars();
        let cost = if dearer >= 0.0 { "more" } else { "less" };
        lines.push(format!(
            "Flash of {} instead of {} {effect}, and cost {} {cost} a month.",
            size(other.flash),
            size(seen.flash),
            money(dearer.abs())
        ));
    }
    let when = if off.is_some() { "Advice, once flash is used again" } else { "Advice" };
    lines.push(format!("{when}: {}", verdict(&now, &others)));
    lines
}

/// Reads below which a curve says nothing.
pub const READS_MIN: f64 = 1000.0;

fn is_alike(miss: f64, other: f64) -> bool {
    (miss - other).abs() <= NOISE
}

/// The cheapest of the sizes that miss as little as the one in force, or as the best one if that is better.
fn verdict(now: &Point, others: &[Point]) -> String {
    let least = others.iter().map(|p| p.miss).fold(now.miss, f64::min);
    let miss = if is_alike(now.miss, least) { now.miss } else { least };
    let alike = others.iter().filter(|p| is_alike(p.miss, miss));
    let best = alike.min_by(|a, b| a.dollars().total_cmp(&b.dollars()).then(a.flash.cmp(&b.flash)));
    let Some(best) = best else { return "the sizes fit.".to_string() };
    let (flash, dearer) = (size(best.flash), best.dollars() - now.dollars());
    if !is_alike(now.miss, best.miss) {
        let fewer = (1.0 - best.miss / now.miss) * 100.0;
        let price = if dearer > 0.0 {
            format!("for {} a month", money(dearer))
        } else {
            format!("and saves {} a month", money(-dearer))
        };
        return format!(
            "flash of {flash} would take away {fewer:.0} % of the reads from volume and store, {price}."
        );
    }
    match dearer {
        d if d >= 0.0 => "the sizes fit.".to_string(),
        d if best.flash < now.flash => {
            format!("flash of {flash} is enough, and saves {} a month.", money(-d))
        }
        d => format!("flash of {flash} saves {} a month.", money(-d)),
    }
}

#[cfg(test)]
mod tests;
