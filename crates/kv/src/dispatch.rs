//! From a request to its reply: looks the command up, checks that it may run, runs it, and passes on what it changed.
//!
//! Everything here runs under the lock of the core, one command after another.
//!
//! | file | holds |
//! | --- | --- |
//! | `pauses` | commands that wait for the end of a pause |
//! | `reads` | fetching the keys of commands from storage, parked clients |
//! | `writes` | groups of changes, their writes, the replies that wait for them |
//! | `busy` | commands that arrive while a script runs for long |
//! | `absent` | building the filter of keys that storage cannot have |
//! | `write_back` | the log of a turn, writes of what is dirty, clients that are slowed |
//! | `large` | what commands need of large collections, and change of them |
//! | `evict` | keeping memory within `maxmemory` |
//! | `swap` | exchanging databases in storage |
//! | `scan` | walks over the keys that storage and memory have |

mod absent;
pub mod busy;
mod evict;
mod large;
mod pauses;
mod reads;
mod scan;
mod swap;
mod write_back;
mod writes;

use crate::client::acl::Denied;
use crate::client::{Block, Blocked, Client, ClientId, ReplyMode};
use crate::command::table::Group;
use crate::command::table::{CommandMatch, table};
use crate::command::{Arg, CommandError, Ctx, Flags, acl, args, monitor, rights, stored_keys};
use crate::keyspace::{Change, Databases};
use crate::resp::Reply;
use crate::server::{Core, Server};
use reads::Prepared;

/// Commands that a subscriber of RESP2 may send.
const SUBSCRIBER_COMMANDS: &[&str] = &[
    "ping",
    "subscribe",
    "ssubscribe",
    "psubscribe",
    "unsubscribe",
    "sunsubscribe",
    "punsubscribe",
    "quit",
    "reset",
];
/// Commands that run at once though a transaction is being queued.
const UNQUEUED_COMMANDS: &[&str] = &["exec", "discard", "multi", "watch", "quit", "reset"];

const OUT_OF_MEMORY: CommandError =
    CommandError::of("OOM command not allowed when used memory > 'maxmemory'.");

/// As Redis words it.
const UNSAVED: CommandError = CommandError::of(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
);

/// Places for changes that are kept for the next command.
const CHANGES_KEPT: usize = 256;

enum Admitted {
    Runs(CommandMatch),
    Queued,
    /// Clients are paused: the command waits.
    Paused,
}

