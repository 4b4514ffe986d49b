//! A client without a connection: its commands are executed on the core, and its replies are taken from its buffer. For the models.

use std::collections::VecDeque;
use terrace_kv::client::ClientId;
use terrace_kv::server::Core;

/// Executes a command of a client, unless it waits.
pub fn execute(core: &mut Core, id: ClientId, command: &[String]) -> bool {
    let mut client = core.server.clients.take(id).unwrap();
    let is_free = client.parked.is_none() && client.blocked.is_none() && !client.is_delayed;
    if is_free {
        let args: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        core.execute(&mut client, &args);
    }
    core.server.clients.put_back(client);
    is_free
}

/// What a client may be sent by now.
pub fn output(core: &mut Core, id: ClientId) -> String {
    let client = core.server.clients.get_mut(id).unwrap();
    client.settle();
    String::from_utf8(std::mem::take(&mut client.reply.buffer)).unwrap()
}

/// The whole replies of a text.
pub fn replies(text: &str) -> Vec<String> {
    fn one(lines: &mut VecDeque<&str>) -> Option<String> {
        let line = lines.pop_front()?;
        let mut reply = format!("{line}\r\n");
        match line.split_at(1) {
            ("*", count) => {
                for _ in 0..count.parse::<i64>().unwrap() {
                    reply.push_str(&one(lines)?);
                }
            }
            ("$", len) if len != "-1" => reply.push_str(&format!("{}\r\n", lines.pop_front()?)),
            _ => {}
        }
        Some(reply)
    }
    let mut lines: VecDeque<&str> = text.split("\r\n").filter(|line| !line.is_empty()).collect();
    std::iter::from_fn(|| one(&mut lines)).collect()
}
