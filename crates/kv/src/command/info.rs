//! INFO and COMMAND: what the server says of itself.

use super::table::{Access, Acl, CommandMatch, Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::resp::Reply;
use crate::server::REDIS_VERSION;
use std::fmt::Write as _;

const LOOK: Flags = flags(&[Flags::LOADING, Flags::STALE]);

const fn row(
    name: &'static str,
    arity: i32,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, LOOK, Keys::None, handler).doc(
        Group::Server,
        since,
        "O(N) of what is returned",
        summary,
    )
}

pub const ROWS: &[Row] = &[
    row("info", -1, info, "1.0.0", "Describes the server in sections.").acl(Acl::DANGEROUS),
    row("command", -1, commands, "2.8.13", "Describes all commands.").acl(Acl::CONNECTION).with_subcommands(
        &[
            help::row(Group::Server, "5.0.0").acl(Acl::CONNECTION),
            row(
                "getkeysandflags",
                -3,
                getkeysandflags,
                "7.0.0",
                "Finds the keys in a command and what it does to them.",
            ),
            row("count", 2, count, "2.8.13", "Counts the commands."),
            row("info", -2, command_info, "2.8.13", "Describes commands."),
            row("docs", -2, docs, "7.0.0", "Returns the documentation of commands."),
            row("list", -2, list, "7.0.0", "Lists the names of commands."),
            row("getkeys", -3, getkeys, "2.8.13", "Finds the keys in a command."),
        ],
    ),
];

