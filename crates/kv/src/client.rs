//! A client as commands know it: what it selected, its reply buffer, what it waits for. Its socket is the event loop's.

pub mod acl;
pub mod pause;
pub mod tracking;

use crate::keyspace::Key;
use crate::resp::Reply;
use crate::tiering::queue::GroupId;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

pub type ClientId = u64;

/// What a command waits for.
pub struct Block {
    pub keys: Vec<Key>,
    /// Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
    /// Arguments of the command when it is run again, if others than the client sent.
    pub args: Option<Vec<Vec<u8>>>,
}

/// A command that waits.
pub struct Blocked {
    pub db: u16,
    pub keys: Vec<Key>,
    pub deadline_ms: Option<i64>,
    pub args: Vec<Vec<u8>>,
    /// The keys of the command, which stay in memory.
    pub pinned: Vec<crate::storage::Key>,
}

/// A transaction that is being queued.
#[derive(Default)]
pub struct Multi {
    pub commands: Vec<Vec<Vec<u8>>>,
    /// A command was refused: EXEC fails.
    pub is_refused: bool,
}

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    Pattern,
    Shard,
}

pub struct Watched {
    pub db: u16,
    pub key: Key,
    pub was_there: bool,
}

/// A piece of output that is held back.
pub struct HeldOutput {
    /// The group of changes whose write it waits for; `None`: it only waits for the pieces before it.
    group: Option<GroupId>,
    bytes: Vec<u8>,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    On,
    Off,
    /// The reply of the next command is left out.
    SkipNext,
}

pub struct Client {
    pub id: ClientId,
    /// The event loop that has the socket, and its token there.
    pub event_loop: usize,
    pub token: usize,
    pub address: String,
    pub local_address: String,
    pub name: Vec<u8>,
    pub created_ms: i64,
    pub last_command_ms: i64,
    /// The name of the command, after that of the command that it is a subcommand of.
    pub last_command: Option<(Option<&'static str>, &'static str)>,
    pub db: u16,
    pub reply: Reply,
    /// Closed when what it has been replied is written.
    pub closes: bool,
    pub wants_to_block: Option<Block>,
    pub blocked: Option<Blocked>,
    pub denies_blocking: bool,
    /// The command that waits for keys to be read from storage.
    pub parked: Option<Vec<Vec<u8>>>,
    /// Whether a key of the present command was not in memory.
    pub was_cold: bool,
    /// Output that waits for storage, in order.
    held: VecDeque<HeldOutput>,
    pub held_bytes: usize,
    /// Its next command waits for some time, as much is dirty.
    pub is_delayed: bool,
    /// How many values memory had lost when the client began to wait for a key.
    pub losses_seen: u64,
    /// When the wait of a command that runs anew ends: not later than its first one.
    pub kept_deadline_ms: Option<Option<i64>>,
    pub multi: Option<Multi>,
    pub watched: Vec<Watched>,
    /// Names by kind of subscription.
    pub subscriptions: [Vec<Vec<u8>>; 3],
    /// What the client may do, as of `user_generation`.
    pub user: Arc<crate::client::acl::User>,
    pub user_generation: u64,
    pub is_authenticated: bool,
    pub reply_mode: ReplyMode,
    pub library: Vec<u8>,
    pub library_version: Vec<u8>,
    /// `CLIENT NO-EVICT`.
    pub is_kept: bool,
    /// `CLIENT NO-TOUCH`.
    pub is_untouching: bool,
    /// `MONITOR`.
    pub is_monitor: bool,
    /// `CLIENT TRACKING`.
    /// The keys that the running script was called with, of a client that tracks.
    pub script_keys: Vec<Vec<u8>>,
    pub tracking: Option<Box<crate::client::tracking::Options>>,
}

impl Client {
    pub fn new(
        id: ClientId,
        event_loop: usize,
        token: usize,
        address: String,
        local_address: String,
        now_ms: i64,
        acl: &crate::client::acl::Acl,
    ) -> Client {
        let (user, user_generation) = (acl.default_user(), acl.generation);
        Client {
            id,
            event_loop,
            token,
            address,
            local_address,
            name: Vec::new(),
            created_ms: now_ms,
            last_command_ms: now_ms,
            last_command: None,
            db: 0,
            reply: Reply::default(),
            closes: false,
            wants_to_block: None,
            blocked: None,
            denies_blocking: false,
            parked: None,
            was_cold: false,
            held: VecDeque::new(),
            held_bytes: 0,
            is_delayed: false,
            losses_seen: 0,
            kept_deadline_ms: None,
            multi: None,
            watched: Vec::new(),
            subscriptions: [const { Vec::new() }; 3],
            user,
            user_generation,
            is_authenticated: false,
            reply_mode: ReplyMode::On,
            library: Vec::new(),
            library_version: Vec::new(),
            is_kept: false,
            is_untouching: false,
            is_monitor: false,
            script_keys: Vec::new(),
            tracking: None,
        }
    }

