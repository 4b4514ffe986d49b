//! What each number of [`Engine::status`](crate::Engine::status) is: the one list for Prometheus and for SQL.

use super::Kind::{self, Counter, Gauge};

/// What a number of the status is.
pub struct KnownMetric {
    /// What of the engine it is about.
    pub subsystem: &'static str,
    pub kind: Kind,
    pub meaning: &'static str,
}

type Line = (&'static str, Kind, &'static str);

const OBJECTS: &[Line] = &[
    ("objects_put", Counter, "objects put into the store"),
    ("objects_put_bytes", Counter, "bytes of them"),
    ("objects_got", Counter, "requests to the store for pages or blocks"),
    ("objects_got_bytes", Counter, "bytes of them"),
    ("objects_get_coalesced", Counter, "pages that came with another page's request"),
    ("objects_put_resolved", Counter, "puts without an answer, resolved by reading the object's header"),
    ("objects_pages_put", Counter, "pages stored in objects"),
    ("objects_pages_compressed", Counter, "those of them that are compressed"),
    ("objects_raw_bytes", Counter, "bytes of stored pages before compression"),
    ("objects_stored_bytes", Counter, "bytes of stored pages after compression"),
    ("objects_pages_decompressed", Counter, "pages of objects that were decompressed"),
    ("objects_deleted", Counter, "superseded objects deleted from the store"),
    ("objects_to_delete", Gauge, "objects that wait to be deleted"),
    ("objects_retained", Gauge, "superseded objects that snapshots keep, as far as this start has met them"),
    (
        "attached_objects_left",
        Gauge,
        "objects that are still read from a backup's repository and are to be copied",
    ),
    ("attached_objects_copied", Counter, "objects copied from what they are read from, since the start"),
    ("attached_copied_bytes", Counter, "bytes of them"),
    ("archive_stretches", Counter, "stretches of the log put into its archive"),
    ("archive_bytes", Counter, "bytes of them, compressed"),
    ("archive_errors", Counter, "attempts to archive the log that failed"),
    ("archive_gaps", Gauge, "gaps in the archive that this start has made or found"),
    ("archive_position", Gauge, "the log up to this position is in its archive"),
    ("archive_since_ms", Gauge, "Unix time from which on the archive has no gap"),
    ("archive_until_ms", Gauge, "Unix time up to which it has everything"),
    ("archive_lag_bytes", Gauge, "bytes of the log that are not in its archive"),
    ("archive_lag_ms", Gauge, "milliseconds since the archive was whole, if it is not"),
    ("object_snapshots", Gauge, "snapshots recorded in the store, as last read"),
    ("object_store_troubled", Gauge, "1: the store does not answer as it should"),
    ("collect_errors", Counter, "deletions of objects that failed"),
    ("object_requests", Counter, "requests to the store"),
    ("object_request_bytes", Counter, "bytes of those that succeeded"),
    ("object_request_errors", Counter, "requests to the store that failed"),
    ("object_request_retries", Counter, "attempts beyond a request's first"),
    ("object_requests_throttled", Counter, "attempts that the store asked to slow down"),
];

const SINK: &[Line] = &[
    ("sink_blocks", Counter, "blocks moved from the volume to the store"),
    ("sink_patches", Counter, "of these, blocks of which only the changed pages were put, as patch objects"),
    ("sink_pages", Counter, "pages that were only on the volume before"),
    ("sink_blocks_by_watermark", Counter, "blocks sunk for lack of room on the volume"),
    ("sink_blocks_by_cooling", Counter, "blocks sunk for they were left alone"),
    (
        "sink_repaired",
        Counter,
        "images that were corrupt in their slot or object, taken from a good copy as their block sank",
    ),
    ("sink_blocks_by_share", Counter, "blocks sunk of tables with more of the volume than they may have"),
    ("sink_blocks_waiting", Gauge, "blocks with pages on the volume that are not in the store"),
    ("sink_errors", Counter, "sinks that failed"),
    ("sink_throttled", Counter, "blocks that the store asked to put later"),
    ("sink_corrupt", Counter, "blocks that can't be sunk, for a page of them is corrupt"),
];