fn info(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let wanted = |section: &str| {
        args.len() == 1
            || args[1..].iter().any(|arg| {
                args::is(arg, section)
                    || ["all", "everything", "default"].iter().any(|all| args::is(arg, all))
            })
    };
    let with_commands = args[1..]
        .iter()
        .any(|arg| ["all", "everything", "commandstats"].iter().any(|all| args::is(arg, all)));
    let server = &*ctx.server;
    let now_ms = ctx.dbs.all[0].now_ms;
    let mut out = String::new();
    let begin = |out: &mut String, name: &str| {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let _ = write!(out, "# {name}\r\n");
    };
    macro_rules! line {
        ($($format:tt)*) => { let _ = write!(out, "{}\r\n", format_args!($($format)*)); };
    }
    if wanted("server") {
        begin(&mut out, "Server");
        let uptime = (now_ms - server.started_ms) / 1000;
        line!("redis_version:{REDIS_VERSION}");
        line!("redis_mode:standalone");
        line!("terrace_version:{}", env!("CARGO_PKG_VERSION"));
        line!("os:{}", std::env::consts::OS);
        line!("arch_bits:{}", usize::BITS);
        line!("multiplexing_api:mio");
        line!("process_id:{}", std::process::id());
        line!("tcp_port:{}", server.config.text("port"));
        line!("server_time_usec:{}", now_ms * 1000);
        line!("uptime_in_seconds:{uptime}");
        line!("uptime_in_days:{}", uptime / 86400);
    }
    if wanted("clients") {
        begin(&mut out, "Clients");
        let blocked =
            server.clients.iter().filter(|client| client.blocked.is_some()).count() + server.pause.waiting();
        line!("connected_clients:{}", server.clients.len() + 1);
        line!("maxclients:{}", server.config.limits.clients_max);
        line!("blocked_clients:{blocked}");
        line!("tracking_clients:{}", server.tracking.clients());
    }
    if wanted("memory") {
        begin(&mut out, "Memory");
        let used = crate::memory::allocated_bytes();
        line!("used_memory:{used}");
        line!("used_memory_human:{:.2}M", used as f64 / f64::from(1 << 20));
        line!("used_memory_rss:{}", crate::memory::resident_bytes());
        line!("maxmemory:{}", server.config.number("maxmemory"));
        line!("mem_fragmentation_bytes:{}", server.meter.fragments);
        line!("mem_process:{}", server.meter.process);
        line!("mem_outside_of_allocator:{}", server.meter.elsewhere);
        line!("maxmemory_policy:{}", server.config.text("maxmemory-policy"));
        line!("number_of_cached_scripts:{}", server.scripts.len());
        line!("mem_allocator:jemalloc");
    }
    if wanted("persistence") {
        begin(&mut out, "Persistence");
        let saves = &server.saves;
        let running = saves.running.as_ref();
        let status = |is_good: bool| if is_good { "ok" } else { "err" };
        line!("loading:0");
        line!("async_loading:0");
        line!("current_cow_size:{}", running.map_or(0, |running| running.sink.preserved()));
        line!("current_save_keys_processed:{}", running.map_or(0, |running| running.sink.keys()));
        line!("current_save_keys_total:{}", running.map_or(0, |running| running.keys));
        line!("rdb_changes_since_last_save:{}", ctx.dbs.dirty().saturating_sub(saves.changes));
        line!("rdb_bgsave_in_progress:{}", i32::from(running.is_some()));
        line!("rdb_last_save_time:{}", saves.last_ms / 1000);
        line!("rdb_last_bgsave_status:{}", status(saves.is_last_good));
        line!("rdb_last_bgsave_time_sec:{}", saves.last_seconds);
        let current = running.map_or(-1, |running| (now_ms - running.started_ms) / 1000);
        line!("rdb_current_bgsave_time_sec:{current}");
        line!("rdb_saves:{}", saves.count);
        line!("rdb_last_cow_size:{}", saves.last_preserved);
        line!("rdb_last_load_keys_expired:{}", saves.loaded.expired);
        line!("rdb_last_load_keys_loaded:{}", saves.loaded.keys);
        line!("aof_enabled:{}", i32::from(server.config.is_on("appendonly")));
    }
    if wanted("stats") {
        begin(&mut out, "Stats");
        let sum = |count: fn(&crate::keyspace::Keyspace) -> u64| ctx.dbs.all.iter().map(count).sum::<u64>();
        line!("total_connections_received:{}", server.stats.connections);
        line!("total_commands_processed:{}", server.stats.commands);
        line!("total_net_input_bytes:{}", server.stats.input_bytes);
        line!("total_net_output_bytes:{}", server.stats.output_bytes);
        line!("rejected_connections:{}", server.stats.rejected_connections);
        line!("expired_keys:{}", sum(|db| db.expired));
        line!("evicted_keys:{}", server.stats.evicted);
        line!("keyspace_hits:{}", sum(|db| db.hits));
        line!("keyspace_misses:{}", sum(|db| db.misses));
        line!("pubsub_channels:{}", server.channels.len(crate::pubsub::Kind::Channel));
        line!("pubsub_patterns:{}", server.channels.len(crate::pubsub::Kind::Pattern));
        line!("tracking_total_keys:{}", server.tracking.keys());
        line!("tracking_total_items:{}", server.tracking.items());
        line!("tracking_total_prefixes:{}", server.tracking.prefixes());
        line!("total_error_replies:{}", server.stats.errors);
    }
    if wanted("tiering")
        && let Some(tier) = &server.tier
    {
        begin(&mut out, "Tiering");
        line!("tiering_storage:{}", tier.storage.name());
        let back = tier.back.as_ref();
        let is_write_back =
            back.is_some_and(|back| back.mode == crate::tiering::write_policy::Mode::WriteBack);
        let failure = tier.storage.failure();
        line!("tiering_storage_failure:{}", failure.map_or("none".to_owned(), |error| error.to_string()));
        line!("tiering_mode:{}", if is_write_back { "write-back" } else { "write-through" });
        line!("tiering_keys_known:{}", tier.counters.resident);
        line!("tiering_keys_fetched:{}", tier.counters.fetched);
        line!("tiering_keys_absent:{}", tier.counters.absent);
        line!("tiering_keys_filtered:{}", tier.counters.filtered);
        line!("tiering_keys_wanted:{}", tier.wanted());
        line!("tiering_reads:{}", tier.counters.reads);
        line!("tiering_read_calls:{}", tier.counters.read_calls);
        let large = &tier.collections;
        line!("tiering_large_collections:{}", large.len());
        line!("tiering_elements_fetched:{}", large.counters.fetched);
        line!("tiering_elements_ranged:{}", large.counters.ranged);
        line!("tiering_elements_evicted:{}", large.counters.evicted);
        line!("tiering_large_loads:{}", large.counters.loads);
        line!("tiering_filter_parts:{}", tier.filter.known_parts());
        line!("tiering_filter_bytes:{}", tier.filter.bytes());
        line!("tiering_groups:{}", tier.counters.groups);
        line!("tiering_groups_failed:{}", tier.counters.failed_groups);
        line!("tiering_writes:{}", tier.counters.writes);
        line!("tiering_rows:{}", tier.counters.rows);
        line!("tiering_row_bytes:{}", tier.counters.row_bytes);
        line!("tiering_waiting_keys:{}", tier.queue.waiting_keys());
        line!("tiering_waiting_bytes:{}", tier.queue.waiting_bytes());
        line!("tiering_dirty_keys:{}", tier.queue.held().count());
        line!("tiering_dirty_bytes:{}", tier.queue.waiting_bytes() + tier.queue.flight_bytes());
        line!("tiering_dirty_ms:{}", tier.dirty_ms(now_ms));
        if let Some(back) = back {
            let text = |error: Option<&crate::storage::StorageError>| {
                error.map_or("none".to_owned(), |error| error.to_string().replace(['\r', '\n'], " "))
            };
            line!("tiering_log_bytes:{}", back.journal.bytes());
            line!("tiering_log_records:{}", back.journal.records);
            line!("tiering_log_appended_bytes:{}", back.journal.appended_bytes);
            line!("tiering_log_failure:{}", text(back.journal.failure()));
            line!("tiering_write_failure:{}", text(back.failure.as_ref()));
            line!("tiering_writes_failed:{}", back.counters.failed_writes);
            line!("tiering_commands_waited:{}", back.counters.waited);
            line!("tiering_commands_delayed:{}", back.counters.delayed);
            line!("tiering_delay_usec:{}", back.counters.delay_us);
        }
        let ratio = |of: u64, to: u64| of as f64 / to.max(1) as f64;
        line!("tiering_changes:{}", tier.counters.changes);
        line!("tiering_coalescing_factor:{:.3}", ratio(tier.counters.changes, tier.counters.rows));
        let calls = tier.counters.read_calls + tier.counters.writes;
        line!("tiering_store_calls_per_command:{:.4}", ratio(calls, server.stats.commands));
        line!("tiering_evicted:{}", server.stats.evicted);
    }
    if wanted("replication") {
        begin(&mut out, "Replication");
        line!("role:master");
        line!("connected_slaves:0");
    }
    if with_commands {
        begin(&mut out, "Commandstats");
        for found in &table().all {
            let stats = server.command_stats[found.number];
            if stats.calls + stats.rejected > 0 {
                let micros = stats.nanos / 1000;
                let per_call = stats.nanos as f64 / 1000.0 / stats.calls.max(1) as f64;
                line!(
                    "cmdstat_{}:calls={},usec={micros},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                    found.full_name(),
                    stats.calls,
                    stats.rejected,
                    stats.failed
                );
            }
        }
    }
    if wanted("errorstats") {
        begin(&mut out, "Errorstats");
        for (code, count) in &server.error_stats {
            line!("errorstat_{code}:count={count}");
        }
    }
    if wanted("cluster") {
        begin(&mut out, "Cluster");
        line!("cluster_enabled:0");
    }
    if wanted("keyspace") {
        begin(&mut out, "Keyspace");
        let keys = |db: &crate::keyspace::Keyspace| match &server.tier {
            Some(tier) => tier.count(db.index),
            None => db.len() as u64,
        };
        for db in ctx.dbs.all.iter().filter(|db| keys(db) > 0) {
            line!(
                "db{}:keys={},expires={},avg_ttl={}",
                db.index,
                keys(db),
                db.expiring(),
                db.average_ttl_ms()
            );
        }
    }
    ctx.reply.verbatim("txt", out.as_bytes());
    Ok(())
}

