//! Commands that arrive while clients are paused wait until the pause ends, and then run in the order in which they came.

use crate::client::Client;
use crate::client::pause::Pause;
use crate::command::table::{CommandMatch, Flags, table};
use crate::command::{Arg, scripting};
use crate::server::Core;

/// Whether a command may change something, as its row in the table says.
pub(super) fn may_write(client: &Client, found: CommandMatch) -> bool {
    let changes = |found: CommandMatch| {
        found.row.flags.contains(Flags::WRITE) || found.row.flags.contains(Flags::MAY_REPLICATE)
    };
    let of_transaction = || {
        let commands = client.multi.iter().flat_map(|multi| &multi.commands);
        commands.into_iter().any(|args| {
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            table().find_with_subcommand(&args).is_some_and(changes)
        })
    };
    changes(found) || (found.row.name == "exec" && of_transaction())
}

/// Whether a command has to wait.
fn stops(pause: &Pause, client: &Client, found: CommandMatch, now_ms: i64) -> bool {
    if pause.until_ms <= now_ms {
        return false;
    }
    !pause.only_writes || may_write(client, found)
}

impl Core {
    /// Keeps expired keys while clients are paused.
    pub fn look_at_pause(&mut self) {
        let db = &self.dbs.all[0];
        let is_paused = self.server.pause.until_ms > db.now_ms;
        if is_paused != db.keeps_expired {
            self.dbs.keep_expired(is_paused);
        }
    }

    /// Lets a command wait if clients are paused. True if it waits.
    pub fn pauses(&mut self, client: &mut Client, found: CommandMatch, args: &[Arg<'_>]) -> bool {
        let now_ms = self.dbs.all[0].now_ms;
        if !stops(&self.server.pause, client, found, now_ms) {
            return false;
        }
        if self.server.pause.only_writes && scripting::only_reads(&self.server, found, args) {
            return false;
        }
        client.parked = Some(args.iter().map(|arg| arg.to_vec()).collect());
        self.server.pause.waiting.push(client.id);
        true
    }

    /// Runs what waited, if the pause has ended.
    pub fn end_pause(&mut self) {
        let pause = &mut self.server.pause;
        if pause.waiting.is_empty() || pause.until_ms > self.dbs.all[0].now_ms {
            return;
        }
        for id in std::mem::take(&mut pause.waiting) {
            let Some(mut client) = self.server.clients.take(id) else { continue };
            if let Some(args) = client.parked.take() {
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                self.execute(&mut client, &args);
                self.server.clients.touched.push(id);
            }
            self.server.clients.put_back(client);
        }
    }
}
