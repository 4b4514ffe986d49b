//! Metrics as Prometheus reads them: the text format, version 0.0.4. `docs/observability.md` names each.

use crate::keyspace::Keyspace;
use crate::server::Core;
use parking_lot::Mutex;
use std::fmt::Write;

/// A text in the making. All samples of a family follow its head.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP terrace_kv_{name} {help}\n# TYPE terrace_kv_{name} {kind}");
    }

    /// `labels` are as the text has them; their values are words of this program.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "terrace_kv_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, "", value as f64);
    }
}

/// The metrics of a running server. Takes the lock of the core for a moment.
pub fn text(core: &Mutex<Core>) -> String {
    let core = core.lock();
    let (dbs, server) = (&core.dbs, &core.server);
    let mut text = Text::default();
    let now_ms = dbs.all[0].now_ms;
    let sum = |count: fn(&Keyspace) -> u64| dbs.all.iter().map(count).sum::<u64>();
    text.gauge("uptime_seconds", "Since the start.", (now_ms - server.started_ms) as f64 / 1000.0);

    text.gauge("clients", "Connected clients.", server.clients.len() as f64);
    let blocked = server.clients.iter().filter(|client| client.blocked.is_some()).count();
    text.gauge("clients_blocked", "Clients that wait for a key.", blocked as f64);
    text.counter("connections_total", "Connections that were accepted.", server.stats.connections);
    text.counter(
        "connections_rejected_total",
        "Connections that were refused.",
        server.stats.rejected_connections,
    );
    text.counter("received_bytes_total", "Bytes from clients.", server.stats.input_bytes);
    text.counter("sent_bytes_total", "Bytes to clients.", server.stats.output_bytes);

    text.counter("commands_total", "Commands that were executed.", server.stats.commands);
    text.counter("errors_total", "Errors that were replied.", server.stats.errors);
    let called = || {
        let all = &crate::command::table::table().all;
        all.iter().map(|found| (found.full_name(), server.command_stats[found.number]))
    };
    text.family("command_calls_total", "counter", "Commands that were executed, by name.");
    for (name, stats) in called().filter(|(_, stats)| stats.calls > 0) {
        text.sample("command_calls_total", &format!("{{command=\"{name}\"}}"), stats.calls as f64);
    }
    text.family("command_seconds_total", "counter", "Time in which commands were executed, by name.");
    for (name, stats) in called().filter(|(_, stats)| stats.calls > 0) {
        text.sample("command_seconds_total", &format!("{{command=\"{name}\"}}"), stats.nanos as f64 / 1e9);
    }

    text.gauge(
        "memory_used_bytes",
        "What the allocator has handed out.",
        crate::memory::allocated_bytes() as f64,
    );
    text.gauge("memory_max_bytes", "maxmemory; 0: no bound.", server.config.size("maxmemory") as f64);
    text.gauge(
        "memory_process_bytes",
        "Resident memory of the process.",
        crate::memory::resident_bytes() as f64,
    );

    text.family("keys", "gauge", "Keys of a database, in memory and in storage.");
    for db in &dbs.all {
        let keys = server.tier.as_ref().map_or(db.len() as u64, |tier| tier.count(db.index));
        if keys > 0 {
            text.sample("keys", &format!("{{db=\"{}\"}}", db.index), keys as f64);
        }
    }
    text.family("keys_in_memory", "gauge", "Keys of a database whose values are in memory.");
    for db in dbs.all.iter().filter(|db| !db.is_empty()) {
        text.sample("keys_in_memory", &format!("{{db=\"{}\"}}", db.index), db.len() as f64);
    }
    text.counter("hits_total", "Look-ups of reading commands that found a key.", sum(|db| db.hits));
    text.counter("misses_total", "Look-ups of reading commands that found none.", sum(|db| db.misses));
    text.counter(
        "expired_keys_total",
        "Keys that were deleted as their time had come.",
        sum(|db| db.expired),
    );
    text.counter(
        "evicted_keys_total",
        "Keys that eviction took out of memory; without storage it deleted them.",
        server.stats.evicted,
    );

    if let Some(tier) = &server.tier {
        let counters = &tier.counters;
        text.family("tier_keys_total", "counter", "Keys of commands, by where they were found.");
        for (tier, count) in [
            ("memory", counters.resident),
            ("storage", counters.fetched),
            ("absent", counters.absent),
            ("filter", counters.filtered),
        ] {
            text.sample("tier_keys_total", &format!("{{tier=\"{tier}\"}}"), count as f64);
        }
        text.counter("storage_reads_total", "Keys that storage was asked for.", counters.reads);
        text.counter("storage_writes_total", "Writes to storage.", counters.writes);
        text.counter("storage_rows_total", "Rows of those writes.", counters.rows);
        text.counter("changes_total", "Changes of keys: several of a key may be one row.", counters.changes);
        text.counter(
            "groups_total",
            "Commands, transactions and scripts that changed data.",
            counters.groups,
        );
        text.counter("groups_failed_total", "Those whose write failed.", counters.failed_groups);
        text.gauge("dirty_keys", "Keys whose changes wait for storage.", tier.queue.waiting_keys() as f64);
        text.gauge("dirty_bytes", "Bytes of those keys.", tier.queue.waiting_bytes() as f64);
        text.gauge("dirty_seconds", "How long the oldest waits.", tier.dirty_ms(now_ms) as f64 / 1000.0);
    }

    let saves = &server.saves;
    text.gauge("last_save_timestamp_seconds", "The last snapshot file.", saves.last_ms as f64 / 1000.0);
    text.gauge("last_save_ok", "Whether the last save succeeded.", f64::from(u8::from(saves.is_last_good)));
    text.gauge("save_running", "Whether one goes on.", f64::from(u8::from(saves.running.is_some())));
    text.0
}
