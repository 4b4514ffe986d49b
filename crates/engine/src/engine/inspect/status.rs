//! What people are told of the engine: its trees, counters, settings, requests and troubles.

use crate::calendar;
use crate::config::{Bytes, Config};
use crate::engine::Engine;
use crate::storage::Storage;
use crate::storage::archive::ArchiveStatus;
use crate::storage::requests::{self, Requests};
use crate::storage::trouble::Trouble;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_io::disk::Class;
use terrace_io::split::router::DeviceStatus;
use terrace_log::Redo;
use terrace_tier::memory::pool::Purpose;
use terrace_tier::objects::collect::CollectCounters;
use terrace_tier::objects::object::ObjectCounters;
use terrace_tier::objects::object::codec::PackCounters;
use terrace_tier::objects::sink::SinkCounters;
use terrace_tier::page::PAGE_SIZE;

/// One tree and where its pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    pub space: u32,
    pub table: String,
    pub index: String,
    pub pages: u64,
    pub memory: u64,
    pub flash: u64,
    pub volume: u64,
    pub object: u64,
}

impl Engine {
    pub fn spaces(&self) -> Vec<SpaceInfo> {
        let storage = &self.core.storage;
        let memory = storage.pages.pool().pages_by_space();
        let counts = storage.map.counts();
        self.core
            .catalog
            .list()
            .into_iter()
            .map(|(space, table, index)| {
                let c = counts.get(&space).copied().unwrap_or_default();
                let memory = memory.get(&space).copied().unwrap_or(0);
                SpaceInfo {
                    space: space.0,
                    table,
                    index,
                    pages: c.pages.max(memory),
                    memory,
                    flash: storage.bpe.as_ref().map_or(0, |bpe| {
                        let pages = storage.map.pages_of(space);
                        pages.into_iter().filter(|id| bpe.seems_to_have(*id)).count() as u64
                    }),
                    volume: c.volume,
                    object: c.object,
                }
            })
            .chain(self.temporary_spaces())
            .collect()
    }

