//! The engine's report for people: what it does a second, its history, its log and its tiers.
//!
//! It is made of the numbers of [`Engine::status`]. Averages are over the time since the last report, to whichever session; a report within
//! [`SHORTEST`] of that begins no new time. Not here: transactions and locks (`inspect::info_tables::locks`), whose tables the front knows by name.

use crate::engine::Engine;
use crate::storage::Storage;
use std::collections::HashMap;
use std::fmt::Write;
use terrace_io::clock::Nanos;

/// Shorter times are no base for averages.
const SHORTEST: Nanos = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Counters that are shown a second, line by line: each by name and with what it is.
const A_SECOND: &[(&str, &[(&str, &str)])] = &[
    (
        "rows",
        &[
            ("rows_read", "read"),
            ("rows_inserted", "inserted"),
            ("rows_updated", "updated"),
            ("rows_deleted", "deleted"),
        ],
    ),
    (
        "transactions",
        &[
            ("transactions_begun", "begun"),
            ("transactions_committed", "committed"),
            ("transactions_rolled_back", "rolled back"),
        ],
    ),
    (
        "row locks",
        &[
            ("row_lock_waits", "waits"),
            ("row_lock_wait_microseconds", "microseconds of waiting"),
            ("row_lock_deadlocks", "deadlocks"),
            ("row_lock_timeouts", "time-outs"),
        ],
    ),
    (
        "pages read",
        &[
            ("pool_read_requests", "in memory"),
            ("reads_flash", "from flash"),
            ("reads_volume", "from the volume"),
            ("reads_object", "from the store"),
            ("pool_read_ahead", "ahead"),
        ],
    ),
    (
        "pages written",
        &[
            ("flush_pages", "flushed to the volume"),
            ("bypass_pages", "past the log"),
            ("sink_pages", "sunk to the store"),
            ("pool_evictions", "left memory"),
        ],
    ),
    (
        "log",
        &[
            ("log_bytes_written", "bytes"),
            ("log_writes", "writes"),
            ("log_room_waits", "waits for room"),
            ("checkpoints", "checkpoints"),
        ],
    ),
    (
        "requests",
        &[
            ("volume_requests", "to the volume"),
            ("flash_requests", "to flash"),
            ("object_requests", "to the store"),
        ],
    ),
];

/// The numbers at a moment.
#[derive(Clone, Default)]
pub(crate) struct Numbers {
    at: Nanos,
    by_name: HashMap<String, u64>,
}

impl Numbers {
    pub fn at_start(at: Nanos) -> Numbers {
        Numbers { at, ..Numbers::default() }
    }
    fn of(engine: &Engine) -> Numbers {
        let at = engine.core.storage.world.clock.now();
        Numbers { at, by_name: engine.status().into_iter().collect() }
    }
    fn get(&self, name: &str) -> u64 {
        self.by_name.get(name).copied().unwrap_or(0)
    }
    /// In MiB, rounded.
    fn mib(&self, name: &str) -> String {
        format!("{} MiB", (self.get(name) + MIB / 2) / MIB)
    }
}

/// What a counter has grown by a second.
struct Rates<'a> {
    before: &'a Numbers,
    now: &'a Numbers,
    seconds: f64,
}