const FLASH: &[Line] = &[
    ("flash_pages", Gauge, "copies of pages on flash"),
    ("flash_pages_max", Gauge, "copies that flash has room for"),
    ("flash_pages_restored", Gauge, "copies that were there when the engine started"),
    ("flash_off", Gauge, "1: flash is not used until a restart, for it does not work"),
    ("flash_remembered", Counter, "pages that left memory and of which only the name was kept"),
    ("flash_refused", Counter, "pages that rules keep off flash"),
    (
        "flash_left_on_volume",
        Counter,
        "pages not copied, for the volume has them and misses wait for the store",
    ),
    ("flash_invalidated", Counter, "copies that went because their page was flushed or dropped"),
    ("flash_corrupt", Counter, "copies on flash that were corrupt; the page came from below"),
    ("flash_rewritten", Counter, "copies rewritten with their page's flush"),
    ("flash_fill_dropped", Counter, "copies not made, for too many waited to be written"),
    ("split_fall_backs", Counter, "divided reads whose first copy failed or was stale"),
    ("split_failed", Counter, "divided reads that a device failed"),
    ("split_stale", Counter, "divided reads that met a copy that is not current"),
    ("split_overdue", Counter, "divided reads that exceeded their bound"),
    ("split_probes", Counter, "reads that only measure a device"),
    ("split_flash_reads", Counter, "pages on flash and on the volume that were read from flash"),
    ("split_flash_microseconds", Gauge, "mean latency of those, in the last period with some"),
    ("split_flash_in_flight", Gauge, "those under way"),
    ("split_flash_avoided", Gauge, "1: flash fails or hangs and gets only probes"),
    ("split_volume_reads", Counter, "pages on flash and on the volume that were read from the volume"),
    ("split_volume_microseconds", Gauge, "mean latency of those, in the last period with some"),
    ("split_volume_in_flight", Gauge, "those under way"),
    ("split_volume_avoided", Gauge, "1: the volume fails or hangs and gets only probes"),
    ("flash_bytes", Gauge, "room for copies, as it is in force; none is used while flash_off is 1"),
    ("flash_bytes_file", Gauge, "bytes that the file with copies spans"),
    ("flash_requests", Counter, "requests to flash"),
    ("flash_request_bytes", Counter, "bytes of those that succeeded"),
    ("flash_request_errors", Counter, "requests to flash that failed"),
];

const MEMORY: &[Line] = &[
    ("memory_bytes", Gauge, "memory that the engine may use, as it is in force"),
    ("memory_bytes_max", Gauge, "up to where it can be made more"),
    ("memory_lent_sorts", Gauge, "bytes lent to sorts of ALTER, CREATE INDEX and bulk loads"),
    ("memory_lent_watches", Gauge, "bytes lent to lists of rows that change while an index is built"),
    ("memory_lent_locks", Gauge, "bytes lent to row locks"),
    ("commits_not_visible", Gauge, "commits that wait for the log before views include them"),
    ("read_log_waits", Counter, "waits of locking reads for the log, for commits that they had seen"),
    ("memory_lent_cursors", Gauge, "bytes lent to batches of rows that open cursors hand out"),
    ("map_bytes", Gauge, "memory of the map of blocks"),
    ("resize_pages_moved", Counter, "pages moved for changes of sizes"),
    ("resize_bytes_left", Gauge, "bytes that a change of a size under way still has to move"),
];

