//! The subscribers of each channel, and passing messages on to them.
//!
//! A message is written into each subscriber's reply buffer; the event loops send it at the end of the turn.

pub use crate::client::Kind;
use crate::client::{ClientId, Clients};
use crate::resp::Reply;
use crate::value::glob;
use std::collections::HashMap;

#[derive(Default)]
pub struct Channels {
    by_kind: [HashMap<Vec<u8>, Vec<ClientId>>; 3],
}

impl Channels {
    /// Names that have subscribers.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        self.by_kind[kind as usize].keys().map(Vec::as_slice)
    }

    pub fn len(&self, kind: Kind) -> usize {
        self.by_kind[kind as usize].len()
    }

    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        self.by_kind[kind as usize].get(name).map_or(0, Vec::len)
    }

    pub fn add(&mut self, kind: Kind, name: &[u8], client: ClientId) {
        self.by_kind[kind as usize].entry(name.to_vec()).or_default().push(client);
    }

    pub fn remove(&mut self, kind: Kind, name: &[u8], client: ClientId) {
        let all = &mut self.by_kind[kind as usize];
        if let Some(ids) = all.get_mut(name) {
            ids.retain(|&id| id != client);
            if ids.is_empty() {
                all.remove(name);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_kind.iter().all(HashMap::is_empty)
    }

    /// Sends a message to all subscribers; `current` is the client whose command is executed. Returns how many got it.
    pub fn publish(
        &self,
        clients: &mut Clients,
        mut current: Option<(ClientId, &mut Reply)>,
        is_shard: bool,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let mut count = 0;
        let mut send = |id: ClientId, write: &dyn Fn(&mut Reply)| {
            count += 1;
            if let Some((own, reply)) = &mut current
                && *own == id
            {
                return reply.message(write);
            }
            if let Some(client) = clients.get_mut(id) {
                client.reply.message(write);
                clients.touched.push(id);
            }
        };
        let (kind, word): (Kind, &[u8]) =
            if is_shard { (Kind::Shard, b"smessage") } else { (Kind::Channel, b"message") };
        for &id in self.by_kind[kind as usize].get(channel).into_iter().flatten() {
            send(id, &|reply| {
                reply.push(3);
                reply.bulk(word);
                reply.bulk(channel);
                reply.bulk(message);
            });
        }
        if is_shard {
            return count;
        }
        for (pattern, ids) in &self.by_kind[Kind::Pattern as usize] {
            if !glob::matches(pattern, channel) {
                continue;
            }
            for &id in ids {
                send(id, &|reply| {
                    reply.push(4);
                    reply.bulk(b"pmessage");
                    reply.bulk(pattern);
                    reply.bulk(channel);
                    reply.bulk(message);
                });
            }
        }
        count
    }
}