impl Rates<'_> {
    fn of(&self, name: &str) -> f64 {
        self.now.get(name).saturating_sub(self.before.get(name)) as f64 / self.seconds
    }
    /// A line: each counter with what it is.
    fn line(&self, what: &str, counters: &[(&str, &str)], out: &mut String) {
        let parts: Vec<String> =
            counters.iter().map(|(name, is)| format!("{:.2} {is}", self.of(name))).collect();
        let _ = writeln!(out, "{what}: {}", parts.join(", "));
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn activity(before: &Numbers, now: &Numbers) -> String {
    let seconds = (now.at.saturating_sub(before.at) as f64 / 1e9).max(1e-3);
    let rates = Rates { before, now, seconds };
    let mut out = format!("averages a second, of the last {seconds:.1} seconds\n");
    for (what, counters) in A_SECOND {
        rates.line(what, counters, &mut out);
    }
    out
}

fn history(now: &Numbers) -> String {
    let mut out = format!(
        "{} committed transactions have undo that is kept; {} undo records that purge could take by now are left\n\
         {} read views are open; {} transactions have been purged since the start\n",
        now.get("history_length"),
        now.get("purge_lag"),
        now.get("read_views"),
        now.get("purge_transactions"),
    );
    if now.get("purge_unreadable") > 0 {
        let _ = writeln!(
            out,
            "purge has left {} delete marks and large values that can't be read any more",
            now.get("purge_unreadable")
        );
    }
    if now.get("rollbacks_left") > 0 {
        let _ = writeln!(
            out,
            "{} transactions are rolled back in the background: a crash or a failure left them",
            now.get("rollbacks_left")
        );
    }
    out
}

fn log(now: &Numbers) -> String {
    let (used, blocks) = (now.get("log_blocks_used"), now.get("log_blocks"));
    let mut out = format!(
        "it ends at {}, is durable up to {}, and has its checkpoint at {}: {} bytes of changes lie between\n\
         {used} of {blocks} blocks are in use, {:.1} %; {} checkpoints since the start\n",
        now.get("log_position"),
        now.get("log_position_durable"),
        now.get("log_position_checkpoint"),
        now.get("log_checkpoint_age"),
        percent(used, blocks),
        now.get("checkpoints"),
    );
    if now.get("redo_pages_pending") > 0 {
        let _ = writeln!(out, "the redo of {} pages is still to be applied", now.get("redo_pages_pending"));
    }
    out
}

fn tiers(now: &Numbers, has_flash: bool, has_store: bool, split: &str) -> String {
    let get = |name: &str| now.get(name);
    let (hits, misses) = (get("pool_read_requests"), get("pool_misses"));
    let mut out = format!(
        "memory: {} in all; {} frames, {} free, {} changed, {} lent; {:.2} % of {} reads found their page there since the start\n",
        now.mib("memory_bytes"),
        get("pool_frames"),
        get("pool_frames_free"),
        get("pool_frames_dirty"),
        get("pool_frames_lent"),
        percent(hits, hits + misses),
        hits + misses,
    );
    let _ = match (has_flash, get("flash_off")) {
        (false, _) => writeln!(out, "flash: none"),
        (true, 0) => writeln!(
            out,
            "flash: {}; {} of {} copies of pages, {} of them from before the start",
            now.mib("flash_bytes"),
            get("flash_pages"),
            get("flash_pages_max"),
            get("flash_pages_restored"),
        ),
        (true, _) => writeln!(out, "flash: not used, for it does not work; a restart uses it again"),
    };
    out.push_str(split);
    let (slots, free) = (get("object_buffer_slots"), get("object_buffer_slots_free"));
    let _ = writeln!(
        out,
        "object buffer on the volume: {}; {} of {slots} places taken, {:.1} %; {} of the free ones still have the page that sank from them",
        now.mib("object_buffer_bytes"),
        slots.saturating_sub(free),
        percent(slots.saturating_sub(free), slots),
        get("object_buffer_slots_clean"),
    );
    let _ = match has_store {
        false => writeln!(out, "object store: none"),
        true => writeln!(
            out,
            "object store: {} blocks have pages that are to sink; {} blocks sank since the start, {} of them as patches, {} of all for lack of room; \
             {} sinks failed; {} objects are to be deleted{}",
            get("sink_blocks_waiting"),
            get("sink_blocks"),
            get("sink_patches"),
            get("sink_blocks_by_watermark"),
            get("sink_errors"),
            get("objects_to_delete"),
            if get("object_store_troubled") > 0 { "; it does not answer as it should" } else { "" },
        ),
    };
    if get("temporary_tables") > 0 {
        let _ = writeln!(
            out,
            "temporary tables: {}, of {} pages, {} of them spilled",
            get("temporary_tables"),
            get("temporary_pages"),
            get("temporary_pages_spilled"),
        );
    }
    out
}

/// Where reads of pages with two copies go, and why.
fn split(storage: &Storage) -> String {
    let Some(split) = storage.path.split() else { return String::new() };
    let status = split.router().status();
    let mut out = format!("split: {}; {}", status.policy, status.plan.describe(&["flash", "volume"]));
    for device in &status.devices {
        let _ = write!(
            out,
            "; {}: {} reads since the start, {} µs on average lately, {} in flight{}",
            device.name,
            device.reads,
            device.latency / 1000,
            device.in_flight,
            if device.is_suspect { ", avoided because it fails or hangs" } else { "" },
        );
    }
    out.push('\n');
    out
}

impl Engine {
    /// What it is about, and lines of text.
    pub fn report(&self) -> Vec<(&'static str, String)> {
        let now = Numbers::of(self);
        let before = {
            let mut looked = self.looked.lock();
            let before = looked.clone();
            if now.at.saturating_sub(before.at) >= SHORTEST {
                *looked = now.clone();
            }
            before
        };
        let storage = &self.core.storage;
        vec![
            ("activity", activity(&before, &now)),
            ("history", history(&now)),
            ("log", log(&now)),
            ("tiers", tiers(&now, storage.bpe.is_some(), storage.cold.is_some(), &split(storage))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seconds: u64, list: &[(&str, u64)]) -> Numbers {
        let by_name = list.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        Numbers { at: seconds * 1_000_000_000, by_name }
    }

    #[test]
    fn averages_cover_the_time_since_the_last_report() {
        let before = numbers(10, &[("rows_read", 1000), ("transactions_committed", 7)]);
        let now = numbers(14, &[("rows_read", 3000), ("transactions_committed", 8), ("reads_object", 2)]);
        let text = activity(&before, &now);
        for line in [
            "averages a second, of the last 4.0 seconds",
            "rows: 500.00 read, 0.00 inserted, 0.00 updated, 0.00 deleted",
            "transactions: 0.00 begun, 0.25 committed, 0.00 rolled back",
        ] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        assert!(text.contains("0.50 from the store"), "{text}");
    }

    #[test]
    fn every_counter_that_is_shown_a_second_is_one() {
        use crate::engine::inspect::metrics::Kind;
        for (name, _) in A_SECOND.iter().flat_map(|(_, counters)| counters.iter()) {
            assert!(crate::engine::inspect::metrics::kind_of(name) == Some(Kind::Counter), "{name}");
        }
    }

    #[test]
    fn absent_tiers_are_reported_as_absent() {
        let now = numbers(1, &[("object_buffer_slots", 100), ("object_buffer_slots_free", 75)]);
        let text = tiers(&now, false, false, "");
        assert!(text.contains("flash: none\n") && text.contains("object store: none\n"), "{text}");
        assert!(text.contains("25 of 100 places taken, 25.0 %"), "{text}");
        let text = tiers(&numbers(1, &[("flash_off", 1), ("object_store_troubled", 1)]), true, true, "");
        assert!(text.contains("flash: not used") && text.contains("does not answer"), "{text}");
    }
}
