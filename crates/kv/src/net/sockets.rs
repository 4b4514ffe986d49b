//! The sockets of one event loop: waiting for them, accepting, reading, writing, closing.
//!
//! They lie under a lock of their own, which the loop holds while it waits, reads and writes, and lets go before it takes the lock of the core. So while a
//! script holds the core for long, its loop can serve the sockets of every loop (`busy`).
//!
//! Lock order: core, then sockets. A thread that holds the lock of sockets does not take that of the core.
//!
//! A connection whose commands are being executed is taken out of its place ([`Sockets::take`]); no other thread sees it meanwhile.
//!
//! Sockets are registered edge-triggered: a connection whose read filled its buffer, or that could not be read, is read again without an event
//! ([`Sockets::again`]).

use super::connection::{Connection, Flow, Stream};
use super::tls::TlsStream;
use crate::client::ClientId;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const WAKER: usize = usize::MAX;
const FIRST_LISTENER: usize = usize::MAX - 1;
/// Unsent output at which a client's requests are no longer read.
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// A connection that has no client yet.
pub struct Accepted {
    pub stream: Stream,
    pub address: SocketAddr,
    pub local: Option<SocketAddr>,
}

/// What a listener accepts: connections, or those that speak TLS.
pub struct Listening {
    pub address: SocketAddr,
    pub tls: Option<Arc<ServerConfig>>,
}

pub struct Sockets {
    poll: Poll,
    events: Events,
    listeners: Vec<(TcpListener, Option<Arc<ServerConfig>>)>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections to read without an event.
    pub again: Vec<usize>,
    /// Connections with something to execute, in the order in which they became ready.
    pub ready: Vec<usize>,
    pub accepts: bool,
    /// Another thread has woken the loop.
    pub is_woken: bool,
    /// Clients whose connections were closed: the core is to forget them.
    pub gone: Vec<ClientId>,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub query_buffer_bytes_max: usize,
    turn: u64,
}

impl Sockets {
    pub fn new(addresses: Vec<Listening>) -> std::io::Result<(Sockets, Arc<mio::Waker>)> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for Listening { address, tls } in addresses {
            let mut listener = TcpListener::bind(address)?;
            let token = Token(FIRST_LISTENER - listeners.len());
            poll.registry().register(&mut listener, token, Interest::READABLE)?;
            listeners.push((listener, tls));
        }
        let waker = Arc::new(mio::Waker::new(poll.registry(), Token(WAKER))?);
        let sockets = Sockets {
            poll,
            events: Events::with_capacity(1024),
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            ready: Vec::new(),
            accepts: false,
            is_woken: false,
            gone: Vec::new(),
            input_bytes: 0,
            output_bytes: 0,
            query_buffer_bytes_max: usize::MAX,
            turn: 0,
        };
        Ok((sockets, waker))
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// Connections that have their place here.
    pub fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for sockets at most `wait`, not at all if there is something to do already.
    pub fn wait(&mut self, wait: Duration) -> std::io::Result<()> {
        let wait = if self.again.is_empty() && self.ready.is_empty() && self.gone.is_empty() {
            wait
        } else {
            Duration::ZERO
        };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Reads and parses what has arrived; `ready` has the connections then.
    pub fn read(&mut self) {
        self.turn += 1;
        for token in std::mem::take(&mut self.again) {
            self.read_from(token);
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token().0 {
                WAKER => self.is_woken = true,
                token if token > usize::MAX / 2 => self.accepts = true,
                token => {
                    if event.is_writable() && self.get(token).is_some_and(|it| it.waits_for_writable) {
                        self.write(token);
                    }
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        self.read_from(token);
                    }
                }
            }
        }
        self.events = events;
    }

