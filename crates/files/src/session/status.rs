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

pub fn json(files: &Files) -> String {
    let (counts, known, waiting, unsaved, (blocks, leased, bytes)) = files.tell(|catalogue, _| {
        let sizes = (catalogue.files(), catalogue.waiting(), catalogue.unsaved());
        (catalogue.counts, sizes.0, sizes.1, sizes.2, catalogue.blocks())
    });
    let (groups, group_bytes) = files.groups.sizes();
    let (requests, read, written) = files.store.totals();
    let outage = files.store.outage().map_or("null".into(), |reason| text(&reason));
    let flash = files.flash.as_ref().map_or("null".into(), |flash| {
        let (status, (hits, fills)) = (flash.status(), flash.counts());
        let off = status.off.as_deref().map_or("null".into(), text);
        format!(
            "{{\"blocks\": {}, \"file_bytes\": {}, \"restored\": {}, \"restoring\": {}, \"hits\": {hits}, \"fills\": {fills}, \"off\": {off}}}",
            status.values, status.file_bytes, status.restored, status.restoring
        )
    });
    format!(
        "{{\"store\": {}, \"outage\": {outage}, \"store_requests\": {requests}, \"store_read_bytes\": {read}, \"store_written_bytes\": {written}, \
         \"memory_bytes\": {}, \"memory_used_bytes\": {bytes}, \"blocks\": {blocks}, \"blocks_not_evictable\": {leased}, \"files_known\": {known}, \
         \"reads_waiting\": {waiting}, \"work_queued\": {}, \"body_bytes\": {}, \"hits\": {}, \"unasked\": {}, \"unsaved\": {unsaved}, \"waited\": {}, \"failed\": {}, \"evicted\": {}, \
         \"changed\": {}, \"served_in_outage\": {}, \"groups\": {groups}, \"group_bytes\": {group_bytes}, \"flash\": {flash}}}",
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
    )
}