impl Core {
    /// Executes a request of a client that is taken out of the list of clients.
    pub fn execute(&mut self, client: &mut Client, args: &[Arg<'_>]) {
        if args.is_empty() {
            return;
        }
        client.last_command_ms = self.dbs.all[0].now_ms;
        self.look_at_pause();
        let skips = client.reply_mode == ReplyMode::SkipNext;
        // A command that waited for its keys goes on: while changes are on their way to storage, room comes.
        self.server.is_out_of_memory = !self.make_room(Some(client)) && !self.stores_changes();
        let start = client.reply.buffer.len();
        let mut admitted = find(args).and_then(|found| self.admit(client, found, args));
        if matches!(admitted, Ok(Admitted::Paused)) {
            return;
        }
        let mut ran = None;
        if let Ok(Admitted::Runs(found)) = admitted {
            if self.waits_to_swap(client, found, args) || self.throttles(client, found, args) {
                return;
            }
            match self.prepare(client, found, args) {
                Prepared::Ready => {}
                Prepared::Parked => return,
                Prepared::Refused(error) => {
                    // A transaction whose keys cannot be read ends.
                    if found.row.name == "exec" {
                        client.multi = None;
                        self.server.unwatch(client);
                    }
                    admitted = Err(error);
                }
            }
        }
        match admitted {
            Err(error) => {
                if let Some(multi) = &mut client.multi {
                    multi.is_refused = true;
                }
                self.server.count_error(error.text());
                client.reply.error(error.text());
                client.reply.codes.clear();
            }
            Ok(Admitted::Queued | Admitted::Paused) => client.reply.simple("QUEUED"),
            Ok(Admitted::Runs(found)) => {
                client.last_command = Some((found.parent.map(|parent| parent.name), found.row.name));
                let mut reply = std::mem::take(&mut client.reply);
                self.run(client, &mut reply, found, args, false);
                client.reply = reply;
                ran = Some(found);
            }
        }
        if skips && client.reply_mode == ReplyMode::SkipNext {
            client.reply_mode = ReplyMode::On;
            client.reply.muted = false;
        }
        if client.wants_to_block.is_some() {
            self.block(client, args);
        }
        client.kept_deadline_ms = None;
        if let Some(tracking) = &mut client.tracking
            && client.multi.is_none()
            && !args::is(args[0], "client")
        {
            tracking.caches_next = None;
        }
        self.pass_on_changes(Some(client));
        self.finish(Some(client), start);
        if let Some(found) = ran {
            self.slow(client, found);
        }
    }

    /// Whether a command may run now: authenticated, allowed where the client is, or queued for EXEC.
    fn admit(
        &mut self,
        client: &mut Client,
        found: CommandMatch,
        args: &[Arg<'_>],
    ) -> Result<Admitted, CommandError> {
        may_run(&mut self.dbs, &mut self.server, client, found, args)?;
        let row = found.row;
        let refused = |core: &mut Core, error| {
            core.server.command_stats[found.number].rejected += 1;
            Err(error)
        };
        if !client.reply.resp3 && client.subscribed_at_all() && !SUBSCRIBER_COMMANDS.contains(&row.name) {
            let name = found.full_name();
            let text = format_args!(
                "Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            );
            return refused(self, CommandError::err(text));
        }
        let queues = client.multi.is_some() && !UNQUEUED_COMMANDS.contains(&row.name);
        if row.flags.contains(Flags::WRITE) && self.server.refuses_writes() {
            return refused(self, UNSAVED);
        }
        if self.server.is_out_of_memory {
            if queues || row.flags.contains(Flags::DENYOOM) {
                return refused(self, OUT_OF_MEMORY);
            }
            if row.name == "exec" && client.multi.as_ref().is_some_and(needs_memory) {
                client.multi = None;
                self.server.unwatch(client);
                let text = format!("EXECABORT Transaction discarded because of: {}", OUT_OF_MEMORY.text());
                return refused(self, CommandError::Text(text.into()));
            }
        }
        if let Some(tier) = &self.server.tier
            && let Some(error) = stored_keys::refusal(&*tier.storage, found, args, queues)
        {
            return refused(self, error);
        }
        if self.pauses(client, found, args) {
            return Ok(Admitted::Paused);
        }
        let Some(multi) = &mut client.multi else { return Ok(Admitted::Runs(found)) };
        if UNQUEUED_COMMANDS.contains(&row.name) {
            return Ok(Admitted::Runs(found));
        }
        if row.flags.contains(Flags::NO_MULTI) {
            return refused(self, CommandError::of("ERR Command not allowed inside a transaction"));
        }
        multi.commands.push(args.iter().map(|arg| arg.to_vec()).collect());
        Ok(Admitted::Queued)
    }

    /// Runs a command and writes its reply.
    fn run(
        &mut self,
        client: &mut Client,
        reply: &mut Reply,
        found: CommandMatch,
        args: &[Arg<'_>],
        is_resumed: bool,
    ) {
        let (start, misses) = (reply.buffer.len(), crate::value::large::misses());
        let mut ctx = Ctx { is_resumed, ..self.context(client, reply) };
        ctx.call(found, args);
        if crate::value::large::misses() != misses {
            debug_assert!(
                false,
                "{} asks for elements that `command::needs` does not name",
                found.full_name()
            );
            reply.buffer.truncate(start);
            reply
                .error("ERR internal error: elements of a large collection were not read before the command");
        }
    }

    fn context<'a>(&'a mut self, client: &'a mut Client, reply: &'a mut Reply) -> Ctx<'a> {
        let Core { dbs, server } = self;
        Ctx { dbs, server, client, reply, is_nested: false, from_script: false, is_resumed: false }
    }

    fn block(&mut self, client: &mut Client, args: &[Arg<'_>]) {
        let Some(mut block) = client.wants_to_block.take() else { return };
        for key in &block.keys {
            let queue = self.server.waiting.entry((client.db, key.clone())).or_default();
            if !queue.contains(&client.id) {
                queue.push_back(client.id);
            }
        }
        let args: Vec<Vec<u8>> =
            block.args.take().unwrap_or_else(|| args.iter().map(|arg| arg.to_vec()).collect());
        let mut pinned = Vec::new();
        if let Some(tier) = &mut self.server.tier {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let found = find(&args);
            pinned =
                found.map_or(Vec::new(), |found| stored_keys::of_command(client, found, &args).into_vec());
            tier.pin(&pinned);
        }
        let Block { keys, deadline_ms, .. } = block;
        let deadline_ms = client.kept_deadline_ms.unwrap_or(deadline_ms);
        client.blocked = Some(Blocked { db: client.db, keys, deadline_ms, args, pinned });
        client.losses_seen = self.server.tier.as_ref().map_or(0, |tier| tier.losses());
        self.dbs.record_changes(true);
    }

    /// Ends the waits whose time is over.
    pub fn end_waits(&mut self) {
        let now_ms = self.dbs.all[0].now_ms;
        let over: Vec<ClientId> = self
            .server
            .clients
            .iter()
            .filter(|client| {
                client.blocked.as_ref().is_some_and(|wait| wait.deadline_ms.is_some_and(|at| at <= now_ms))
            })
            .map(|client| client.id)
            .collect();
        for id in over {
            let Some(mut client) = self.server.clients.take(id) else { continue };
            self.server.unblock(&mut client);
            client.reply.null_array();
            self.server.clients.touched.push(id);
            self.server.clients.put_back(client);
        }
    }

    /// Tells all who follow changes, and serves clients that wait for what changed, until nothing changes any more.
    /// `current` is the client whose command made them.
    pub fn pass_on_changes(&mut self, mut current: Option<&mut Client>) {
        if self.server.tracking.is_flushed {
            self.server.tracking.flushed(&mut self.server.clients, current.as_deref_mut());
        }
        if self.dbs.all.iter().all(|db| db.changes.is_empty()) {
            return;
        }
        while let Some((db, mut list)) = self.take_changes() {
            for change in &list {
                self.note_changed(db, &change.key);
                self.server.touch_watched(db, &change.key);
                if !self.server.tracking.is_empty() {
                    let by = current.as_ref().map(|client| client.id);
                    let Server { tracking, clients, .. } = &mut self.server;
                    tracking.changed(clients, current.as_deref_mut(), by, &change.key);
                }
                // Changes without a name are those that no notice tells of.
                if self.server.config.limits.notices != 0 && !change.event.is_empty() {
                    let current = current.as_deref_mut().map(|client| (client.id, &mut client.reply));
                    self.server.publish_notice(current, db, change);
                }
                self.serve_waiting(db, change);
            }
            list.clear();
            if list.capacity() <= CHANGES_KEPT
                && let Some(db) = self.dbs.get(db)
                && db.changes.list.is_empty()
            {
                db.changes.list = list;
            }
        }
        let follows = self.server.follows_changes();
        self.dbs.record_changes(follows);
    }

    /// At the end of a turn: tells clients that cache what was changed, and lets them forget what is too much to remember.
    pub fn broadcast_changes(&mut self) {
        let Server { tracking, clients, config, .. } = &mut self.server;
        tracking.broadcast(clients);
        tracking.shrink(clients, None, config.limits.tracked_keys_max);
    }

    fn take_changes(&mut self) -> Option<(u16, Vec<Change>)> {
        let db = self.dbs.all.iter_mut().find(|db| !db.changes.is_empty())?;
        let index = db.index;
        let list = std::mem::take(&mut db.changes.list);
        let expired = std::mem::take(&mut db.changes.expired);
        if std::mem::take(&mut db.changes.all) {
            self.note_emptied(index);
        }
        self.note_expired(index, expired);
        Some((index, list))
    }

    /// Runs the commands of clients that wait for a key, in the order in which they came, as long as one finds something.
    fn serve_waiting(&mut self, db: u16, change: &Change) {
        if self.server.waiting.is_empty() {
            return;
        }
        let place = (db, change.key.clone());
        let Some(queue) = self.server.waiting.get(&place) else { return };
        for id in queue.clone() {
            let Some(mut client) = self.server.clients.take(id) else { continue };
            let Some(blocked) = client.blocked.take() else {
                self.server.clients.put_back(client);
                continue;
            };
            let args: Vec<&[u8]> = blocked.args.iter().map(Vec::as_slice).collect();
            let start = client.reply.buffer.len();
            let is_known = find(&args).map_or(true, |found| self.note_served(&client, found, &args));
            let mut reply = std::mem::take(&mut client.reply);
            match find(&args) {
                Ok(_) if !is_known => {
                    reply.error("UNBLOCKED a key of the command has left memory, as a write failed")
                }
                Ok(found) => self.run(&mut client, &mut reply, found, &args, true),
                Err(_) => {}
            }
            client.reply = reply;
            client.blocked = Some(blocked);
            if client.wants_to_block.take().is_none() {
                self.server.unblock(&mut client);
                self.server.clients.touched.push(id);
                if let Some(tier) = &mut self.server.tier {
                    tier.served.push((id, start));
                }
            }
            self.server.clients.put_back(client);
        }
    }
}

/// Whether a client is who it has to be for a command.
fn may_run(
    dbs: &mut Databases,
    server: &mut Server,
    client: &mut Client,
    found: CommandMatch,
    args: &[Arg<'_>],
) -> Result<(), CommandError> {
    if !found.row.flags.contains(Flags::NO_AUTH) && !server.is_authenticated(client) {
        server.command_stats[found.number].rejected += 1;
        return Err(CommandError::of("NOAUTH Authentication required."));
    }
    let Err(denied) = rights::check(server, client, found, args) else { return Ok(()) };
    let context = if client.multi.is_some() { "multi" } else { "toplevel" };
    let mut reply = Reply::new(client.reply.resp3);
    let (is_nested, from_script, is_resumed) = (false, false, false);
    let mut ctx = Ctx { dbs, server, client, reply: &mut reply, is_nested, from_script, is_resumed };
    acl::refuse(&mut ctx, denied, args, &found.full_name(), context);
    ctx.server.command_stats[found.number].rejected += 1;
    let text = match denied {
        Denied::Command => {
            format!("NOPERM this user has no permissions to run the '{}' command", found.full_name())
        }
        Denied::Key(_) => {
            "NOPERM this user has no permissions to access one of the keys used as arguments".into()
        }
        Denied::Channel(_) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments".into()
        }
    };
    Err(CommandError::Text(text.into()))
}

/// Whether a queued command is one that needs memory.
fn needs_memory(multi: &crate::client::Multi) -> bool {
    multi.commands.iter().any(|args| {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        table().find_with_subcommand(&args).is_some_and(|found| found.row.flags.contains(Flags::DENYOOM))
    })
}

/// The command that `args` name, with the number of its arguments checked.
pub fn find(args: &[Arg<'_>]) -> Result<CommandMatch, CommandError> {
    let table = table();
    let found = table.find(args[0]).ok_or_else(|| unknown_command(args))?;
    if found.row.subcommands.is_empty() {
        if !found.row.accepts(args.len()) {
            return Err(CommandError::arity(found.row.name));
        }
        return Ok(found);
    }
    let Some(name) = args.get(1) else {
        if found.row.accepts(1) {
            return Ok(found);
        }
        return Err(CommandError::arity(found.row.name));
    };
    let Some(sub) = table.subcommand(found, name) else {
        return Err(CommandError::err(format_args!(
            "unknown subcommand '{}'. Try {} HELP.",
            args::text(&name[..name.len().min(128)]),
            found.row.name.to_ascii_uppercase()
        )));
    };
    if !sub.row.accepts(args.len()) {
        return Err(CommandError::arity(&sub.full_name()));
    }
    Ok(sub)
}

fn unknown_command(args: &[Arg<'_>]) -> CommandError {
    let mut beginning = String::new();
    for arg in &args[1..] {
        if beginning.len() >= 128 {
            break;
        }
        let room = 128 - beginning.len();
        beginning.push_str(&format!("'{}' ", args::text(&arg[..arg.len().min(room)])));
    }
    CommandError::err(format_args!(
        "unknown command '{}', with args beginning with: {beginning}",
        args::text(&args[0][..args[0].len().min(128)])
    ))
}

impl Ctx<'_> {
    /// Runs a command that may run, and counts it.
    pub fn call(&mut self, found: CommandMatch, args: &[Arg<'_>]) {
        let started = self.server.world.clock.now();
        let errors = self.reply.errors;
        let touches = !self.client.is_untouching;
        self.db().is_touching = touches;
        if let Err(error) = (found.row.handler)(self, args) {
            self.reply.error(error.text());
        }
        let failed = self.reply.errors > errors;
        self.server.stats.commands += 1;
        for code in self.reply.codes.drain(..) {
            self.server.count_error(&code);
        }
        self.remember_keys(found, args);
        if !self.server.monitors.is_empty() && monitor::is_shown(found) {
            self.feed_monitors(found, args);
        }
        let stats = &mut self.server.command_stats[found.number];
        stats.calls += 1;
        stats.failed += u64::from(failed);
        let nanos = self.server.world.clock.now().saturating_sub(started);
        stats.nanos += nanos;
        stats.durations.add(nanos);
        let threshold = self.server.config.limits.latency_millis;
        if threshold > 0 && nanos / 1_000_000 >= threshold {
            let is_fast = found.row.flags.contains(Flags::FAST);
            let event = if is_fast { "fast-command" } else { "command" };
            let at = self.now_ms() / 1000;
            self.server.latency.add(event, at, nanos / 1_000_000);
        }
        let limit = self.server.config.limits.slow_micros;
        if limit >= 0 && nanos / 1000 >= limit as u64 && !found.row.flags.contains(Flags::SKIP_SLOWLOG) {
            self.log_slow(found, nanos / 1000, args);
        }
    }
}

impl Ctx<'_> {
    /// Remembers the keys that a client may have cached.
    fn remember_keys(&mut self, found: CommandMatch, args: &[Arg<'_>]) {
        let reads = found.row.flags.contains(Flags::READONLY) && found.row.group != Group::Scripting;
        if self.client.tracking.is_none() || !reads {
            return;
        }
        let Ctx { server, client, .. } = self;
        if self.from_script {
            client.script_keys.iter().for_each(|key| server.tracking.remember(client, key));
            return;
        }
        found.row.keys.for_each(args, |at, _| server.tracking.remember(client, args[at]));
    }

    /// Shows a command to the clients that monitor.
    pub fn feed_monitors(&mut self, found: CommandMatch, args: &[Arg<'_>]) {
        let now_us = self.server.world.clock.unix_ms() * 1000;
        let shown = monitor::shown(found, args);
        let from = if self.from_script { "lua".to_owned() } else { self.client.address.clone() };
        let Server { clients, monitors, .. } = &mut *self.server;
        monitor::feed(clients, monitors, (self.client, self.reply), now_us, &from, &shown);
    }

    fn log_slow(&mut self, found: CommandMatch, micros: u64, args: &[Arg<'_>]) {
        let len_max = usize::try_from(self.server.config.number("slowlog-max-len")).unwrap_or(0);
        let at = self.now_ms() / 1000;
        let args = monitor::shown(found, args);
        self.server.slow.add(at, micros, &args, &self.client.address, &self.client.name, len_max);
    }
}

/// Whether a command changes data.
pub fn is_write(found: CommandMatch) -> bool {
    found.row.flags.contains(Flags::WRITE)
}

impl Server {
    /// Undoes all that is known of a client whose connection was closed.
    pub fn forget_gone(&mut self, id: ClientId) {
        let Some(mut client) = self.clients.take(id) else { return };
        self.unblock(&mut client);
        self.unwatch(&mut client);
        self.unsubscribe_all(&mut client);
        self.tracking.end(&mut client);
        self.monitors.retain(|&other| other != id);
        self.pause.forget(id);
        if let Some(tier) = &mut self.tier {
            tier.forget(id);
        }
    }
}