fn commands(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let all: Vec<CommandMatch> = table().commands().copied().collect();
    ctx.reply.array(all.len());
    for found in all {
        describe(ctx.reply, found);
    }
    Ok(())
}

fn count(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(table().commands().count() as i64);
    Ok(())
}

/// First key, last key and step, as `COMMAND INFO` shows them.
fn positions(keys: Keys) -> (i64, i64, i64) {
    match keys {
        Keys::None | Keys::Counted { .. } => (0, 0, 0),
        Keys::At { first, last, step, .. } => (first as i64, i64::from(last), step as i64),
        Keys::CountedInto { .. } | Keys::Function(_) => (1, 1, 1),
    }
}

fn access_words(access: Access) -> [&'static str; 2] {
    match access {
        Access::Read => ["RO", "access"],
        Access::ReadWrite => ["RW", "update"],
        Access::Overwrite => ["OW", "update"],
        Access::Remove => ["RM", "delete"],
    }
}

/// The entry of a command in `COMMAND INFO`.
fn describe(reply: &mut Reply, found: CommandMatch) {
    let row = found.row;
    let (first, last, step) = positions(row.keys);
    reply.array(10);
    reply.bulk(found.full_name().as_bytes());
    reply.int(i64::from(row.arity));
    let names: Vec<&str> =
        Flags::NAMES.iter().filter(|(flag, _)| row.flags.contains(*flag)).map(|(_, name)| *name).collect();
    let moves = matches!(row.keys, Keys::Counted { .. } | Keys::CountedInto { .. });
    let adds = moves && !names.contains(&"movablekeys");
    reply.set(names.len() + usize::from(adds));
    for name in &names {
        reply.simple(name);
    }
    if adds {
        reply.simple("movablekeys");
    }
    reply.int(first);
    reply.int(last);
    reply.int(step);
    let acl = row.categories();
    let categories: Vec<&str> =
        Acl::NAMES.iter().filter(|(one, _)| acl.0 & one.0 != 0).map(|(_, name)| *name).collect();
    reply.set(categories.len());
    for name in categories {
        reply.simple(&format!("@{name}"));
    }
    reply.set(0);
    describe_keys(reply, row.keys);
    reply.array(row.subcommands.len());
    for at in 0..row.subcommands.len() {
        describe(reply, table().all[found.number + 1 + at]);
    }
}

