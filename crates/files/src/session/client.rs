//! A client: its socket with what was received and is to be sent, and what it holds.

use super::batch::Batch;
use super::{REQUESTS_MAX, UNSENT_MAX};
use crate::catalogue::{BlockId, Leased};
use crate::write::Writer;
use hashbrown::HashMap;
use mio::net::UnixStream;
use std::io::{ErrorKind, Read, Write};

/// Bytes read from a socket in one turn: the others have their turns, too.
const READ_MAX: usize = 1 << 20;
const READ_STEP: usize = 64 << 10;

/// A request that waits for the catalogue.
pub enum Pending {
    Read,
    Stat,
    Batch(Batch),
    /// For a worker, or a step of a file that is written.
    Job,
}

/// What is left to do with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The socket has no more bytes.
    Drained,
    /// There may be more.
    More,
    Closed,
}

pub struct Client {
    pub id: u64,
    pub stream: UnixStream,
    pub input: Vec<u8>,
    /// Bytes of the input that were handled.
    pub handled: usize,
    pub output: Vec<u8>,
    sent: usize,
    pub has_greeted: bool,
    pub closes: bool,
    /// It was not read because of a limit.
    pub is_paused: bool,
    /// By block: how many, and the block's bytes.
    leases: HashMap<BlockId, (u32, u64)>,
    pub leased_bytes: u64,
    pub pending: HashMap<u64, Pending>,
    pub writers: HashMap<u64, Writer>,
}

impl Client {
    pub fn new(id: u64, stream: UnixStream) -> Client {
        Client {
            id,
            stream,
            input: Vec::new(),
            handled: 0,
            output: Vec::new(),
            sent: 0,
            has_greeted: false,
            closes: false,
            is_paused: false,
            leases: HashMap::new(),
            leased_bytes: 0,
            pending: HashMap::new(),
            writers: HashMap::new(),
        }
    }

    /// Whether it may ask for more.
    pub fn has_room(&self) -> bool {
        self.pending.len() < REQUESTS_MAX && self.unsent() < UNSENT_MAX
    }

    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    pub fn receive(&mut self) -> Flow {
        self.input.drain(..self.handled);
        self.handled = 0;
        let mut read = 0;
        while read < READ_MAX {
            let len = self.input.len();
            self.input.resize(len + READ_STEP, 0);
            let result = self.stream.read(&mut self.input[len..]);
            self.input.truncate(len + result.as_ref().map_or(0, |count| *count));
            match result {
                Ok(0) => return Flow::Closed,
                Ok(count) if count < READ_STEP => return Flow::Drained,
                Ok(count) => read += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flow::Drained,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Flow::Closed,
            }
        }
        Flow::More
    }

    /// Sends what the socket takes.
    pub fn send(&mut self) {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return self.closes = true,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.closes = true,
            }
        }
        self.output.clear();
        self.sent = 0;
        if self.output.capacity() > UNSENT_MAX {
            self.output = Vec::new();
        }
    }

    /// The catalogue has given these to it.
    pub fn hold(&mut self, parts: &[Leased]) {
        for part in parts {
            let lease = self.leases.entry(part.block).or_insert((0, part.held));
            lease.0 += 1;
            self.leased_bytes += if lease.0 == 1 { lease.1 } else { 0 };
        }
    }

    /// False: it has no such lease.
    pub fn let_go(&mut self, block: BlockId) -> bool {
        let Some(lease) = self.leases.get_mut(&block) else { return false };
        lease.0 -= 1;
        if lease.0 == 0 {
            self.leased_bytes -= lease.1;
            self.leases.remove(&block);
        }
        true
    }

    /// All its leases, a block once for each.
    pub fn leases(&mut self) -> Vec<BlockId> {
        self.leased_bytes = 0;
        let all = std::mem::take(&mut self.leases);
        all.into_iter().flat_map(|(block, (count, _))| std::iter::repeat_n(block, count as usize)).collect()
    }
}