    /// Counters and gauges by name.
    pub fn status(&self) -> Vec<(String, u64)> {
        let core = &self.core;
        let s = &core.storage;
        let pool = s.pages.pool();
        let (used, blocks) = s.log.usage();
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let flash = s.bpe.as_ref().map(|bpe| (bpe.status(), bpe.clone()));
        let flash_count = |of: fn(&terrace_tier::flash::bpe::BpeCounters) -> &AtomicU64| {
            flash.as_ref().map_or(0, |(_, bpe)| get(of(&bpe.counters)))
        };
        let cold = s.cold.as_deref();
        let sunk = |of: fn(&SinkCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.sinker.counters)));
        let object = |of: fn(&ObjectCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.objects.counters)));
        let packed =
            |of: fn(&PackCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.objects.packer.counters)));
        let collected =
            |of: fn(&CollectCounters) -> &AtomicU64| cold.map_or(0, |c| get(of(&c.collector.counters)));
        let archiver = s.archiver.as_deref();
        let archive = archiver.map_or(ArchiveStatus::default(), |archiver| archiver.status());
        let archive_lag = archiver.map_or((0, 0), |archiver| archiver.lag());
        // Before the list, and apart: what is locked in a statement stays so to its end.
        let history_length = core.purge.history.lock().len();
        let purge_lag = core.purge_lag();
        let rows = core.rows.sum();
        // Each is never above the next one: in this order the later look sees what the former saw.
        let checkpoint = s.checkpointer.position();
        let durable = s.log.durable();
        let appended = s.log.appended();
        let rollbacks_left = core.with_temporary().map(|core| core.rollbacks.count()).sum();
        let list: Vec<(&str, u64)> = vec![
            ("objects_put", object(|c| &c.puts)),
            ("objects_put_bytes", object(|c| &c.put_bytes)),
            ("objects_got", object(|c| &c.gets)),
            ("objects_got_bytes", object(|c| &c.get_bytes)),
            ("objects_get_coalesced", object(|c| &c.coalesced)),
            ("objects_put_resolved", object(|c| &c.resolved)),
            ("objects_pages_put", packed(|c| &c.pages)),
            ("objects_pages_compressed", packed(|c| &c.compressed)),
            ("objects_raw_bytes", packed(|c| &c.raw_bytes)),
            ("objects_stored_bytes", packed(|c| &c.stored_bytes)),
            ("objects_pages_decompressed", packed(|c| &c.unpacked)),
            ("objects_deleted", collected(|c| &c.deleted)),
            ("map_bytes", s.map.bytes()),
            ("objects_to_delete", cold.map_or(0, |c| c.collector.status().0 as u64)),
            ("objects_retained", cold.map_or(0, |c| c.collector.retained() as u64)),
            ("object_snapshots", cold.map_or(0, |c| c.snapshots.list().len() as u64)),
            ("attached_objects_left", cold.map_or(0, |c| c.filler.status().left.unwrap_or(0))),
            ("attached_objects_copied", cold.map_or(0, |c| get(&c.filler.counters.copied))),
            ("attached_copied_bytes", cold.map_or(0, |c| get(&c.filler.counters.copied_bytes))),
            ("archive_stretches", archiver.map_or(0, |a| get(&a.stretches))),
            ("archive_bytes", archiver.map_or(0, |a| get(&a.bytes))),
            ("archive_errors", archiver.map_or(0, |a| get(&a.errors))),
            ("archive_gaps", archive.gaps),
            ("archive_position", archive.end),
            ("archive_since_ms", archive.since_ms),
            ("archive_until_ms", archive.until_ms),
            ("archive_lag_bytes", archive_lag.0),
            ("archive_lag_ms", archive_lag.1),
            ("collect_errors", collected(|c| &c.errors)),
            ("sink_blocks", sunk(|c| &c.blocks)),
            ("sink_patches", sunk(|c| &c.patches)),
            ("sink_pages", sunk(|c| &c.pages)),
            ("sink_blocks_by_watermark", sunk(|c| &c.by_watermark)),
            ("sink_blocks_by_cooling", sunk(|c| &c.by_cooling)),
            ("sink_blocks_by_share", sunk(|c| &c.by_share)),
            ("sink_blocks_waiting", cold.map_or(0, |c| c.sinker.status().blocks_buffered)),
            ("sink_errors", sunk(|c| &c.errors)),
            ("sink_throttled", sunk(|c| &c.throttled)),
            ("sink_corrupt", sunk(|c| &c.corrupt)),
            ("sink_repaired", cold.map_or(0, |c| c.sinker.repaired())),
            ("object_store_troubled", cold.map_or(0, |c| u64::from(c.trouble().is_some()))),
            ("flash_pages", flash.as_ref().map_or(0, |(status, _)| status.pages)),
            ("flash_pages_max", flash.as_ref().map_or(0, |(status, _)| status.pages_max)),
            ("flash_pages_restored", flash.as_ref().map_or(0, |(status, _)| status.restored)),
            ("flash_off", flash.as_ref().map_or(0, |(status, _)| u64::from(status.off.is_some()))),
            ("flash_remembered", flash_count(|c| &c.remembered)),
            ("flash_refused", flash_count(|c| &c.refused)),
            ("flash_left_on_volume", flash_count(|c| &c.near)),
            ("flash_invalidated", flash_count(|c| &c.invalidated)),
            ("flash_rewritten", flash_count(|c| &c.rewritten)),
            ("flash_fill_dropped", flash_count(|c| &c.fill_dropped)),
            ("flash_corrupt", flash_count(|c| &c.corrupt)),
            ("memory_bytes", s.memory().0),
            ("memory_bytes_max", s.config.memory_max_bytes().0),
            ("flash_bytes", s.flash_size().0),
            ("flash_bytes_file", flash.as_ref().map_or(0, |(status, _)| status.file_bytes)),
            ("object_buffer_bytes", s.object_buffer_size().0),
            ("object_buffer_bytes_file", u64::from(s.buffer.grown()) * PAGE_SIZE as u64),
            ("resize_pages_moved", get(&s.resizing.moved)),
            ("resize_bytes_left", s.resizing.progress().map_or(0, |resize| resize.left.0)),
            ("pool_frames", pool.frames() as u64),
            ("pool_frames_free", pool.free_frames() as u64),
            ("pool_frames_dirty", pool.dirty_frames() as u64),
            ("pool_frames_lent", pool.frames_lent() as u64),
            ("memory_lent_sorts", pool.lent_for(Purpose::Sorts) as u64),
            ("memory_lent_watches", pool.lent_for(Purpose::Watches) as u64),
            ("memory_lent_locks", pool.lent_for(Purpose::Locks) as u64),
            ("memory_lent_cursors", pool.lent_for(Purpose::Cursors) as u64),
            ("pool_read_requests", pool.hits()),
            ("pool_misses", get(&pool.counters.misses)),
            ("pool_read_ahead", get(&pool.counters.read_ahead)),
            ("pool_prefetched", get(&pool.counters.prefetched)),
            ("pool_evictions", get(&pool.counters.evictions)),
            ("pool_foreground_evictions", get(&pool.counters.foreground_evictions)),
            ("pool_frame_waits", get(&pool.counters.frame_waits)),
            ("pool_writer_waits", get(&pool.counters.writer_waits)),
            ("pool_promotions", get(&pool.counters.promoted)),
            ("reads_flash", get(&s.path.counters.flash)),
            ("reads_volume", get(&s.path.counters.volume)),
            ("reads_volume_clean", get(&s.path.counters.clean)),
            ("reads_object", get(&s.path.counters.object)),
            ("reads_corrupt", get(&s.path.counters.corrupt)),
            ("flush_pages", get(&s.flusher.counters.pages)),
            ("flush_batches", get(&s.flusher.counters.batches)),
            ("flush_full", get(&s.flusher.counters.full)),
            ("bypass_pages", get(&s.flusher.bypass.pages)),
            ("bypass_syncs", get(&s.flusher.bypass.syncs)),
            ("object_buffer_slots", u64::from(s.map.slots_total())),
            ("object_buffer_slots_free", u64::from(s.map.slots_free())),
            ("object_buffer_slots_clean", u64::from(s.map.clean_copies())),
            ("log_bytes_written", get(&s.log.counters.bytes)),
            ("log_mini_transactions", get(&s.log.counters.ranges)),
            ("log_writes", get(&s.log.counters.writes)),
            ("log_room_waits", get(&s.log.counters.room_waits)),
            ("log_blocks", blocks),
            ("log_blocks_used", used),
            ("log_position", appended),
            ("log_position_durable", durable),
            ("log_position_checkpoint", checkpoint),
            ("log_checkpoint_age", appended - checkpoint),
            ("checkpoints", get(&s.checkpointer.made)),
            ("redo_pages_pending", s.pending.pages() as u64),
            ("rows_read", rows.read),
            ("rows_inserted", rows.inserted),
            ("rows_updated", rows.updated),
            ("rows_deleted", rows.deleted),
            ("transactions_begun", get(&core.counters.begun)),
            ("transactions_committed", get(&core.counters.committed)),
            ("transactions_rolled_back", get(&core.counters.rolled_back)),
            ("commits_not_visible", core.ids.unseen()),
            ("read_log_waits", get(&core.counters.read_log_waits)),
            ("rollbacks_left", rollbacks_left),
            ("purge_transactions", get(&core.counters.purged)),
            ("purge_unreadable", get(&core.purge.trouble.count)),
            ("load_values_sorted", get(&core.counters.sorted)),
            ("history_length", history_length),
            ("purge_lag", purge_lag),
            ("slot_writer_waits", get(&core.write_throttle.waits)),
            ("slot_writer_wait_microseconds", get(&core.write_throttle.nanos) / 1000),
            ("purge_writer_waits", get(&core.purge.throttle.waits)),
            ("purge_writer_wait_microseconds", get(&core.purge.throttle.nanos) / 1000),
            ("read_views", core.ids.views() as u64),
            ("row_locks", core.locks.held() as u64),
            ("gap_locks", core.locks.gaps_held() as u64),
            ("row_lock_waits", get(&core.locks.counters.waits)),
            ("row_lock_current_waits", core.locks.waiting() as u64),
            ("row_lock_wait_microseconds", get(&core.locks.counters.nanos) / 1000),
            ("row_lock_wait_microseconds_max", get(&core.locks.counters.nanos_max) / 1000),
            ("row_lock_wait_microseconds_avg", core.locks.mean_wait() / 1000),
            ("row_lock_deadlocks", get(&core.locks.counters.deadlocks)),
            ("row_lock_preferred", core.locks.preferred()),
            ("row_lock_timeouts", get(&core.locks.counters.timeouts)),
        ];
        let mut list: Vec<(String, u64)> =
            list.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        if let Some(device) = s.volume.stats() {
            let classes = [("log", Class::LogWrite), ("flush", Class::PageFlush), ("page", Class::PageRead)];
            for (name, class) in classes {
                let count = device.of(class);
                list.push((format!("volume_{name}_requests"), count.requests));
                list.push((format!("volume_{name}_bytes"), count.bytes));
                list.push((format!("volume_{name}_microseconds"), count.nanos / 1000));
            }
            let syncs = device.syncs();
            list.push(("volume_syncs".into(), syncs.requests));
            list.push(("volume_sync_microseconds".into(), syncs.nanos / 1000));
        }
        list.extend(split_status(s));
        list.extend(self.temporary_status().into_iter().map(|(name, value)| (name.to_string(), value)));
        list.extend(requests::totals(s));
        list
    }

    /// The settings in force, by name. For the log and the object buffer the volume's own, which may be more
    /// than what was asked for.
    pub fn settings(&self) -> Vec<(&'static str, u64)> {
        let s = &self.core.storage;
        let superblock = s.checkpointer.superblock();
        let partitions = superblock.starts.len();
        let log = superblock.log_blocks * terrace_log::block::BLOCK as u64 * partitions as u64;
        let in_force = Config {
            memory: s.memory(),
            memory_max: s.config.memory_max_bytes(),
            flash: s.flash_size(),
            log: Bytes(log),
            log_partitions: partitions,
            object_buffer: s.object_buffer_size(),
            ..s.config.clone()
        };
        in_force.values()
    }

    /// Every setting that is a text, as it is in force.
    pub fn texts(&self) -> Vec<(&'static str, String)> {
        self.core.storage.config.texts()
    }

    /// What was asked of the devices and the store, by tier and purpose.
    pub fn requests(&self) -> Vec<Requests> {
        requests::by_purpose(&self.core.storage)
    }

    /// What counters can't say, by name: which instance this is, where its tiers are, and what is wrong.
    /// A name that ends in `_trouble` is there only while there is trouble.
    pub fn notes(&self) -> Vec<(&'static str, String)> {
        let s = &self.core.storage;
        let superblock = s.checkpointer.superblock();
        let mut notes = vec![
            ("instance", format!("{:032x}", superblock.instance)),
            ("lineage", format!("{:032x}", superblock.lineage)),
            ("volume", s.volume.describe()),
        ];
        notes.extend(s.overruled.iter().map(|what| ("setting_overruled", what.clone())));
        notes.extend(s.resizing.progress().map(|resize| {
            let (name, seconds) = (resize.what.name(), (s.world.clock.now() - resize.since) as f64 / 1e9);
            let (from, to, left) = (resize.from, resize.to, resize.left);
            ("resize", format!("{name} from {from} to {to}: {left} left after {seconds:.1} s"))
        }));
        notes.extend(s.volume.batches().map(|how| ("disk_batches", how.to_string())));
        notes.extend(s.cold.iter().map(|cold| ("object_store", cold.store.describe())));
        notes.extend(s.cold.iter().filter_map(|cold| {
            let status = cold.filler.status();
            let from = status.from?;
            let what = match (status.fills, status.left) {
                (false, _) => "objects that are not copied".to_string(),
                (true, None) => "objects until they are copied".to_string(),
                (true, Some(left)) => format!("{left} objects until they are copied"),
            };
            Some(("attached", format!("{what}, from {from}")))
        }));
        notes.extend(s.archiver.iter().filter_map(|archiver| {
            let status = archiver.status();
            let (behind, late) = archiver.lag();
            let (since, until) = (calendar::seconds(status.since_ms), calendar::seconds(status.until_ms));
            let lag = format!("{behind} bytes of it, {late} ms old, are not there yet");
            (status.end > 0).then(|| {
                ("archive", format!("the log from {since} to {until}, position {}; {lag}", status.end))
            })
        }));
        notes.extend(self.troubles().into_iter().map(|trouble| (trouble.name, trouble.text)));
        notes
    }

    /// What is wrong: every state that lasts.
    pub fn troubles(&self) -> Vec<Trouble> {
        let s = &self.core.storage;
        let volume = s.volume.describe();
        let mut troubles = Vec::new();
        troubles.extend(self.failure().map(|what| {
            let text = format!(
                "{what}; the engine stopped: every write fails until the server is restarted, and reads of what is in memory go on. \
                 Check the device of the volume, {volume}, then restart the server: committed transactions are recovered"
            );
            Trouble::act("engine_trouble", text)
        }));
        let off = s.bpe.as_ref().and_then(|bpe| bpe.status().off);
        troubles.extend(off.map(|what| Trouble::degraded("flash_trouble", what)));
        troubles.extend(self.core.with_temporary().filter_map(|core| core.rollbacks.trouble()));
        troubles.extend(self.core.with_temporary().flat_map(|core| core.purge.trouble.troubles()));
        troubles.extend(s.redo_trouble.why(&s.pending));
        let ((slots, _), all) = (s.map.slots_pressure(), s.map.slots_total());
        troubles.extend((slots < all).then(|| {
            let what =
                format!("the device is full: it has room for {slots} pages of the object buffer's {all}");
            let todo = format!(
                "make room on the device of the volume, {volume}, or set a smaller terrace_object_buffer"
            );
            Trouble::act("volume_trouble", format!("{what}; {todo}"))
        }));
        troubles.extend(s.cold.iter().filter_map(|cold| cold.trouble()));
        troubles.extend(s.cold.iter().filter_map(|cold| cold.unsinkable()));
        troubles.extend(s.cold.iter().filter_map(|cold| cold.attached_trouble()));
        troubles.extend(s.archiver.iter().flat_map(|archiver| archiver.troubles()));
        troubles
    }

    /// Why the engine has stopped writing, if it has.
    pub fn failure(&self) -> Option<String> {
        let s = &self.core.storage;
        s.log
            .failure()
            .or_else(|| s.flusher.failure().map(|e| e.to_string()))
            .or_else(|| s.checkpointer.failure().map(|e| e.to_string()))
    }
}