fn describe_keys(reply: &mut Reply, keys: Keys) {
    let Keys::At { first, last, step, access } = keys else {
        reply.set(0);
        return;
    };
    reply.set(1);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(2);
    for word in access_words(access) {
        reply.simple(word);
    }
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.int(first as i64);
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"range");
    reply.bulk(b"spec");
    reply.map(3);
    reply.bulk(b"lastkey");
    reply.int(if last < 0 { i64::from(last) } else { i64::from(last) - first as i64 });
    reply.bulk(b"keystep");
    reply.int(step as i64);
    reply.bulk(b"limit");
    reply.int(0);
}

/// The command, or `config|get`.
fn named(name: Arg<'_>) -> Option<CommandMatch> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let found = table().find(parts.next()?)?;
    match parts.next() {
        Some(sub) => table().subcommand(found, sub),
        None => Some(found),
    }
}

fn command_info(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len() == 2 {
        return commands(ctx, args);
    }
    ctx.reply.array(args.len() - 2);
    for name in &args[2..] {
        match named(name) {
            Some(found) => describe(ctx.reply, found),
            None => ctx.reply.null_array(),
        }
    }
    Ok(())
}

fn docs(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let all: Vec<CommandMatch> = match args {
        [_, _] => table().commands().copied().collect(),
        _ => args[2..].iter().filter_map(|name| named(name)).collect(),
    };
    ctx.reply.map(all.len());
    for found in all {
        document(ctx.reply, found);
    }
    Ok(())
}

