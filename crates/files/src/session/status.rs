//! The daemon's figures, as JSON.

use crate::read::Files;
use std::fmt::Write;

fn text(value: &str) -> String {
    let mut out = String::from('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn objects(files: &Files) -> String {
    let objects = files.objects.lock();
    let (count, waiting, memory, flash) = objects.sizes();
    let (room, spilled) = (files.object_bytes.arena.len(), objects.spilled);
    format!(
        "{{\"object_count\": {count}, \"object_waits\": {waiting}, \"object_memory_bytes\": {room}, \"object_memory_used_bytes\": {memory}, \
         \"object_flash_bytes\": {flash}, \"objects_spilled\": {spilled}}}"
    )
}

/// Small files on flash.
fn packed(packs: &crate::packing::Packs) -> String {
    let (status, counters) = (packs.status(), &packs.counters);
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let figures = [
        ("packed_files", status.files as u64),
        ("packed_blocks", status.blocks as u64),
        ("packed_bytes", status.bytes as u64),
        ("staged_files", status.staged as u64),
        ("staged_bytes", status.staged_bytes as u64),
        ("window_bytes", status.window as u64),
        ("staged_hits", get(&counters.staged_hits)),
        ("recent_hits", get(&counters.recent_hits)),
        ("read_hits", get(&counters.read_hits)),
        ("part_reads", get(&counters.reads)),
        ("part_read_bytes", get(&counters.read_bytes)),
        ("footer_reads", get(&counters.footer_reads)),
        ("sealed", get(&counters.sealed)),
        ("sealed_files", get(&counters.sealed_files)),
        ("compacted", get(&counters.compacted)),
        ("stale", get(&counters.stale)),
        ("dropped", get(&counters.dropped)),
        ("restored_files", get(&counters.restored)),
    ];
    let lines: Vec<String> = figures.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{\"restoring_packed\": {}, {}}}", status.restoring, lines.join(", "))
}

/// Where blocks that are on flash and in the store were read.
fn split(files: &Files) -> String {
    let status = files.split.status();
    let device = |device: &terrace_io::split::router::DeviceStatus| {
        format!(
            "\"{}\": {{\"reads\": {}, \"read_bytes\": {}, \"failed\": {}, \"not_found\": {}, \"overdue\": {}, \"probes\": {}, \"in_flight\": {}, \"avoided\": {}, \"latency_ns\": {}}}",
            device.name,
            device.reads,
            device.bytes,
            device.failed,
            device.stale,
            device.overdue,
            device.probes,
            device.in_flight,
            device.is_suspect,
            device.latency
        )
    };
    let devices: Vec<String> = status.devices.iter().map(device).collect();
    format!(
        "{{\"policy\": \"{}\", \"fall_backs\": {}, {}}}",
        status.policy,
        status.fall_backs,
        devices.join(", ")
    )
}

pub fn json(files: &Files) -> String {
    let (counts, known, waiting, unsaved, (blocks, leased, bytes)) = files.tell(|catalogue, _| {
        let sizes = (catalogue.files(), catalogue.waiting(), catalogue.unsaved());
        (catalogue.counts, sizes.0, sizes.1, sizes.2, catalogue.blocks())
    });
    let (pins, pinned, pinned_bytes, pinned_max, without_room) = files.pins.sizes();
    let (groups, group_bytes) = files.groups.sizes();
    let objects = objects(files);
    let (requests, read, written) = files.store.totals();
    let outage = files.store.outage().map_or("null".into(), |reason| text(&reason));
    let split = split(files);
    let s3 = files.front().map_or("null".into(), |front| front.status());
    let peers = files.peers().map_or("null".into(), |peers| peers.status());
    let flash = files.flash.as_ref().map_or("null".into(), |flash| {
        let (status, (hits, fills)) = (flash.status(), flash.counts());
        let packs = flash.packs.as_ref().map_or("null".into(), packed);
        let off = status.off.as_deref().map_or("null".into(), text);
        format!(
            "{{\"blocks\": {}, \"file_bytes\": {}, \"restored\": {}, \"restoring\": {}, \"hits\": {hits}, \"fills\": {fills}, \"off\": {off}, \"packed\": {packs}}}",
            status.values, status.file_bytes, status.restored, status.restoring
        )
    });
    format!(
        "{{\"store\": {}, \"outage\": {outage}, \"store_requests\": {requests}, \"store_read_bytes\": {read}, \"store_written_bytes\": {written}, \
         \"memory_bytes\": {}, \"memory_used_bytes\": {bytes}, \"blocks\": {blocks}, \"blocks_not_evictable\": {leased}, \"files_known\": {known}, \
         \"reads_waiting\": {waiting}, \"work_queued\": {}, \"body_bytes\": {}, \"hits\": {}, \"unasked\": {}, \"unsaved\": {unsaved}, \"waited\": {}, \"failed\": {}, \"evicted\": {}, \
         \"changed\": {}, \"served_in_outage\": {}, \"brought\": {}, \"brought_used\": {}, \"brought_unused\": {}, \"groups\": {groups}, \"group_bytes\": {group_bytes}, \"pins\": {pins}, \"pinned_files\": {pinned}, \"pinned_bytes\": {pinned_bytes}, \"pinned_bytes_max\": {pinned_max}, \"pinned_without_room\": {without_room}, \"objects\": {objects}, \"flash\": {flash}, \"split\": {split}, \"s3\": {s3}, \"peers\": {peers}}}",
        text(&files.store.name()),
        files.arena.len(),
        files.queued(),
        files.bodies.taken(),
        counts.hits,
        counts.unasked,
        counts.waited,
        counts.failed,
        counts.evicted,
        counts.changed,
        counts.served_in_outage,
        counts.brought,
        counts.brought_used,
        counts.brought_unused,
    )
}
