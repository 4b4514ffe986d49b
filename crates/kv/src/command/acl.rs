//! ACL: users and their rights.

use super::table::{self, Acl as Category, Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::client::acl::log::Entry;
use crate::client::acl::selector::Selector;
use crate::client::acl::{DEFAULT_USER, Denied, User, lines};
use crate::client::{Client, Kind};

const ADMIN: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);
const LOOK: Flags = flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);
const BITS_MAX: i64 = 4096;

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, Keys::None, handler).doc(
        Group::Server,
        since,
        "O(N) of what is named",
        summary,
    )
}

pub const ROWS: &[Row] = &[row(
    "acl",
    -2,
    Flags::NONE,
    |_, _| Err(CommandError::Syntax),
    "6.0.0",
    "Manages users and their rights.",
)
.with_subcommands(&[
    row("cat", -2, LOOK, cat, "6.0.0", "Lists the categories, or the commands of one."),
    row("deluser", -3, ADMIN, deluser, "6.0.0", "Deletes users and closes their connections."),
    row("dryrun", -4, ADMIN, dryrun, "7.0.0", "Says whether a user may run a command."),
    row("genpass", -2, LOOK, genpass, "6.0.0", "Returns a random password."),
    row("getuser", 3, ADMIN, getuser, "6.0.0", "Describes a user."),
    row("list", 2, ADMIN, list, "6.0.0", "Lists the users with their rules."),
    row("load", 2, ADMIN, load, "6.0.0", "Reads the users from the ACL file."),
    row("log", -2, ADMIN, log, "6.0.0", "Returns what was refused to users."),
    row("save", 2, ADMIN, save, "6.0.0", "Writes the users to the ACL file."),
    row("setuser", -3, ADMIN, setuser, "6.0.0", "Creates a user, or changes its rights."),
    row("users", 2, ADMIN, users, "6.0.0", "Lists the names of the users."),
    row("whoami", 2, LOOK, whoami, "6.0.0", "Returns the name of the connection's user."),
    help::row(Group::Server, "6.0.0"),
])];

/// Refuses a command, and logs it. `context`: where it was sent.
pub fn refuse(ctx: &mut Ctx<'_>, denied: Denied, args: &[Arg<'_>], name: &str, context: &'static str) {
    let user = ctx.client.user.name.clone();
    let (reason, object) = match denied {
        Denied::Command => ("command", name.as_bytes()),
        Denied::Key(at) => ("key", args[at]),
        Denied::Channel(at) => ("channel", args[at]),
    };
    log_refusal(ctx, reason, context, object, &user);
}

pub fn log_refusal(
    ctx: &mut Ctx<'_>,
    reason: &'static str,
    context: &'static str,
    object: &[u8],
    user: &[u8],
) {
    let at_ms = ctx.now_ms();
    let client = super::clients::describe(ctx.client, ctx.reply.resp3, at_ms);
    let (object, user) = (object.to_vec(), user.to_vec());
    let len_max = ctx.server.config.size("acllog-max-len");
    ctx.server.acl.log.add(Entry { count: 1, reason, context, object, user, at_ms, client }, len_max);
}

fn all_channels(ctx: &Ctx<'_>) -> bool {
    ctx.server.config.text("acl-pubsub-default") == "allchannels"
}

fn cat(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match args {
        [_, _] => {
            ctx.reply.array(Category::NAMES.len());
            Category::NAMES.iter().for_each(|(_, name)| ctx.reply.bulk(name.as_bytes()));
        }
        [_, _, name] => {
            let wanted =
                ctx.server.acl.catalogue.category(name).ok_or_else(|| {
                    CommandError::err(format_args!("Unknown category '{}'", args::text(name)))
                })?;
            let all: Vec<&table::CommandMatch> =
                table().all.iter().filter(|found| found.row.categories().0 & wanted != 0).collect();
            ctx.reply.array(all.len());
            all.iter().for_each(|found| ctx.reply.bulk(found.full_name().as_bytes()));
        }
        _ => {
            return Err(CommandError::err(format_args!(
                "unknown subcommand or wrong number of arguments for '{}'. Try ACL HELP.",
                args::text(args[1])
            )));
        }
    }
    Ok(())
}