const POOL: &[Line] = &[
    ("pool_frames", Gauge, "frames of the buffer pool"),
    ("pool_frames_free", Gauge, "frames without a page"),
    ("pool_frames_dirty", Gauge, "frames with a changed page that is not flushed"),
    ("pool_frames_lent", Gauge, "frames whose memory is lent to work"),
    (
        "pool_read_requests",
        Counter,
        "looks for a page that found it in memory; not the first one of a page that came ahead",
    ),
    ("pool_misses", Counter, "looks for a page that did not"),
    ("pool_read_ahead", Counter, "pages that came with another one, before anybody asked for them"),
    ("pool_prefetched", Counter, "those of them that a prefetcher fetched"),
    ("pool_evictions", Counter, "pages that left memory"),
    ("pool_foreground_evictions", Counter, "those of them that a reader without a free frame made leave"),
    ("pool_frame_waits", Counter, "waits for a free frame"),
    ("pool_writer_waits", Counter, "waits of writers while too many pages are dirty"),
    ("pool_promotions", Counter, "pages that were used again and became young"),
    ("reads_flash", Counter, "pages read from flash"),
    ("reads_volume", Counter, "pages read from the volume"),
    ("reads_volume_clean", Counter, "those of them that had sunk before"),
    ("reads_object", Counter, "pages read from the store"),
    ("reads_corrupt", Counter, "images that were not intact"),
];

const VOLUME: &[Line] = &[
    ("flush_pages", Counter, "changed pages written to the volume"),
    ("flush_batches", Counter, "batches of them"),
    ("flush_full", Counter, "batches that the object buffer, or their records in the log, had no room for"),
    ("bypass_pages", Counter, "pages written to the volume past the log"),
    ("bypass_syncs", Counter, "syncs of them"),
    ("object_buffer_bytes", Gauge, "room for pages on the volume, as it is in force"),
    ("object_buffer_bytes_file", Gauge, "bytes that its file spans"),
    ("object_buffer_slots", Gauge, "places for pages on the volume"),
    ("object_buffer_slots_free", Gauge, "those that are free"),
    ("object_buffer_slots_clean", Gauge, "free ones that still have the page that sank from them"),
    ("slot_writer_waits", Counter, "waits of writers while slots are few"),
    ("slot_writer_wait_microseconds", Counter, "how long they took"),
    ("volume_requests", Counter, "requests to the volume, syncs among them"),
    ("volume_request_bytes", Counter, "bytes of those that succeeded"),
    ("volume_request_errors", Counter, "requests to the volume that failed"),
    ("volume_log_requests", Counter, "writes of the log"),
    ("volume_log_bytes", Counter, "bytes of them"),
    ("volume_log_microseconds", Counter, "how long they took"),
    ("volume_flush_requests", Counter, "writes of pages"),
    ("volume_flush_bytes", Counter, "bytes of them"),
    ("volume_flush_microseconds", Counter, "how long they took"),
    ("volume_page_requests", Counter, "reads of pages"),
    ("volume_page_bytes", Counter, "bytes of them"),
    ("volume_page_microseconds", Counter, "how long they took"),
    ("volume_syncs", Counter, "syncs of files"),
    ("volume_sync_microseconds", Counter, "how long they took"),
];

const LOG: &[Line] = &[
    ("log_bytes_written", Counter, "bytes of the log's records, without blocks' heads and padding"),
    ("log_mini_transactions", Counter, "groups of page changes in the log"),
    ("log_writes", Counter, "writes of the log"),
    ("log_room_waits", Counter, "waits for room in the log"),
    ("log_position", Counter, "where the log ends, in bytes of changes since the volume was made"),
    ("log_position_durable", Counter, "up to where it is durable"),
    ("log_position_checkpoint", Counter, "from where recovery would read it"),
    ("log_checkpoint_age", Gauge, "bytes of changes that recovery would read"),
    ("log_blocks", Gauge, "blocks of 4096 bytes that the log has"),
    ("log_blocks_used", Gauge, "those that recovery would read"),
    ("checkpoints", Counter, "checkpoints made"),
    ("redo_pages_pending", Gauge, "pages whose redo is not applied yet after a crash"),
];

const ROWS: &[Line] = &[
    ("rows_read", Counter, "rows and index entries that statements have read"),
    (
        "rows_inserted",
        Counter,
        "rows inserted, those that were rolled back later among them, as of all changes",
    ),
    ("rows_updated", Counter, "rows updated"),
    ("rows_deleted", Counter, "rows deleted"),
];