fn document(reply: &mut Reply, found: CommandMatch) {
    let row = found.row;
    reply.bulk(found.full_name().as_bytes());
    reply.map(4 + usize::from(!row.subcommands.is_empty()));
    for (word, text) in [
        ("summary", row.summary),
        ("since", row.since),
        ("group", row.group.name()),
        ("complexity", row.complexity),
    ] {
        reply.bulk(word.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !row.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(row.subcommands.len());
        for at in 0..row.subcommands.len() {
            document(reply, table().all[found.number + 1 + at]);
        }
    }
}

fn list(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let all = || table().all.iter().map(|found| (found.full_name(), found.row));
    let names: Vec<String> = match args {
        [_, _] => all().map(|(name, _)| name).collect(),
        [_, _, filter, kind, value] if args::is(filter, "FILTERBY") => {
            let category =
                Acl::NAMES.iter().find(|(_, name)| args::is(value, name)).map_or(Acl(0), |(acl, _)| *acl);
            let is_wanted: Box<dyn Fn(&(String, &Row)) -> bool> = if args::is(kind, "PATTERN") {
                Box::new(|(name, _)| crate::value::glob::matches_ignoring_case(value, name.as_bytes()))
            } else if args::is(kind, "ACLCAT") {
                Box::new(|(_, row)| row.categories().0 & category.0 != 0)
            } else if args::is(kind, "MODULE") {
                Box::new(|_| false)
            } else {
                return Err(CommandError::Syntax);
            };
            all().filter(|one| is_wanted(one)).map(|(name, _)| name).collect()
        }
        _ => return Err(CommandError::Syntax),
    };
    ctx.reply.array(names.len());
    for name in names {
        ctx.reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// The positions of the keys of the command that is an argument, with what it does to each.
fn keys_of(args: &[Arg<'_>]) -> Result<(CommandMatch, Vec<(usize, Access)>), CommandError> {
    let command = &args[2..];
    let found =
        table().find_with_subcommand(command).ok_or(CommandError::of("ERR Invalid command specified"))?;
    if matches!(found.row.keys, Keys::None) {
        return Err(CommandError::of("ERR The command has no key arguments"));
    }
    if !found.row.accepts(command.len()) {
        return Err(CommandError::of("ERR Invalid number of arguments specified for command"));
    }
    let mut positions = Vec::new();
    found.row.keys.for_each(command, |at, access| positions.push((at, access)));
    // A script may be run without keys.
    if positions.is_empty() && found.row.group != Group::Scripting {
        return Err(CommandError::of("ERR Invalid arguments specified for command"));
    }
    Ok((found, positions))
}

fn getkeys(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (_, positions) = keys_of(args)?;
    ctx.reply.array(positions.len());
    for (at, _) in positions {
        ctx.reply.bulk(args[2 + at]);
    }
    Ok(())
}

fn getkeysandflags(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (found, positions) = keys_of(args)?;
    ctx.reply.array(positions.len());
    for (at, access) in positions {
        let moves = ["lmove", "blmove", "rpoplpush", "brpoplpush", "smove"].contains(&found.row.name);
        let words: &[&str] = match access {
            Access::ReadWrite if moves && at == 1 => &["RW", "access", "delete"],
            Access::ReadWrite if moves => &["RW", "insert"],
            Access::ReadWrite if found.row.name == "set" => &["OW", "update"],
            access => &access_words(access),
        };
        ctx.reply.array(2);
        ctx.reply.bulk(args[2 + at]);
        ctx.reply.set(words.len());
        words.iter().for_each(|word| ctx.reply.simple(word));
    }
    Ok(())
}