    fn read_from(&mut self, token: usize) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        // Once each, in the order in which they became ready.
        if connection.closes || std::mem::replace(&mut connection.turn, self.turn) == self.turn {
            return;
        }
        if connection.is_blocked && connection.requests.has_next() {
            // Commands wait already: what else the client sends stays in its socket.
            connection.has_unread = true;
            return;
        }
        if connection.unsent_bytes() > UNSENT_BYTES_MAX {
            // A client that does not read its replies is not read from until it does.
            connection.is_throttled = true;
            return;
        }
        connection.has_unread = false;
        let (flow, bytes) = connection.read();
        if connection.requests.pending_bytes() > self.query_buffer_bytes_max {
            connection.closes = true;
        }
        self.input_bytes += bytes as u64;
        match flow {
            Flow::Closed => connection.closes = true,
            Flow::More => self.again.push(token),
            Flow::Drained => {}
        }
        self.ready.push(token);
    }

    /// Reads a connection in the next turn whose event was passed over.
    pub fn read_later(&mut self, token: usize) {
        if self.get(token).is_some_and(|connection| connection.has_unread) {
            self.again.push(token);
        }
    }

    /// Accepts what waits at the listeners.
    pub fn accept(&mut self) -> Vec<Accepted> {
        let mut accepted = Vec::new();
        if !std::mem::take(&mut self.accepts) {
            return accepted;
        }
        for (listener, tls) in &self.listeners {
            loop {
                match listener.accept() {
                    Ok((stream, address)) => {
                        let stream = match tls {
                            None => Stream::Plain(stream),
                            // A session that cannot be made is a connection that is closed.
                            Some(tls) => match TlsStream::new(stream, tls.clone()) {
                                Ok(stream) => Stream::Tls(Box::new(stream)),
                                Err(_) => continue,
                            },
                        };
                        accepted.push(Accepted { stream, address, local: listener.local_addr().ok() });
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The listener stays registered: after an error such as too many open files the next connection tries again.
                    Err(_) => break,
                }
            }
        }
        accepted
    }

    /// Takes a connection in; returns its token. One that cannot be registered is dropped, which closes it.
    pub fn add(&mut self, mut connection: Box<Connection>) -> Option<usize> {
        let token = self.free.pop().unwrap_or(self.connections.len());
        if token == self.connections.len() {
            self.connections.push(None);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(connection.stream(), Token(token), interest).is_err() {
            self.free.push(token);
            self.gone.push(connection.client);
            return None;
        }
        // What it had not read, parsed or sent elsewhere is looked at in the next turn.
        connection.turn = 0;
        self.again.push(token);
        self.ready.push(token);
        self.connections[token] = Some(connection);
        Some(token)
    }

    /// Gives away up to `count` connections, to be added to another event loop.
    pub fn give_away(&mut self, count: usize) -> Vec<Box<Connection>> {
        let mut given = Vec::new();
        for token in (0..self.connections.len()).rev() {
            if given.len() == count {
                break;
            }
            given.extend(self.give(token));
        }
        given
    }

    /// Gives away a connection. A socket that cannot be unregistered is closed with its registration.
    pub fn give(&mut self, token: usize) -> Option<Box<Connection>> {
        let mut connection = self.connections.get_mut(token)?.take()?;
        self.free.push(token);
        if self.poll.registry().deregister(connection.stream()).is_err() {
            self.gone.push(connection.client);
            return None;
        }
        Some(connection)
    }

    pub fn get(&mut self, token: usize) -> Option<&mut Connection> {
        self.connections.get_mut(token)?.as_deref_mut()
    }

    /// Takes a connection out of its place, to execute its commands.
    pub fn take(&mut self, token: usize) -> Option<Box<Connection>> {
        self.connections.get_mut(token)?.take()
    }

    pub fn put_back(&mut self, token: usize, connection: Box<Connection>) {
        self.connections[token] = Some(connection);
    }

    /// The tokens of all connections.
    pub fn tokens(&self) -> Vec<usize> {
        (0..self.connections.len()).filter(|&token| self.connections[token].is_some()).collect()
    }

    /// Sends the waiting output; closes the connection if that was asked for or the socket failed.
    pub fn write(&mut self, token: usize) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        let (flow, bytes) = if connection.has_unsent() { connection.write() } else { (Flow::Drained, 0) };
        self.output_bytes += bytes as u64;
        connection.waits_for_writable = flow == Flow::More;
        if flow == Flow::Drained && std::mem::take(&mut connection.is_throttled) {
            self.again.push(token);
        }
        if flow == Flow::Closed || (connection.closes && flow == Flow::Drained) {
            self.close(token);
        }
    }

    fn close(&mut self, token: usize) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        connection.say_end();
        // The socket is closed right after: failing to unregister changes nothing.
        let _ = self.poll.registry().deregister(connection.stream());
        self.free.push(token);
        self.gone.push(connection.client);
    }
}
