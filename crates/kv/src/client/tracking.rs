//! Client-side caches: which keys a client may have cached, and telling it that one was changed.
//!
//! A client in the default mode is remembered for each key that it reads and told once when the key changes. A client in broadcast mode is told of
//! every change of keys with its prefixes, and nothing is remembered for it. Keys are told apart by name alone, not by database, as in Redis.
//!
//! The table of keys is bounded by `tracking-table-max-keys`: beyond it a key is forgotten, which is told as if it had been changed.

use super::{Client, ClientId, Clients};
use crate::keyspace::Key;
use crate::resp::Reply;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The channel on which a client of RESP2 is told.
pub const CHANNEL: &[u8] = b"__redis__:invalidate";

/// What `CLIENT TRACKING ON` asked for.
#[derive(Clone, Default)]
pub struct Options {
    /// The client that is told in place of this one.
    pub redirect: Option<ClientId>,
    pub broadcasts: bool,
    /// Keys are remembered only after `CLIENT CACHING YES`.
    pub opts_in: bool,
    /// Keys are remembered except after `CLIENT CACHING NO`.
    pub opts_out: bool,
    /// The client is not told of its own changes.
    pub skips_own: bool,
    pub prefixes: Vec<Vec<u8>>,
    /// What `CLIENT CACHING` said for the next command.
    pub caches_next: Option<bool>,
    /// The client that is to be told is gone.
    pub is_broken: bool,
}

/// Keys with a prefix that were changed in this turn, with the client that changed each.
#[derive(Default)]
struct Prefix {
    clients: Vec<ClientId>,
    changed: Vec<(Key, Option<ClientId>)>,
}

#[derive(Default)]
pub struct Tracking {
    keys: HashMap<Box<[u8]>, SmallVec<[ClientId; 2]>>,
    /// Pairs of a key and a client in `keys`.
    items: usize,
    prefixes: BTreeMap<Vec<u8>, Prefix>,
    clients: HashSet<ClientId>,
    /// All keys were deleted: every client is told so.
    pub is_flushed: bool,
}

/// What a client is told.
enum News<'a> {
    Keys(&'a [&'a [u8]]),
    /// All keys.
    All,
}

impl Tracking {
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    pub fn items(&self) -> usize {
        self.items
    }

    pub fn prefixes(&self) -> usize {
        self.prefixes.len()
    }

    /// Begins to follow a client, or follows it with other options.
    pub fn begin(&mut self, client: &mut Client, options: Options) {
        let mut options = options;
        if options.broadcasts {
            let old = client.tracking.take().map(|old| old.prefixes).unwrap_or_default();
            let mut added = std::mem::take(&mut options.prefixes);
            if added.is_empty() && old.is_empty() {
                added.push(Vec::new());
            }
            for prefix in &added {
                let clients = &mut self.prefixes.entry(prefix.clone()).or_default().clients;
                if !clients.contains(&client.id) {
                    clients.push(client.id);
                }
            }
            options.prefixes = old;
            for prefix in added {
                if !options.prefixes.contains(&prefix) {
                    options.prefixes.push(prefix);
                }
            }
        }
        self.clients.insert(client.id);
        client.tracking = Some(Box::new(options));
    }

