//! What other sizes of memory and flash would bring: misses and money by size, and the same in plain words.
//!
//! Memory and flash are taken for one LRU of both sizes: a page that leaves memory goes to flash. That is near what is
//! while admission lets most pages in that are read again; flash that is not admitted to misses more. Volume and store
//! keep their cost; of the requests to the store only those of reads change.

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

/// In plain words: how it is, what more or less flash would bring, and what is best. At least one line.
pub fn advise(curve: &Curve, seen: &Observed, prices: &Prices) -> Vec<String> {
    let now = point(curve, seen, prices, seen.memory, seen.flash);
    let Some(now) = now.filter(|_| curve.reads() >= READS_MIN) else {
        return vec![format!(
            "Too few reads to say anything: {:.0}, and {READS_MIN:.0} are needed.",
            curve.reads()
        )];
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut lines = vec![
        format!(
            "Of {:.0} reads, memory ({}) misses about {} and memory with flash ({}) about {}; {} are of pages read for the \
             first time, which no size would help.",
            curve.reads(),
            size(seen.memory),
            percent(now.memory_miss),
            size(seen.flash),
            percent(now.miss),
            percent(curve.first_ratio()),
        ),
        format!(
            "Memory, flash, volume and store cost about {} a month at these prices, requests to the store {}.",
            money(now.storage),
            money(now.requests)
        ),
    ];
    let others: Vec<Point> =
        points(curve, seen, prices).into_iter().filter(|p| p.memory == seen.memory).collect();
    for other in others.iter().filter(|p| p.flash != seen.flash) {
        let fewer = now.miss - other.miss;
        let effect = match fewer {
            f if f > NOISE => format!("would miss {} instead of {}", percent(other.miss), percent(now.miss)),
            f if f < -NOISE => format!("would miss {} instead of {}", percent(other.miss), percent(now.miss)),
            _ => "would make no difference that can be told from chance".to_string(),
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
    lines.push(verdict(&now, &others));
    lines
}

/// Reads below which a curve says nothing.
pub const READS_MIN: f64 = 1000.0;

fn verdict(now: &Point, others: &[Point]) -> String {
    // The smallest flash that misses as little as the largest.
    let least = others.iter().map(|p| p.miss).fold(now.miss, f64::min);
    let enough = others.iter().filter(|p| p.miss <= least + NOISE).min_by_key(|p| p.flash);
    match enough {
        Some(p) if p.flash < now.flash => {
            format!("Advice: flash of {} is enough; more has no use for these reads.", size(p.flash))
        }
        Some(p) if p.flash > now.flash && p.miss < now.miss - NOISE => {
            let fewer = (1.0 - p.miss / now.miss) * 100.0;
            let dearer = p.dollars() - now.dollars();
            let price = if dearer > 0.0 {
                format!("for {} a month", money(dearer))
            } else {
                format!("and saves {} a month", money(-dearer))
            };
            format!(
                "Advice: flash of {} would take away {fewer:.0} % of the reads from volume and store, {price}.",
                size(p.flash)
            )
        }
        _ => "Advice: the sizes fit.".to_string(),
    }
}

#[cfg(test)]
mod tests;