/// Closes the connections that `is_meant` names, the present one too, after its reply.
fn close_clients(ctx: &mut Ctx<'_>, is_meant: impl Fn(&Client) -> bool) {
    let ids: Vec<u64> =
        ctx.server.clients.iter().filter(|client| is_meant(client)).map(|client| client.id).collect();
    for id in ids {
        if let Some(client) = ctx.server.clients.get_mut(id) {
            client.closes = true;
            ctx.server.clients.touched.push(id);
        }
    }
    if is_meant(ctx.client) {
        ctx.client.closes = true;
    }
}

fn setuser(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (name, all_channels) = (args[2], all_channels(ctx));
    if !lines::is_name(name) {
        return Err(CommandError::of("ERR Usernames can't contain spaces or null characters"));
    }
    let mut user = match ctx.server.acl.get(name) {
        Some(user) => User::clone(user),
        None => User::new(name, all_channels, ctx.server.acl.catalogue),
    };
    let rules = lines::join_selectors(args[3..].iter().copied()).map_err(|begun| {
        CommandError::err(format_args!(
            "Unmatched parenthesis in acl selector starting at '{}'.",
            args::text(&begun)
        ))
    })?;
    for rule in &rules {
        user.apply(rule, all_channels).map_err(|error| {
            CommandError::err(format_args!(
                "Error in ACL SETUSER modifier '{}': {}",
                args::text(rule),
                error.text()
            ))
        })?;
    }
    let is_lost = |client: &Client| {
        let channels = [(Kind::Channel, false), (Kind::Pattern, true), (Kind::Shard, false)];
        client.user.name == name
            && channels.iter().any(|&(kind, is_pattern)| {
                client.subscriptions[kind as usize]
                    .iter()
                    .any(|channel| !user.allows_channel(channel, is_pattern))
            })
    };
    close_clients(ctx, is_lost);
    ctx.server.acl.put(user);
    ctx.reply.ok();
    Ok(())
}

fn deluser(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args[2..].contains(&DEFAULT_USER) {
        return Err(CommandError::of("ERR The 'default' user cannot be removed"));
    }
    let mut count = 0;
    for &name in &args[2..] {
        if ctx.server.acl.remove(name) {
            count += 1;
            close_clients(ctx, |client| client.user.name == name);
        }
    }
    ctx.reply.int(count);
    Ok(())
}

fn reply_selector(ctx: &mut Ctx<'_>, selector: &Selector) {
    for (word, rules) in [
        (&b"commands"[..], selector.command_rules().into_bytes()),
        (b"keys", selector.key_rules()),
        (b"channels", selector.channel_rules()),
    ] {
        ctx.reply.bulk(word);
        ctx.reply.bulk(&rules);
    }
}

fn getuser(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let Some(user) = ctx.server.acl.get(args[2]).cloned() else {
        ctx.reply.null();
        return Ok(());
    };
    ctx.reply.map(6);
    ctx.reply.bulk(b"flags");
    let flags = user.flags();
    ctx.reply.set(flags.len());
    flags.iter().for_each(|flag| ctx.reply.bulk(flag.as_bytes()));
    ctx.reply.bulk(b"passwords");
    ctx.reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| ctx.reply.bulk(hash.as_bytes()));
    reply_selector(ctx, &user.root);
    ctx.reply.bulk(b"selectors");
    ctx.reply.array(user.others.len());
    for other in &user.others {
        ctx.reply.map(3);
        reply_selector(ctx, other);
    }
    Ok(())
}

fn list(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let users = ctx.server.acl.users();
    ctx.reply.array(users.len());
    users.for_each(|user| ctx.reply.bulk(&user.line()));
    Ok(())
}