/// What divided reads did; zeros while they are not divided.
fn split_status(s: &Storage) -> Vec<(String, u64)> {
    let status = s.path.split().map(|split| split.router().status());
    let device = |number: usize, of: fn(&DeviceStatus) -> u64| {
        status.as_ref().and_then(|status| status.devices.get(number)).map_or(0, of)
    };
    let both = |of: fn(&DeviceStatus) -> u64| device(0, of) + device(1, of);
    let mut list = vec![
        ("split_fall_backs", status.as_ref().map_or(0, |status| status.fall_backs)),
        ("split_failed", both(|d| d.failed)),
        ("split_stale", both(|d| d.stale)),
        ("split_overdue", both(|d| d.overdue)),
        ("split_probes", both(|d| d.probes)),
    ];
    for (number, names) in SPLIT_NAMES.iter().enumerate() {
        list.push((names[0], device(number, |d| d.reads)));
        list.push((names[1], device(number, |d| d.latency / 1000)));
        list.push((names[2], device(number, |d| u64::from(d.in_flight))));
        list.push((names[3], device(number, |d| u64::from(d.is_suspect))));
    }
    list.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

const SPLIT_NAMES: [[&str; 4]; 2] = [
    ["split_flash_reads", "split_flash_microseconds", "split_flash_in_flight", "split_flash_avoided"],
    ["split_volume_reads", "split_volume_microseconds", "split_volume_in_flight", "split_volume_avoided"],
];
