//! The event loop. A turn: wait for sockets; read and parse without the lock; take the lock of the core once and execute every command that
//! was parsed, connection by connection; release it and write the replies.
//!
//! A client's commands are executed in order, and while one of them waits, those behind it stay in the buffer. The output of a client that another
//! client's command wrote to (pub/sub, a list that was waited for) is sent in the same turn.
//!
//! Sockets are registered edge-triggered: a connection whose read filled its buffer is read again in the next turn without an event.

use super::connection::{Connection, Flow};
use crate::attached::Mailbox;
use crate::client::Client;
use crate::config::Limits;
use crate::resp::parse::ParseLimits;
use crate::server::Core;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use terrace_io::World;

const LISTENER: usize = usize::MAX - 1;
const WAKER: usize = usize::MAX;
/// Time between two looks at expired keys and waits that are over.
const TICK_MS: u64 = 10;
/// Time between two looks at the memory of the process.
const WATCH_MEMORY_MS: u64 = 100;
/// Unsent output at which a client's requests are no longer read.
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// Unsent output at which a subscriber is dropped: it cannot be slowed, as others write to it.
const SUBSCRIBER_BYTES_MAX: usize = 32 << 20;
/// Rounds of the sweep for expired keys in a tick: bounds its time to about a quarter of it.
const SWEEP_ROUNDS: usize = 64;
/// Output that waits for storage at which a client's commands are no longer executed.
const HELD_BYTES_MAX: usize = 16 << 20;
/// How long the end of the server waits for storage.
const DRAIN_MS_MAX: u64 = 30_000;

pub struct EventLoop {
    world: World,
    core: Arc<Mutex<Core>>,
    poll: Poll,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections to read without an event.
    again: Vec<usize>,
    last_tick_ms: u64,
    last_watch_ms: u64,
    /// How long it may wait for sockets, and whether something is due then.
    wait: Duration,
    is_due_then: bool,
    turns: u64,
    /// Where storage leaves its results, if there is a storage tier.
    mailbox: Option<Arc<Mailbox>>,
    /// Settings as the last turn saw them.
    limits: Limits,
}

