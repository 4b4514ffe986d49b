//! MONITOR: clients that are sent every command that others run, and which arguments no client is shown.

use super::table::{CommandMatch, Flags};
use super::{Arg, args};
use crate::client::{Client, ClientId, Clients};
use crate::resp::Reply;
use smallvec::SmallVec;

/// What stands for a password, in MONITOR and SLOWLOG.
const HIDDEN: &[u8] = b"(redacted)";

/// Settings whose values are not shown.
const SECRET_SETTINGS: [&str; 3] = ["requirepass", "masterauth", "tls-key-file-pass"];

/// The arguments of a command without its secrets.
pub fn shown<'a>(found: CommandMatch, args: &[Arg<'a>]) -> SmallVec<[Arg<'a>; 8]> {
    let mut all = SmallVec::from_slice(args);
    let mut hide = |at: usize| {
        if let Some(arg) = all.get_mut(at) {
            *arg = HIDDEN;
        }
    };
    match (found.parent.map(|parent| parent.name), found.row.name) {
        (None, "auth") => (1..args.len()).for_each(hide),
        (None, "hello") => {
            let word = args.iter().skip(2).position(|arg| args::is(arg, "AUTH"));
            word.into_iter().flat_map(|at| [at + 3, at + 4]).for_each(hide);
        }
        (Some("acl"), "setuser" | "deluser") => (2..args.len()).for_each(hide),
        (Some("config"), "set") => {
            for at in (2..args.len()).step_by(2) {
                if SECRET_SETTINGS.iter().any(|name| args::is(args[at], name)) {
                    hide(at + 1);
                }
            }
        }
        _ => {}
    }
    all
}

/// Whether monitors see a command: those of administration are not shown.
pub fn is_shown(found: CommandMatch) -> bool {
    !found.row.flags.contains(Flags::SKIP_MONITOR) && !found.row.flags.contains(Flags::ADMIN)
}

/// Sends a command to the monitors. `current` is the client that runs it, whose reply is `reply`; `from` is its address, or `lua`.
pub fn feed(
    clients: &mut Clients,
    monitors: &[ClientId],
    current: (&Client, &mut Reply),
    now_us: u64,
    from: &str,
    args: &[Arg<'_>],
) {
    let (client, reply) = current;
    let mut line =
        format!("{}.{:06} [{} {from}]", now_us / 1_000_000, now_us % 1_000_000, client.db).into_bytes();
    for arg in args {
        line.push(b' ');
        quote(arg, &mut line);
    }
    for &id in monitors {
        if id == client.id {
            reply.message(|reply| reply.simple_bytes(&line));
        } else if let Some(other) = clients.get_mut(id) {
            other.reply.message(|reply| reply.simple_bytes(&line));
            clients.touched.push(id);
        }
    }
}

/// Text in quotes, with what is not printable escaped.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            other => out.extend_from_slice(format!("\\x{other:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}
