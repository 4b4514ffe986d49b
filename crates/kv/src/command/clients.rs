//! Connections: HELLO, AUTH, CLIENT, RESET, QUIT.

use super::table::{Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args, help, tracking};
use crate::client::{Client, ReplyMode};
use crate::pubsub::Kind;
use std::fmt::Write as _;

const HELLO: Flags =
    flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::FAST, Flags::NO_AUTH, Flags::ALLOW_BUSY]);
const CLIENT: Flags = flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);
const CLIENT_ADMIN: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(Group::Connection, since, "O(1)", summary)
}

pub const ROWS: &[Row] = &[
    row("hello", -1, HELLO, hello, "6.0.0", "Chooses the protocol, authenticates and describes the server."),
    row("auth", -2, HELLO, auth, "1.0.0", "Authenticates the connection."),
    row("reset", 1, HELLO, reset, "6.2.0", "Makes the connection as if it were new."),
    row("quit", -1, HELLO, quit, "1.0.0", "Closes the connection."),
    Row::new("monitor", 1, CLIENT_ADMIN, Keys::None, monitor).doc(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Shows every command that the server runs.",
    ),
    row(
        "client",
        -2,
        Flags::NONE,
        |_, _| Err(CommandError::Syntax),
        "2.4.0",
        "Looks at and changes connections.",
    )
    .with_subcommands(&[
        row("id", 2, CLIENT, id, "5.0.0", "Returns the number of the connection."),
        row("getname", 2, CLIENT, getname, "2.6.9", "Returns the name of the connection."),
        row("setname", 3, CLIENT, setname, "2.6.9", "Names the connection."),
        row("setinfo", 4, CLIENT, setinfo, "7.2.0", "Tells name and version of the client's library."),
        row("info", 2, CLIENT, info, "6.2.0", "Describes the connection."),
        row("list", -2, CLIENT_ADMIN, list, "2.4.0", "Describes all connections."),
        row("kill", -3, CLIENT_ADMIN, kill, "2.4.0", "Closes connections."),
        row("reply", 3, CLIENT, reply_mode, "3.2.0", "Switches replies off and on."),
        row("unblock", -3, CLIENT_ADMIN, unblock, "5.0.0", "Ends the wait of a blocked connection."),
        row(
            "no-evict",
            3,
            CLIENT_ADMIN,
            no_evict,
            "7.0.0",
            "Keeps the connection though clients take too much memory.",
        ),
        row("no-touch", 3, CLIENT, no_touch, "7.2.0", "Lets reads leave no trace for eviction."),
        row(
            "getredir",
            2,
            CLIENT,
            tracking::getredir,
            "6.0.0",
            "Returns the connection that gets invalidations.",
        ),
        row(
            "tracking",
            -3,
            CLIENT,
            tracking::tracking,
            "6.0.0",
            "Tells a client that caches of changed keys.",
        ),
        row(
            "caching",
            3,
            CLIENT,
            tracking::caching,
            "6.0.0",
            "Says whether the next command's keys are cached.",
        ),
        row(
            "trackinginfo",
            2,
            CLIENT,
            tracking::trackinginfo,
            "6.2.0",
            "Describes the tracking of the connection.",
        ),
        row("pause", -3, CLIENT_ADMIN, pause, "3.0.0", "Lets commands wait for a time."),
        row("unpause", 2, CLIENT_ADMIN, unpause, "6.2.0", "Ends a pause."),
        help::row(Group::Connection, "5.0.0"),
    ]),
];