impl EventLoop {
    /// Listens on `addresses`.
    pub fn new(world: World, core: Arc<Mutex<Core>>, addresses: &[SocketAddr]) -> std::io::Result<EventLoop> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for address in addresses {
            let mut listener = TcpListener::bind(*address)?;
            poll.registry().register(
                &mut listener,
                Token(LISTENER - 1 - listeners.len()),
                Interest::READABLE,
            )?;
            listeners.push(listener);
        }
        let last_tick_ms = world.clock.unix_ms();
        let limits = core.lock().server.config.limits;
        let mailbox = core.lock().server.tier.as_ref().map(|tier| tier.mailbox.clone());
        if let Some(mailbox) = &mailbox {
            mailbox.set_waker(mio::Waker::new(poll.registry(), Token(WAKER))?);
        }
        Ok(EventLoop {
            world,
            core,
            poll,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            last_tick_ms,
            last_watch_ms: last_tick_ms,
            wait: Duration::from_millis(TICK_MS),
            is_due_then: false,
            turns: 0,
            mailbox,
            limits,
        })
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Runs until the server stops.
    pub fn run(&mut self) -> std::io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut ready = Vec::new();
        loop {
            let wait = if self.again.is_empty() { self.wait } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            ready.append(&mut self.again);
            let mut accepts = false;
            for event in &events {
                match event.token().0 {
                    WAKER => {}
                    token if token > usize::MAX / 2 => accepts = true,
                    token => {
                        if event.is_writable()
                            && let Some(Some(connection)) = self.connections.get_mut(token)
                            && connection.waits_for_writable
                        {
                            self.write(token);
                        }
                        if event.is_readable() || event.is_read_closed() || event.is_error() {
                            ready.push(token);
                        }
                    }
                }
            }
            if accepts {
                self.accept();
            }
            if !self.turn(&mut ready) {
                self.drain();
                return Ok(());
            }
        }
    }

    fn accept(&mut self) {
        let mut accepted = Vec::new();
        for listener in &self.listeners {
            loop {
                match listener.accept() {
                    Ok(pair) => accepted.push((pair, listener.local_addr().ok())),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The listener stays registered: after an error such as too many open files the next connection tries again.
                    Err(_) => break,
                }
            }
        }
        for ((mut stream, address), local) in accepted {
            // A socket that cannot be set up is dropped, which closes it.
            if stream.set_nodelay(true).is_err() {
                continue;
            }
            let token = self.free.pop().unwrap_or(self.connections.len());
            if self
                .poll
                .registry()
                .register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)
                .is_err()
            {
                if token < self.connections.len() {
                    self.free.push(token);
                }
                continue;
            }
            let mut core = self.core.lock();
            if let Some(refusal) = refusal(&core, &address) {
                core.server.stats.rejected_connections += 1;
                drop(core);
                self.free.push(token);
                if token == self.connections.len() {
                    self.connections.push(None);
                }
                // The client is refused whether or not it reads why.
                let _ = stream.write(refusal.as_bytes());
                continue;
            }
            let id = core.server.clients.next_id();
            core.server.stats.connections += 1;
            let now_ms = self.world.clock.unix_ms() as i64;
            let local = local.map_or(String::new(), |local| local.to_string());
            let client = Client::new(id, 0, token, address.to_string(), local, now_ms, &core.server.acl);
            core.server.clients.add(client);
            let is_open = core.server.acl.is_open();
            drop(core);
            let mut connection = Connection::new(id, stream);
            connection.requests.limits.authenticated = is_open;
            let connection = Some(connection);
            match self.connections.get_mut(token) {
                Some(slot) => *slot = connection,
                None => self.connections.push(connection),
            }
        }
    }

    /// Serves the connections that are ready; false if the server stops.
    fn turn(&mut self, ready: &mut Vec<usize>) -> bool {
        self.turns += 1;
        let mut input_bytes = 0;
        ready.retain(|&token| {
            let Some(Some(connection)) = self.connections.get_mut(token) else { return false };
            // Once each, in the order in which they became ready.
            if connection.closes || std::mem::replace(&mut connection.turn, self.turns) == self.turns {
                return false;
            }
            if connection.is_blocked && connection.requests.has_next() {
                // Commands wait already: what else the client sends stays in its socket, except that the end of it is seen.
                return false;
            }
            if connection.unsent_bytes() > UNSENT_BYTES_MAX {
                // A client that does not read its replies is not read from until it does.
                connection.is_throttled = true;
                return false;
            }
            let (flow, bytes) = connection.read();
            if connection.requests.pending_bytes() > self.limits.query_buffer_bytes_max {
                connection.closes = true;
            }
            input_bytes += bytes as u64;
            match flow {
                Flow::Closed => connection.closes = true,
                Flow::More => self.again.push(token),
                Flow::Drained => {}
            }
            true
        });

        let mut output_bytes = 0;
        let now_ms = self.world.clock.unix_ms();
        let ticks = now_ms.saturating_sub(self.last_tick_ms) >= TICK_MS;
        if ready.is_empty() && !ticks && !self.has_mail() && !self.is_due_then {
            return true;
        }
        let core = self.core.clone();
        let mut core = core.lock();
        core.dbs.set_now(now_ms as i64);
        core.server.stats.input_bytes += input_bytes;
        self.limits = core.server.config.limits;
        core.take_events();
        core.end_delays();
        for &token in ready.iter() {
            self.execute(&mut core, token);
        }
        if ticks {
            self.last_tick_ms = now_ms;
            tick(&mut core);
            if now_ms.saturating_sub(self.last_watch_ms) >= WATCH_MEMORY_MS {
                self.last_watch_ms = now_ms;
                core.watch_memory();
            }
        }
        self.settle(&mut core, ready);
        let due_in = core.due_in();
        self.is_due_then = due_in.is_some();
        self.wait = due_in.unwrap_or(Duration::MAX).min(Duration::from_millis(TICK_MS));
        let goes_on = !core.server.is_stopping;
        drop(core);

        for token in ready.drain(..) {
            output_bytes += self.write(token);
        }
        if output_bytes > 0 {
            // Counted without a second turn at the lock in the common case: no other thread holds it.
            self.core.lock().server.stats.output_bytes += output_bytes;
        }
        goes_on
    }

    /// Executes what was parsed for a connection and takes over its replies.
    fn execute(&mut self, core: &mut Core, token: usize) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        let Some(mut client) = core.server.clients.take(connection.client) else {
            connection.closes = true;
            return;
        };
        let mut is_stalled = false;
        while client.blocked.is_none()
            && client.parked.is_none()
            && !client.closes
            && !client.is_delayed
            && client.held_bytes < HELD_BYTES_MAX
        {
            if connection.requests.has_next() && core.waits_for_room(&mut client) {
                is_stalled = true;
                core.stall(client.id);
                break;
            }
            let mut args = SmallVec::new();
            if connection.requests.next(&mut args) {
                core.execute(&mut client, &args);
                continue;
            }
            drop(args);
            connection.parse();
            if !connection.requests.has_next() {
                break;
            }
        }
        if let Some(fault) = &connection.fault
            && !connection.requests.has_next()
            && client.blocked.is_none()
            && client.parked.is_none()
            && !client.closes
        {
            client.reply.error(&format!("ERR {}", fault.0));
            client.closes = true;
        }
        connection.requests.limits = ParseLimits {
            bulk_bytes_max: i64::try_from(self.limits.bulk_bytes_max).unwrap_or(i64::MAX),
            authenticated: core.server.is_authenticated(&client),
        };
        connection.is_blocked = client.blocked.is_some()
            || client.parked.is_some()
            || client.is_delayed
            || client.held_bytes >= HELD_BYTES_MAX
            || is_stalled;
        client.settle();
        connection.take_output(&mut client.reply.buffer);
        let is_sent_to = client.subscribed_at_all() || client.is_monitor || client.tracking.is_some();
        let lags = is_sent_to && connection.unsent_bytes() > SUBSCRIBER_BYTES_MAX;
        connection.closes |= (client.closes && !client.holds_output()) || lags;
        if lags {
            connection.drop_output();
        }
        core.server.clients.put_back(client);
    }

    /// Carries on what waited and writes what was changed, until nothing is left to do at once.
    fn settle(&mut self, core: &mut Core, ready: &mut Vec<usize>) {
        loop {
            core.end_pause();
            core.broadcast_changes();
            self.collect_touched(core, ready);
            core.begin_reads();
            core.write_changes();
            let resumed = core.resume_parked();
            if !resumed && core.server.clients.touched.is_empty() {
                return;
            }
        }
    }

    fn has_mail(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mailbox| !mailbox.is_empty())
    }

    /// Stores what was changed before the server ends.
    fn drain(&mut self) {
        let started_ms = self.world.clock.unix_ms();
        let mut events = Events::with_capacity(16);
        let core = self.core.clone();
        loop {
            let mut ready = Vec::new();
            {
                let mut core = core.lock();
                core.take_events();
                core.write_changes();
                self.collect_touched(&mut core, &mut ready);
                core.write_changes();
                let is_drained = core.server.tier.as_ref().is_none_or(|tier| tier.is_drained());
                let waited_ms = self.world.clock.unix_ms().saturating_sub(started_ms);
                if is_drained || waited_ms > DRAIN_MS_MAX {
                    drop(core);
                    ready.into_iter().for_each(|token| _ = self.write(token));
                    return;
                }
            }
            ready.into_iter().for_each(|token| _ = self.write(token));
            // A failure is a wait that ends early.
            let _ = self.poll.poll(&mut events, Some(Duration::from_millis(TICK_MS)));
        }
    }

    /// Adds the connections whose clients got output from others' commands, and executes what they sent meanwhile.
    fn collect_touched(&mut self, core: &mut Core, ready: &mut Vec<usize>) {
        while let Some(id) = core.server.clients.touched.pop() {
            let Some(client) = core.server.clients.get(id) else { continue };
            let token = client.token;
            ready.push(token);
            self.execute(core, token);
            self.again.push(token);
        }
    }

    /// Sends the waiting output; closes the connection if that was asked for or the socket failed. Returns the bytes sent.
    fn write(&mut self, token: usize) -> u64 {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return 0 };
        let (flow, bytes) =
            if connection.unsent_bytes() > 0 { connection.write() } else { (Flow::Drained, 0) };
        connection.waits_for_writable = flow == Flow::More;
        if flow == Flow::Drained && std::mem::take(&mut connection.is_throttled) {
            self.again.push(token);
        }
        if flow == Flow::Closed || (connection.closes && flow == Flow::Drained) {
            self.close(token);
        }
        bytes as u64
    }

    fn close(&mut self, token: usize) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        // The socket is closed right after: failing to unregister changes nothing.
        let _ = self.poll.registry().deregister(connection.stream());
        self.free.push(token);
        let mut core = self.core.lock();
        if let Some(mut client) = core.server.clients.take(connection.client) {
            core.forget(&mut client);
        }
    }
}

/// Why a connection is not accepted.
fn refusal(core: &Core, address: &SocketAddr) -> Option<&'static str> {
    let config = &core.server.config;
    if core.server.clients.len() >= config.limits.clients_max {
        return Some("-ERR max number of clients reached\r\n");
    }
    let is_open = config.is_on("protected-mode") && core.server.acl.is_open();
    if is_open && !address.ip().to_canonical().is_loopback() {
        return Some(
            "-DENIED Protected mode is on and no password is set: connections are accepted from this machine alone. Set requirepass, or protected-mode to no.\r\n",
        );
    }
    None
}

/// Work that is due from time to time.
fn tick(core: &mut Core) {
    core.look_at_signals();
    core.look_after_saves();
    core.end_waits();
    core.end_pause();
    for db in &mut core.dbs.all {
        db.sweep(SWEEP_ROUNDS);
        for _ in 0..128 {
            if !db.resize_step() {
                break;
            }
        }
    }
    core.pass_on_changes(None);
    core.finish(None, 0);
    let now_ms = core.dbs.all[0].now_ms.max(0) as u64;
    core.ask_expired(now_ms);
    core.tend_write_back();
    core.build_filter();
}
