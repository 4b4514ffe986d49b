//! A socket of a client, with the requests that were read and the output that was not sent yet.

use super::tls::TlsStream;
use crate::client::ClientId;
use crate::resp::{ProtocolError, Requests};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};

/// The socket of a connection.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

pub struct Connection {
    pub client: ClientId,
    stream: Stream,
    pub requests: Requests,
    output: Vec<u8>,
    sent: usize,
    /// A request that could not be parsed: replied after the commands before it, then the connection is closed.
    pub fault: Option<ProtocolError>,
    pub closes: bool,
    /// The command of the client waits: its next ones are not executed.
    pub is_blocked: bool,
    pub waits_for_writable: bool,
    /// An event said that its socket has something, and it was not read.
    pub has_unread: bool,
    /// The last turn in which it was served.
    pub turn: u64,
    /// Not read from until its output is sent.
    pub is_throttled: bool,
}

/// What a read or a write of a socket came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The socket has nothing more, or takes nothing more.
    Drained,
    /// The socket may have more.
    More,
    Closed,
}

/// Output that is kept for the next replies after it was sent.
const KEPT_BYTES: usize = 64 * 1024;

impl Connection {
    pub fn new(client: ClientId, stream: Stream) -> Connection {
        Connection {
            client,
            stream,
            requests: Requests::default(),
            output: Vec::new(),
            sent: 0,
            fault: None,
            closes: false,
            is_blocked: false,
            waits_for_writable: false,
            has_unread: false,
            turn: 0,
            is_throttled: false,
        }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &mut stream.stream,
        }
    }

    /// What is to be done before the socket is closed.
    pub fn say_end(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.say_end();
        }
    }

    /// Reads once and parses.
    pub fn read(&mut self) -> (Flow, usize) {
        let space = self.requests.space();
        let room = space.len();
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(space),
            Stream::Tls(stream) => stream.read(space),
        };
        // A session that has nothing more says nothing of its socket.
        let is_tls = matches!(self.stream, Stream::Tls(_));
        match read {
            Ok(0) => (Flow::Closed, 0),
            Ok(bytes) => {
                self.requests.filled(bytes);
                self.parse();
                (if bytes < room && !is_tls { Flow::Drained } else { Flow::More }, bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (Flow::Drained, 0),
            Err(error) if error.kind() == ErrorKind::Interrupted => (Flow::More, 0),
            Err(_) => (Flow::Closed, 0),
        }
    }

    pub fn parse(&mut self) {
        if self.fault.is_none()
            && let Err(fault) = self.requests.parse()
        {
            self.fault = Some(fault);
        }
    }

    /// Takes over what the client is to be sent; leaves an empty buffer for the next replies.
    pub fn take_output(&mut self, replies: &mut Vec<u8>) {
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, replies);
        } else {
            self.output.append(replies);
        }
    }

    /// Gives up what was not sent, before the connection is closed.
    pub fn drop_output(&mut self) {
        self.output = Vec::new();
        self.sent = 0;
    }

    pub fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether the socket has something to send, replies or what belongs to its session.
    pub fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0 || matches!(&self.stream, Stream::Tls(stream) if stream.wants_write())
    }

    /// Writes until all is sent or the socket takes no more.
    pub fn write(&mut self) -> (Flow, usize) {
        let mut total = 0;
        while self.sent < self.output.len() {
            let unsent = &self.output[self.sent..];
            let written = match &mut self.stream {
                Stream::Plain(stream) => stream.write(unsent),
                Stream::Tls(stream) => stream.write(unsent),
            };
            match written {
                Ok(0) => return (Flow::Closed, total),
                Ok(bytes) => {
                    self.sent += bytes;
                    total += bytes;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (Flow::More, total),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (Flow::Closed, total),
            }
        }
        if let Stream::Tls(stream) = &mut self.stream {
            match stream.flush() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (Flow::More, total),
                Err(_) => return (Flow::Closed, total),
            }
        }
        self.sent = 0;
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        } else {
            self.output.clear();
        }
        (Flow::Drained, total)
    }
}