    /// Ends following a client. The keys that it may have cached are forgotten when they change.
    pub fn end(&mut self, client: &mut Client) {
        let Some(options) = client.tracking.take() else { return };
        self.clients.remove(&client.id);
        for prefix in &options.prefixes {
            if let Some(known) = self.prefixes.get_mut(prefix) {
                known.clients.retain(|&id| id != client.id);
                if known.clients.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
        if self.clients.is_empty() {
            self.keys = HashMap::new();
            self.items = 0;
        }
    }

    /// A client has read a key.
    pub fn remember(&mut self, client: &Client, key: &[u8]) {
        let Some(options) = &client.tracking else { return };
        let caches = match options.caches_next {
            _ if options.broadcasts => false,
            said if options.opts_in => said == Some(true),
            said => said != Some(false),
        };
        if !caches {
            return;
        }
        let readers = match self.keys.get_mut(key) {
            Some(readers) => readers,
            None => self.keys.entry(key.into()).or_default(),
        };
        if !readers.contains(&client.id) {
            readers.push(client.id);
            self.items += 1;
        }
    }

    /// A key was changed by `by`. `current` is the client whose command is executed, which is not among the others.
    pub fn changed(
        &mut self,
        clients: &mut Clients,
        mut current: Option<&mut Client>,
        by: Option<ClientId>,
        key: &Key,
    ) {
        for (name, prefix) in &mut self.prefixes {
            if key.starts_with(name)
                && !prefix.changed.iter().any(|(known, from)| known == key && *from == by)
            {
                prefix.changed.push((key.clone(), by));
            }
        }
        let Some(readers) = self.keys.remove(&**key) else { return };
        self.items -= readers.len();
        for id in readers {
            if is_broadcast(clients, &current, id) {
                continue;
            }
            tell(clients, current.as_deref_mut(), id, by, &News::Keys(&[key]));
        }
    }

    /// Forgets keys until the table is within its bound.
    pub fn shrink(&mut self, clients: &mut Clients, mut current: Option<&mut Client>, keys_max: usize) {
        while keys_max > 0 && self.keys.len() > keys_max {
            let Some(key) = self.keys.keys().next().cloned() else { return };
            let readers = self.keys.remove(&key).unwrap_or_default();
            self.items -= readers.len();
            for id in readers {
                tell(clients, current.as_deref_mut(), id, None, &News::Keys(&[&key]));
            }
        }
    }

    /// All keys of a database were deleted.
    pub fn flushed(&mut self, clients: &mut Clients, mut current: Option<&mut Client>) {
        self.is_flushed = false;
        self.keys = HashMap::new();
        self.items = 0;
        for &id in &self.clients {
            tell(clients, current.as_deref_mut(), id, None, &News::All);
        }
    }

    /// At the end of a turn: tells the clients in broadcast mode what was changed in it.
    pub fn broadcast(&mut self, clients: &mut Clients) {
        for prefix in self.prefixes.values_mut() {
            if prefix.changed.is_empty() {
                continue;
            }
            let changed = std::mem::take(&mut prefix.changed);
            for &id in &prefix.clients {
                let skips = clients
                    .get(id)
                    .and_then(|client| client.tracking.as_ref())
                    .is_some_and(|own| own.skips_own);
                let keys: Vec<&[u8]> = changed
                    .iter()
                    .filter(|(_, by)| !(skips && *by == Some(id)))
                    .map(|(key, _)| &**key)
                    .collect();
                if !keys.is_empty() {
                    tell(clients, None, id, None, &News::Keys(&keys));
                }
            }
        }
    }
}

/// Whether a client has gone over to broadcast mode since it read a key.
fn is_broadcast(clients: &Clients, current: &Option<&mut Client>, id: ClientId) -> bool {
    let options = match current {
        Some(client) if client.id == id => client.tracking.as_ref(),
        _ => clients.get(id).and_then(|client| client.tracking.as_ref()),
    };
    options.is_some_and(|options| options.broadcasts)
}

/// Tells a client, or the client that it names in its place.
fn tell(
    clients: &mut Clients,
    mut current: Option<&mut Client>,
    id: ClientId,
    by: Option<ClientId>,
    news: &News<'_>,
) {
    let find = |current: &Option<&mut Client>, clients: &Clients, id: ClientId| match current {
        Some(client) if client.id == id => client.tracking.clone(),
        _ => clients.get(id).and_then(|client| client.tracking.clone()),
    };
    // A client that has ended tracking since it read the key is not told.
    let Some(options) = find(&current, clients, id) else { return };
    if options.skips_own && by == Some(id) {
        return;
    }
    let to = options.redirect.unwrap_or(id);
    let mut with = |clients: &mut Clients, id: ClientId, write: &dyn Fn(&mut Client)| -> bool {
        if let Some(client) = current.as_deref_mut().filter(|client| client.id == id) {
            write(client);
            return true;
        }
        let Some(client) = clients.get_mut(id) else { return false };
        write(client);
        clients.touched.push(id);
        true
    };
    let is_redirected = options.redirect.is_some();
    let found = with(clients, to, &|client| {
        let listens = client.subscribed_at_all();
        client.reply.message(|reply| write_news(reply, listens, is_redirected, news));
    });
    if !found {
        with(clients, id, &|client| {
            if let Some(own) = &mut client.tracking {
                own.is_broken = true;
            }
            if client.reply.resp3 {
                client.reply.message(|reply| {
                    reply.push(2);
                    reply.bulk(b"tracking-redir-broken");
                    reply.int(to as i64);
                });
            }
        });
    }
}

/// RESP3 has a push of its own; a client of RESP2 must be another one that is told, and hears it as a message if it is a subscriber.
fn write_news(reply: &mut Reply, listens: bool, is_redirected: bool, news: &News<'_>) {
    if reply.resp3 {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else if is_redirected && listens {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(CHANNEL);
    } else {
        return;
    }
    match news {
        News::All => reply.null(),
        News::Keys(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}