fn hello(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut resp3 = ctx.reply.resp3;
    if let Some(version) = args.get(1) {
        resp3 = match crate::resp::parse::parse_i64(version) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err(CommandError::of("NOPROTO unsupported protocol version")),
            None => return Err(CommandError::of("ERR Protocol version is not an integer or out of range")),
        };
    }
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        if args::is(args[at], "AUTH") && at + 2 < args.len() {
            authenticate(ctx, args[at + 1], args[at + 2])?;
            at += 3;
        } else if args::is(args[at], "SETNAME") && at + 1 < args.len() {
            check_name(args[at + 1], "Client names cannot contain spaces, newlines or special characters.")?;
            name = Some(args[at + 1].to_vec());
            at += 2;
        } else {
            return Err(CommandError::err(format_args!(
                "Syntax error in HELLO option '{}'",
                args::text(args[at])
            )));
        }
    }
    if !ctx.server.is_authenticated(ctx.client) {
        return Err(CommandError::of(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        ctx.client.name = name;
    }
    ctx.reply.resp3 = resp3;
    let reply = &mut *ctx.reply;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(crate::server::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.int(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(ctx.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

fn authenticate(ctx: &mut Ctx<'_>, user: Arg<'_>, password: Arg<'_>) -> Done {
    let known = ctx.server.acl.get(user).filter(|user| user.accepts(password)).cloned();
    let Some(known) = known else {
        let context = if ctx.is_nested { "multi" } else { "toplevel" };
        super::acl::log_refusal(ctx, "auth", context, b"AUTH", user);
        return Err(CommandError::of("WRONGPASS invalid username-password pair or user is disabled."));
    };
    ctx.client.user = known;
    ctx.client.user_generation = ctx.server.acl.generation;
    ctx.client.is_authenticated = true;
    Ok(())
}

fn auth(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match *args {
        [_, password] => {
            if ctx.server.acl.default_user().needs_no_password {
                return Err(CommandError::of(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ));
            }
            authenticate(ctx, b"default", password)?;
        }
        [_, user, password] => authenticate(ctx, user, password)?,
        _ => return Err(CommandError::Syntax),
    }
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let client = &mut *ctx.client;
    client.multi = None;
    ctx.server.unwatch(client);
    ctx.server.unsubscribe_all(client);
    client.db = 0;
    client.name.clear();
    client.user = ctx.server.acl.default_user();
    client.is_authenticated = false;
    client.is_monitor = false;
    ctx.server.monitors.retain(|&id| id != client.id);
    ctx.server.tracking.end(client);
    client.is_kept = false;
    client.reply_mode = ReplyMode::On;
    client.is_untouching = false;
    ctx.reply.resp3 = false;
    ctx.reply.muted = false;
    ctx.reply.simple("RESET");
    Ok(())
}

fn quit(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.client.closes = true;
    ctx.reply.ok();
    Ok(())
}

fn id(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(ctx.client.id as i64);
    Ok(())
}

fn getname(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    match ctx.client.name.as_slice() {
        b"" => ctx.reply.null(),
        name => ctx.reply.bulk(name),
    }
    Ok(())
}

fn check_name(name: Arg<'_>, text: &'static str) -> Done {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(CommandError::err(text))
}

fn setname(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    check_name(args[2], "Client names cannot contain spaces, newlines or special characters.")?;
    ctx.client.name = args[2].to_vec();
    ctx.reply.ok();
    Ok(())
}

fn setinfo(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let into = if args::is(args[2], "LIB-NAME") {
        &mut ctx.client.library
    } else if args::is(args[2], "LIB-VER") {
        &mut ctx.client.library_version
    } else {
        return Err(CommandError::err(format_args!("Unrecognized option '{}'", args::text(args[2]))));
    };
    check_name(args[3], "lib-name and lib-ver cannot contain spaces, newlines or special characters.")?;
    *into = args[3].to_vec();
    ctx.reply.ok();
    Ok(())
}

/// A line of `CLIENT LIST`.
pub fn describe(client: &Client, resp3: bool, now_ms: i64) -> String {
    let mut line = String::new();
    let mut flags = String::new();
    if client.subscribed_at_all() {
        flags.push('P');
    }
    if client.multi.is_some() {
        flags.push('x');
    }
    if client.blocked.is_some() {
        flags.push('b');
    }
    if client.is_monitor {
        flags.push('O');
    }
    if let Some(tracking) = &client.tracking {
        flags.push('t');
        if tracking.is_broken {
            flags.push('R');
        }
        if tracking.broadcasts {
            flags.push('B');
        }
    }
    if client.is_kept {
        flags.push('e');
    }
    if flags.is_empty() {
        flags.push('N');
    }
    // Requests are read into buffers of the event loop, so `qbuf` is 0 for every client. Clients such as redis-py insist on the field.
    let unsent = client.reply.buffer.len();
    let queued: usize =
        client.multi.iter().flat_map(|multi| &multi.commands).flatten().map(|arg| arg.capacity()).sum();
    let _ = write!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={queued} rbs={} rbp={unsent} obl={unsent} oll=0 omem=0 tot-mem={} events=r cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
        client.id,
        client.address,
        client.local_address,
        client.token,
        String::from_utf8_lossy(&client.name),
        (now_ms - client.created_ms) / 1000,
        (now_ms - client.last_command_ms) / 1000,
        client.db,
        client.subscriptions[Kind::Channel as usize].len(),
        client.subscriptions[Kind::Pattern as usize].len(),
        client.subscriptions[Kind::Shard as usize].len(),
        client.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64),
        client.reply.buffer.capacity(),
        queued + client.reply.buffer.capacity(),
        match client.last_command {
            Some((Some(parent), name)) => format!("{parent}|{name}"),
            Some((None, name)) => name.to_owned(),
            None => "NULL".to_owned(),
        },
        String::from_utf8_lossy(&client.user.name),
        tracking::redirection(client.tracking.as_deref()),
        if resp3 { 3 } else { 2 },
        String::from_utf8_lossy(&client.library),
        String::from_utf8_lossy(&client.library_version),
    );
    line
}

fn info(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let line = describe(ctx.client, ctx.reply.resp3, ctx.now_ms()) + "\n";
    ctx.reply.verbatim("txt", line.as_bytes());
    Ok(())
}

fn client_kind(arg: Arg<'_>) -> Result<&'static str, CommandError> {
    let known = ["normal", "master", "replica", "slave", "pubsub"];
    let found = known.into_iter().find(|known| args::is(arg, known));
    found.ok_or_else(|| CommandError::err(format_args!("Unknown client type '{}'", args::text(arg))))
}

fn is_of_kind(client: &Client, kind: &str) -> bool {
    match kind {
        "normal" => !client.subscribed_at_all(),
        "pubsub" => client.subscribed_at_all(),
        _ => false,
    }
}

fn list(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut ids: Option<Vec<u64>> = None;
    let mut kind = None;
    match args {
        [_, _] => {}
        [_, _, word, wanted] if args::is(word, "TYPE") => {
            kind = Some(client_kind(wanted)?);
        }
        [_, _, word, rest @ ..] if args::is(word, "ID") && !rest.is_empty() => {
            let text = "ERR Invalid client ID";
            ids = Some(
                rest.iter()
                    .map(|id| args::int_within(id, 1, i64::MAX, text).map(|id| id as u64))
                    .collect::<Result<_, _>>()?,
            );
        }
        _ => return Err(CommandError::Syntax),
    }
    let now_ms = ctx.now_ms();
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut add = |client: &Client, resp3: bool| {
        let is_kind = kind.is_none_or(|kind| is_of_kind(client, kind));
        if is_kind && ids.as_ref().is_none_or(|ids| ids.contains(&client.id)) {
            lines.push((client.id, describe(client, resp3, now_ms)));
        }
    };
    for client in ctx.server.clients.iter() {
        add(client, client.reply.resp3);
    }
    add(ctx.client, ctx.reply.resp3);
    lines.sort_unstable();
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn kill(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (mut id, mut address, mut local, mut user, mut kind, mut skips_me) =
        (None, None, None, None, None, true);
    let is_old_form = args.len() == 3;
    if is_old_form {
        address = Some(args::text(args[2]).into_owned());
        skips_me = false;
    } else {
        if !args.len().is_multiple_of(2) {
            return Err(CommandError::Syntax);
        }
        for pair in args[2..].chunks_exact(2) {
            let (word, value) = (pair[0], pair[1]);
            if args::is(word, "ID") {
                id =
                    Some(args::int_within(value, 1, i64::MAX, "ERR client-id should be greater than 0")?
                        as u64);
            } else if args::is(word, "ADDR") {
                address = Some(args::text(value).into_owned());
            } else if args::is(word, "LADDR") {
                local = Some(args::text(value).into_owned());
            } else if args::is(word, "USER") {
                user = Some(args::text(value).into_owned());
            } else if args::is(word, "TYPE") {
                kind = Some(client_kind(value)?);
            } else if args::is(word, "SKIPME") && (args::is(value, "yes") || args::is(value, "no")) {
                skips_me = args::is(value, "yes");
            } else {
                return Err(CommandError::Syntax);
            }
        }
    }
    if let Some(user) = &user
        && ctx.server.acl.get(user.as_bytes()).is_none()
    {
        return Err(CommandError::err(format_args!("No such user '{user}'")));
    }
    let is_meant = |client: &Client| {
        id.is_none_or(|id| client.id == id)
            && address.as_ref().is_none_or(|address| client.address == *address)
            && local.as_ref().is_none_or(|local| client.local_address == *local)
            && user.as_ref().is_none_or(|user| client.user.name == user.as_bytes())
            && kind.is_none_or(|kind| is_of_kind(client, kind))
    };
    let mut count = 0;
    let others: Vec<u64> =
        ctx.server.clients.iter().filter(|client| is_meant(client)).map(|client| client.id).collect();
    for id in others {
        if let Some(client) = ctx.server.clients.get_mut(id) {
            client.closes = true;
            ctx.server.clients.touched.push(id);
            count += 1;
        }
    }
    if !skips_me && is_meant(ctx.client) {
        ctx.client.closes = true;
        count += 1;
    }
    match (is_old_form, count) {
        (true, 0) => return Err(CommandError::of("ERR No such client")),
        (true, _) => ctx.reply.ok(),
        (false, count) => ctx.reply.int(count),
    }
    Ok(())
}

fn reply_mode(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args::is(args[2], "ON") {
        ctx.client.reply_mode = ReplyMode::On;
        ctx.reply.muted = false;
        ctx.reply.ok();
    } else if args::is(args[2], "OFF") {
        ctx.client.reply_mode = ReplyMode::Off;
        ctx.reply.muted = true;
    } else if args::is(args[2], "SKIP") {
        if ctx.client.reply_mode == ReplyMode::On {
            ctx.client.reply_mode = ReplyMode::SkipNext;
            ctx.reply.muted = true;
        }
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

fn unblock(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let fails = match args.get(3) {
        None => false,
        Some(word) if args::is(word, "TIMEOUT") => false,
        Some(word) if args::is(word, "ERROR") => true,
        Some(_) => return Err(CommandError::of("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = args::int(args[2])? as u64;
    let Some(mut client) = ctx.server.clients.take(id) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let was_blocked = ctx.server.unblock(&mut client).is_some();
    if was_blocked {
        match fails {
            true => client.reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => client.reply.null_array(),
        }
        ctx.server.clients.touched.push(id);
    }
    ctx.server.clients.put_back(client);
    ctx.reply.int(i64::from(was_blocked));
    Ok(())
}

fn on_or_off(arg: Arg<'_>) -> Result<bool, CommandError> {
    match () {
        () if args::is(arg, "ON") => Ok(true),
        () if args::is(arg, "OFF") => Ok(false),
        () => Err(CommandError::Syntax),
    }
}

fn no_evict(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    ctx.client.is_kept = on_or_off(args[2])?;
    ctx.reply.ok();
    Ok(())
}

fn no_touch(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    ctx.client.is_untouching = on_or_off(args[2])?;
    ctx.reply.ok();
    Ok(())
}

fn pause(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let only_writes = match args.get(3) {
        None => false,
        Some(word) if args::is(word, "ALL") => false,
        Some(word) if args::is(word, "WRITE") => true,
        Some(_) => return Err(CommandError::of("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    if args.len() > 4 {
        return Err(CommandError::Syntax);
    }
    let ms = crate::resp::parse::parse_i64(args[2])
        .ok_or(CommandError::of("ERR timeout is not an integer or out of range"))?;
    if ms < 0 {
        return Err(CommandError::of("ERR timeout is negative"));
    }
    let now_ms = ctx.now_ms();
    let until_ms = now_ms.checked_add(ms).ok_or(CommandError::of("ERR timeout is out of range"))?;
    ctx.server.pause.begin(until_ms, only_writes, now_ms);
    ctx.reply.ok();
    Ok(())
}

fn unpause(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.server.pause.end();
    ctx.reply.ok();
    Ok(())
}

fn monitor(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    if ctx.client.denies_blocking {
        return Err(CommandError::of("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !ctx.client.is_monitor {
        ctx.client.is_monitor = true;
        ctx.server.monitors.push(ctx.client.id);
    }
    ctx.reply.ok();
    Ok(())
}