    /// Holds the output from `start` on until the group is stored; earlier output goes first. False if there is nothing to hold.
    pub fn hold(&mut self, start: usize, group: GroupId) -> bool {
        if start >= self.reply.buffer.len() {
            return false;
        }
        if start == 0
            && let Some(last) = self.held.back_mut().filter(|last| last.group == Some(group))
        {
            self.held_bytes += self.reply.buffer.len();
            last.bytes.append(&mut self.reply.buffer);
            return true;
        }
        let (before, bytes) = match start {
            0 => (Vec::new(), std::mem::take(&mut self.reply.buffer)),
            _ => {
                let bytes = self.reply.buffer.split_off(start);
                (std::mem::take(&mut self.reply.buffer), bytes)
            }
        };
        self.held_bytes += before.len() + bytes.len();
        if !before.is_empty() {
            self.held.push_back(HeldOutput { group: None, bytes: before });
        }
        self.held.push_back(HeldOutput { group: Some(group), bytes });
        true
    }

    /// The group is stored, or its replies are an error.
    pub fn release(&mut self, group: GroupId, error: Option<&str>) {
        for held in self.held.iter_mut().filter(|held| held.group == Some(group)) {
            held.group = None;
            if let Some(error) = error {
                let mut reply = Reply::new(self.reply.resp3);
                reply.error(error);
                self.held_bytes = self.held_bytes + reply.buffer.len() - held.bytes.len();
                held.bytes = reply.buffer;
            }
        }
    }

    /// Leaves in the buffer what may be sent.
    pub fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let last = std::mem::take(&mut self.reply.buffer);
        if !last.is_empty() {
            self.held_bytes += last.len();
            self.held.push_back(HeldOutput { group: None, bytes: last });
        }
        while self.held.front().is_some_and(|held| held.group.is_none()) {
            let Some(held) = self.held.pop_front() else { return };
            self.held_bytes -= held.bytes.len();
            match self.reply.buffer.is_empty() {
                true => self.reply.buffer = held.bytes,
                false => self.reply.buffer.extend_from_slice(&held.bytes),
            }
        }
    }

    pub fn holds_output(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the present rules of its user, if users have changed.
    pub fn take_rules(&mut self, acl: &acl::Acl) {
        if self.user_generation != acl.generation {
            self.user_generation = acl.generation;
            if let Some(user) = acl.get(&self.user.name) {
                self.user = user.clone();
            }
        }
    }

    /// Subscriptions that the reply of a (un)subscription counts.
    pub fn subscribed(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.subscriptions[Kind::Shard as usize].len(),
            Kind::Channel | Kind::Pattern => {
                self.subscriptions[Kind::Channel as usize].len()
                    + self.subscriptions[Kind::Pattern as usize].len()
            }
        }
    }

    pub fn subscribed_at_all(&self) -> bool {
        self.subscriptions.iter().any(|names| !names.is_empty())
    }
}

/// All clients. The one whose command is executed is taken out meanwhile.
#[derive(Default)]
pub struct Clients {
    all: HashMap<ClientId, Box<Client>>,
    last_id: ClientId,
    /// Clients that got output from another client's command, or are to be closed: the event loops look at them at the end of their turn.
    pub touched: Vec<ClientId>,
}

impl Clients {
    pub fn next_id(&mut self) -> ClientId {
        self.last_id += 1;
        self.last_id
    }

    pub fn add(&mut self, client: Client) {
        self.all.insert(client.id, Box::new(client));
    }

    pub fn take(&mut self, id: ClientId) -> Option<Box<Client>> {
        self.all.remove(&id)
    }

    pub fn put_back(&mut self, client: Box<Client>) {
        self.all.insert(client.id, client);
    }

    pub fn get(&self, id: ClientId) -> Option<&Client> {
        self.all.get(&id).map(|client| &**client)
    }

    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.all.get_mut(&id).map(|client| &mut **client)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.values().map(|client| &**client)
    }
}
