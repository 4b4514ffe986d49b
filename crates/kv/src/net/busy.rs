//! Serving sockets while a script runs for long: what arrives is read and answered at once, most of it with `BUSY`.
//!
//! The loop that runs the script does so, for the sockets of all loops, as the others wait for the core. It holds the lock of the core, and takes that of
//! sockets one loop after another; a loop that waits for its sockets has it, and gives it back when something arrives.

use super::executing;
use super::sockets::Sockets;
use crate::dispatch::busy;
use crate::keyspace::Databases;
use crate::server::Server;
use crate::server::loops::ServesBusy;
use smallvec::SmallVec;
use std::time::Duration;

impl ServesBusy for Sockets {
    fn serve_busy(&mut self, dbs: &mut Databases, server: &mut Server, index: usize) {
        // What cannot be waited for is looked at the next time.
        let _ = self.wait(Duration::ZERO);
        self.read();
        let now_ms = server.world.clock.unix_ms() as i64;
        for accepted in self.accept() {
            executing::welcome(server, self, accepted, index, now_ms);
        }
        // All of them: those of another loop may have been parsed before it began to wait for the core.
        for token in self.tokens() {
            let Some(mut connection) = self.take(token) else { continue };
            if let Some(mut client) = server.clients.take(connection.client) {
                while executing::takes_more(&client) {
                    let mut args = SmallVec::<[&[u8]; 8]>::new();
                    if connection.requests.next(&mut args) {
                        busy::answer(dbs, server, &mut client, &args);
                        continue;
                    }
                    drop(args);
                    connection.parse();
                    if !connection.requests.has_next() {
                        break;
                    }
                }
                executing::finish(server, &mut connection, &mut client, false);
                server.clients.put_back(client);
            } else {
                connection.closes = true;
            }
            self.put_back(token, connection);
            self.write(token);
        }
        for id in std::mem::take(&mut self.gone) {
            server.forget_gone(id);
        }
    }
}