fn users(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let users = ctx.server.acl.users();
    ctx.reply.array(users.len());
    users.for_each(|user| ctx.reply.bulk(&user.name));
    Ok(())
}

fn whoami(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.bulk(&ctx.client.user.name);
    Ok(())
}

fn genpass(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let bits = match args {
        [_, _] => 256,
        [_, _, bits] => args::int(bits)?,
        _ => return Err(CommandError::arity("acl|genpass")),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(CommandError::of(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let random = &ctx.server.world.random;
    let text: String = (0..digits.div_ceil(16)).map(|_| format!("{:016x}", random.next_u64())).collect();
    ctx.reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}

fn log(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let count = match args {
        [_, _] => 10,
        [_, _, word] if args::is(word, "RESET") => {
            ctx.server.acl.log.clear();
            ctx.reply.ok();
            return Ok(());
        }
        [_, _, count] => usize::try_from(args::int(count)?).unwrap_or(0),
        _ => return Err(CommandError::arity("acl|log")),
    };
    let now_ms = ctx.now_ms();
    let entries = ctx.server.acl.log.newest(count);
    let reply = &mut *ctx.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk(b"count");
        reply.int(entry.count as i64);
        for (word, text) in [
            (&b"reason"[..], entry.reason.as_bytes()),
            (b"context", entry.context.as_bytes()),
            (b"object", &entry.object),
            (b"username", &entry.user),
        ] {
            reply.bulk(word);
            reply.bulk(text);
        }
        reply.bulk(b"age-seconds");
        reply.double((now_ms - entry.at_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

fn dryrun(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let Some(user) = ctx.server.acl.get(args[2]).cloned() else {
        return Err(CommandError::err(format_args!("User '{}' not found", args::text(args[2]))));
    };
    let command = &args[3..];
    let Some(found) = table().find_with_subcommand(command) else {
        return Err(CommandError::err(format_args!("Command '{}' not found", args::text(command[0]))));
    };
    if !found.row.accepts(command.len()) {
        return Err(CommandError::arity(&found.full_name()));
    }
    let text = match super::rights::check_user(&user, found, command) {
        Ok(()) => {
            ctx.reply.ok();
            return Ok(());
        }
        Err(Denied::Command) => format!("run the '{}' command", found.full_name()),
        Err(Denied::Key(at)) => format!("access the '{}' key", args::text(command[at])),
        Err(Denied::Channel(at)) => format!("access the '{}' channel", args::text(command[at])),
    };
    ctx.reply.bulk(format!("This user has no permissions to {text}").as_bytes());
    Ok(())
}

const NO_FILE: CommandError = CommandError::of(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);

fn file(ctx: &Ctx<'_>) -> Result<String, CommandError> {
    match ctx.server.config.text("aclfile") {
        "" => Err(NO_FILE),
        path => Ok(path.to_owned()),
    }
}

fn load(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let path = file(ctx)?;
    let files = ctx.server.files.as_ref().ok_or(NO_FILE)?;
    let text = files.read(&path).map_err(|error| {
        CommandError::err(format_args!("Error loading ACLs, opening file '{path}': {error}"))
    })?;
    let users =
        lines::file(&path, &text, all_channels(ctx), ctx.server.acl.catalogue).map_err(CommandError::err)?;
    ctx.server.acl.replace(users);
    // As after DELUSER: what these connections may do is decided anew when they authenticate again.
    close_clients(ctx, |client| client.user.name != DEFAULT_USER);
    ctx.reply.ok();
    Ok(())
}

fn save(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let path = file(ctx)?;
    let files = ctx.server.files.as_ref().ok_or(NO_FILE)?;
    let text: Vec<u8> =
        ctx.server.acl.users().flat_map(|user| [user.line().as_slice(), b"\n"].concat()).collect();
    files.replace(&path, &text).map_err(|error| {
        CommandError::err(format_args!("There was an error trying to save the ACLs: {path}: {error}"))
    })?;
    ctx.reply.ok();
    Ok(())
}