const TRANSACTIONS: &[Line] = &[
    ("transactions_begun", Counter, "transactions begun"),
    ("transactions_committed", Counter, "committed"),
    ("transactions_rolled_back", Counter, "rolled back"),
    ("read_views", Gauge, "read views that are open"),
    ("history_length", Gauge, "committed transactions whose undo is kept"),
    ("purge_transactions", Counter, "transactions whose undo was purged"),
    (
        "purge_unreadable",
        Counter,
        "delete marks and large values that purge has left where they are, for their pages can't be read any more",
    ),
    (
        "load_values_sorted",
        Counter,
        "rows and index entries that statements of many rows sorted before they inserted them beside others",
    ),
    ("rollbacks_left", Gauge, "transactions that a crash or a failed rollback left to be rolled back"),
    ("purge_lag", Gauge, "undo records that purge is behind"),
    ("purge_writer_waits", Counter, "waits of writers while purge is behind"),
    ("purge_writer_wait_microseconds", Counter, "how long they took"),
];

const LOCKS: &[Line] = &[
    ("row_locks", Gauge, "row locks held, but for those that a change is"),
    ("gap_locks", Gauge, "gap locks held"),
    ("row_lock_waits", Counter, "waits for row and gap locks"),
    ("row_lock_current_waits", Gauge, "requests for row and gap locks that wait now"),
    ("row_lock_wait_microseconds", Counter, "how long the waits took, those that go on not among them"),
    (
        "row_lock_wait_microseconds_max",
        Gauge,
        "the longest that one row or gap was waited for since the start",
    ),
    ("row_lock_wait_microseconds_avg", Gauge, "how long a wait took in the mean since the start"),
    ("row_lock_deadlocks", Counter, "waits that ended with a deadlock"),
    ("row_lock_preferred", Counter, "rows given to one who came later, for whom more others waited"),
    ("row_lock_timeouts", Counter, "waits that took too long"),
];

const TEMPORARY: &[Line] = &[
    ("temporary_tables", Gauge, "temporary tables"),
    ("temporary_pages", Gauge, "their pages, in memory and spilled"),
    ("temporary_bytes", Gauge, "bytes of them"),
    ("temporary_bytes_max", Gauge, "bytes that they may take"),
    ("temporary_pages_spilled", Gauge, "their pages in the spill file"),
    ("temporary_spill_file_bytes", Gauge, "bytes that the spill file spans"),
    ("temporary_spill_writes", Counter, "pages written there"),
    ("temporary_spill_reads", Counter, "pages read from there"),
    ("temporary_spill_errors", Counter, "writes and reads there that failed"),
    ("temporary_full", Counter, "pages that temporary tables had no room for"),
];

const ALL: &[(&str, &[Line])] = &[
    ("objects", OBJECTS),
    ("sink", SINK),
    ("flash", FLASH),
    ("memory", MEMORY),
    ("pool", POOL),
    ("volume", VOLUME),
    ("log", LOG),
    ("rows", ROWS),
    ("transactions", TRANSACTIONS),
    ("locks", LOCKS),
    ("temporary", TEMPORARY),
];

/// What is known of the number of this name.
pub fn of(name: &str) -> Option<KnownMetric> {
    let lines = ALL.iter().flat_map(|(subsystem, lines)| lines.iter().map(move |line| (*subsystem, line)));
    lines
        .filter(|(_, (known, ..))| *known == name)
        .map(|(subsystem, (_, kind, meaning))| KnownMetric { subsystem, kind: *kind, meaning })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_once() {
        let names: Vec<&str> = ALL.iter().flat_map(|(_, lines)| lines.iter().map(|line| line.0)).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
        assert!(of("pool_frames").is_some_and(|known| known.subsystem == "pool" && known.kind == Gauge));
        assert!(of("nonsense").is_none());
    }
}
