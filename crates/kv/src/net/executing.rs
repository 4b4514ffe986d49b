//! Between a socket and the core, under the lock of the core: making clients of accepted connections, executing what was parsed, taking over the replies.

use super::connection::{Connection, Stream};
use super::sockets::{Accepted, Sockets};
use crate::client::Client;
use crate::resp::parse::ParseLimits;
use crate::server::{Core, Server};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::io::Write;
use std::net::SocketAddr;
use terrace_io::World;

/// Unsent output at which a subscriber is dropped: it cannot be slowed, as others write to it.
const SUBSCRIBER_BYTES_MAX: usize = 32 << 20;
/// Output that waits for storage at which a client's commands are no longer executed.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Accepts the connections that wait; returns their tokens.
pub fn accept(core: &mut Core, sockets: &Mutex<Sockets>, world: &World, index: usize) -> Vec<usize> {
    let mut sockets = sockets.lock();
    let now_ms = world.clock.unix_ms() as i64;
    let accepted = sockets.accept();
    let welcomed =
        accepted.into_iter().map(|accepted| welcome(&mut core.server, &mut sockets, accepted, index, now_ms));
    welcomed.flatten().collect()
}

/// Makes a client of an accepted connection, or refuses it.
pub fn welcome(
    server: &mut Server,
    sockets: &mut Sockets,
    accepted: Accepted,
    index: usize,
    now_ms: i64,
) -> Option<usize> {
    let Accepted { mut stream, address, local } = accepted;
    // A socket that cannot be set up is dropped, which closes it.
    let set_up = match &stream {
        Stream::Plain(stream) => stream.set_nodelay(true),
        Stream::Tls(tls) => tls.stream.set_nodelay(true),
    };
    if set_up.is_err() {
        return None;
    }
    if let Some(refusal) = refusal(server, &address) {
        server.stats.rejected_connections += 1;
        // The client is refused whether or not it reads why; with TLS it would have to shake hands first.
        if let Stream::Plain(stream) = &mut stream {
            let _ = stream.write(refusal.as_bytes());
        }
        return None;
    }
    let id = server.clients.next_id();
    server.stats.connections += 1;
    let mut connection = Box::new(Connection::new(id, stream));
    connection.requests.limits.authenticated = server.acl.is_open();
    let token = sockets.add(connection)?;
    let local = local.map_or(String::new(), |local| local.to_string());
    let client = Client::new(id, index, token, address.to_string(), local, now_ms, &server.acl);
    server.clients.add(client);
    Some(token)
}

/// Why a connection is not accepted.
fn refusal(server: &Server, address: &SocketAddr) -> Option<&'static str> {
    let config = &server.config;
    if server.clients.len() >= config.limits.clients_max {
        return Some("-ERR max number of clients reached\r\n");
    }
    let is_open = config.is_on("protected-mode") && server.acl.is_open();
    if is_open && !address.ip().to_canonical().is_loopback() {
        return Some(
            "-DENIED Protected mode is on and no password is set: connections are accepted from this machine alone. Set requirepass, or protected-mode to no.\r\n",
        );
    }
    None
}

/// Executes what was parsed for a connection and takes over its replies.
pub fn execute(core: &mut Core, sockets: &Mutex<Sockets>, token: usize) {
    let Some(mut connection) = sockets.lock().take(token) else { return };
    if let Some(mut client) = core.server.clients.take(connection.client) {
        let is_stalled = execute_all(core, &mut connection, &mut client);
        finish(&mut core.server, &mut connection, &mut client, is_stalled);
        core.server.clients.put_back(client);
    } else {
        connection.closes = true;
    }
    sockets.lock().put_back(token, connection);
}

/// True if the rest waits until memory has room.
fn execute_all(core: &mut Core, connection: &mut Connection, client: &mut Client) -> bool {
    while takes_more(client) {
        if connection.requests.has_next() && core.waits_for_room(client) {
            core.stall(client.id);
            return true;
        }
        let mut args = SmallVec::new();
        if connection.requests.next(&mut args) {
            core.execute(client, &args);
            continue;
        }
        drop(args);
        connection.parse();
        if !connection.requests.has_next() {
            break;
        }
    }
    false
}

/// Whether the next command of a client may be executed now.
pub fn takes_more(client: &Client) -> bool {
    client.blocked.is_none()
        && client.parked.is_none()
        && !client.closes
        && !client.is_delayed
        && client.held_bytes < HELD_BYTES_MAX
}

/// After the commands of a connection: takes over the replies, and notes what holds for its next requests.
pub fn finish(server: &mut Server, connection: &mut Connection, client: &mut Client, is_stalled: bool) {
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
        bulk_bytes_max: i64::try_from(server.config.limits.bulk_bytes_max).unwrap_or(i64::MAX),
        authenticated: server.is_authenticated(client),
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
}
