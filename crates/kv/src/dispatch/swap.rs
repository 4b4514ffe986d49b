//! `SWAPDB` with a storage tier.
//!
//! Storage exchanges two databases by one durable write, and only while nothing is on its way there. So no change that waits, and no record of the
//! write-back log that a start replays, names a database by the number that it had before. Until then the command waits, everything dirty is written at
//! once, and commands that may write and new walks over keys wait behind it.

use crate::client::Client;
use crate::command::Arg;
use crate::command::table::CommandMatch;
use crate::server::{Core, Server};

impl Core {
    /// Lets `SWAPDB` wait while something is on its way to storage. True if it waits.
    pub(super) fn waits_to_swap(
        &mut self,
        client: &mut Client,
        found: CommandMatch,
        args: &[Arg<'_>],
    ) -> bool {
        if found.row.name != "swapdb" {
            return false;
        }
        let Some(tier) = self.server.tier.as_deref_mut().filter(|tier| !tier.may_swap()) else {
            return false;
        };
        client.parked = Some(args.iter().map(|arg| arg.to_vec()).collect());
        tier.swaps.push(client.id);
        true
    }

    /// Lets `SWAPDB` go on if everything is stored, and those that wait behind it.
    pub(super) fn wake_swaps(&mut self) {
        let Some(tier) = self.server.tier.as_deref_mut() else { return };
        if tier.swaps.is_empty() || !tier.may_swap() {
            return;
        }
        let others = std::mem::replace(&mut tier.resume, std::mem::take(&mut tier.swaps));
        tier.resume.extend(others);
        if let Some(back) = &mut tier.back {
            tier.resume.append(&mut back.throttled);
        }
    }
}

impl Server {
    /// Databases were exchanged in storage: commands that wait for keys run anew, as storage may have them now.
    pub fn run_waiting_anew(&mut self) {
        let mut waiting = Vec::new();
        for id in self.waiting.values().flatten() {
            if !waiting.contains(id) {
                waiting.push(*id);
            }
        }
        for id in waiting {
            let Some(mut client) = self.clients.take(id) else { continue };
            if let Some(blocked) = self.unblock(&mut client) {
                client.parked = Some(blocked.args);
                client.kept_deadline_ms = Some(blocked.deadline_ms);
                if let Some(tier) = &mut self.tier {
                    tier.resume.push(id);
                }
            }
            self.clients.put_back(client);
        }
    }
}
