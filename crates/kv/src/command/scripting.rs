//! EVAL and SCRIPT.

use super::table::{Access, Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done, args, stored_keys};
use crate::resp::Reply;
use crate::script::{Failure, Invocation};

const RUN: Flags =
    flags(&[Flags::NOSCRIPT, Flags::STALE, Flags::SKIP_MONITOR, Flags::MOVABLE_KEYS, Flags::MAY_REPLICATE]);
const RUN_READ: Flags = flags(&[RUN, Flags::READONLY]);
const MANAGE: Flags = Flags::NOSCRIPT;
const KEYS: Keys = Keys::Counted { number: 2, access: Access::ReadWrite };
const KEYS_READ: Keys = Keys::Counted { number: 2, access: Access::Read };
const SCRIPT_TIME: &str = "Depends on the script";

pub const ROWS: &[Row] = &[
    Row::new("eval", -3, RUN, KEYS, eval).doc(Group::Scripting, "2.6.0", SCRIPT_TIME, "Runs a Lua script."),
    Row::new("evalsha", -3, RUN, KEYS, evalsha).doc(
        Group::Scripting,
        "2.6.0",
        SCRIPT_TIME,
        "Runs a Lua script that the server has, by its SHA-1.",
    ),
    Row::new("eval_ro", -3, RUN_READ, KEYS_READ, eval_ro).doc(
        Group::Scripting,
        "7.0.0",
        SCRIPT_TIME,
        "Runs a Lua script that only reads.",
    ),
    Row::new("evalsha_ro", -3, RUN_READ, KEYS_READ, evalsha_ro).doc(
        Group::Scripting,
        "7.0.0",
        SCRIPT_TIME,
        "Runs a Lua script that only reads, by its SHA-1.",
    ),
    Row::new("script", -2, Flags::NONE, Keys::None, container)
        .doc(
            Group::Scripting,
            "2.6.0",
            "Depends on the subcommand",
            "Manages the scripts that the server has.",
        )
        .with_subcommands(SUBCOMMANDS),
];

const SUBCOMMANDS: &[Row] = &[
    Row::new("load", 3, MANAGE, Keys::None, load).doc(
        Group::Scripting,
        "2.6.0",
        "O(N) of the script's length",
        "Compiles and keeps a script.",
    ),
    Row::new("exists", -3, MANAGE, Keys::None, exists).doc(
        Group::Scripting,
        "2.6.0",
        "O(N) of the scripts asked for",
        "Says which scripts the server has.",
    ),
    Row::new("flush", -2, MANAGE, Keys::None, flush).doc(
        Group::Scripting,
        "2.6.0",
        "O(N) of the scripts",
        "Forgets all scripts.",
    ),
    Row::new("kill", 2, flags(&[MANAGE, Flags::ALLOW_BUSY]), Keys::None, kill).doc(
        Group::Scripting,
        "2.6.0",
        "O(1)",
        "Ends the running script.",
    ),
    Row::new("help", 2, Flags::NONE, Keys::None, help).doc(
        Group::Scripting,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
    ),
];

const NO_SCRIPT: CommandError = CommandError::of("NOSCRIPT No matching script. Please use EVAL.");
const NOT_IN_MEMORY: CommandError = CommandError::of(
    "ERR Script attempted to access a key that it did not declare and that is not in memory",
);

fn container(_ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    Err(CommandError::Syntax)
}

fn split<'a, 'b>(args: &'b [Arg<'a>]) -> Result<(&'b [Arg<'a>], &'b [Arg<'a>]), CommandError> {
    let count = args::int(args[2])?;
    let count =
        usize::try_from(count).map_err(|_| CommandError::of("ERR Number of keys can't be negative"))?;
    args[3..]
        .split_at_checked(count)
        .ok_or(CommandError::of("ERR Number of keys can't be greater than number of args"))
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> CommandError {
        CommandError::Text(failure.0.into())
    }
}

/// Runs a script in the selected database, which it may leave for another while it runs.
fn run(
    ctx: &mut Ctx<'_>,
    sha: &str,
    text: &[u8],
    keys: &[Arg<'_>],
    values: &[Arg<'_>],
    read_only: bool,
) -> Done {
    let mut scripts = std::mem::take(&mut ctx.server.scripts);
    let db_before = ctx.client.db;
    let script = Invocation { sha, text, keys, values, clock: ctx.server.world.clock.clone() };
    let Ctx { dbs, server, client, reply, .. } = ctx;
    let mut call = |args: &[&[u8]], reply: &mut Reply| {
        let mut inner = Ctx { dbs, server, client, reply, is_nested: true, is_resumed: false };
        call(&mut inner, args, read_only).unwrap_or_else(|error| {
            inner.reply.error(error.text());
            false
        })
    };
    let outcome = scripts.run(&script, &mut call, reply);
    ctx.client.db = db_before;
    ctx.server.scripts = scripts;
    Ok(outcome?)
}

/// Runs a command of a script. Returns whether it is a command that changes data.
fn call(ctx: &mut Ctx<'_>, args: &[Arg<'_>], read_only: bool) -> Result<bool, CommandError> {
    let found = table()
        .find_with_subcommand(args)
        .ok_or(CommandError::of("ERR Unknown Redis command called from script"))?;
    if !found.row.accepts(args.len()) {
        return Err(CommandError::of("ERR Wrong number of args calling Redis command from script"));
    }
    if found.row.flags.contains(Flags::NOSCRIPT) {
        return Err(CommandError::of("ERR This Redis command is not allowed from script"));
    }
    if ctx.server.tier.is_some() {
        if let Some(error) = stored_keys::refusal(found, args, true) {
            return Err(error);
        }
        let named = stored_keys::of_command(ctx.client, found, args);
        if let Some(tier) = &mut ctx.server.tier {
            tier.note_nested(ctx.dbs, &named).map_err(|_| NOT_IN_MEMORY)?;
        }
    }
    if ctx.server.is_out_of_memory && found.row.flags.contains(Flags::DENYOOM) {
        return Err(CommandError::of("OOM command not allowed when used memory > 'maxmemory'."));
    }
    let writes = found.row.flags.contains(Flags::WRITE);
    if writes && read_only {
        return Err(CommandError::of("ERR Write commands are not allowed from read-only scripts."));
    }
    ctx.call(found, args);
    Ok(writes)
}

fn run_text(ctx: &mut Ctx<'_>, args: &[Arg<'_>], read_only: bool) -> Done {
    let (keys, values) = split(args)?;
    let sha = ctx.server.scripts.load(args[1])?;
    let read_only = read_only || forbids_writes(args[1])?;
    run(ctx, &sha, args[1], keys, values, read_only)
}

fn run_known(ctx: &mut Ctx<'_>, args: &[Arg<'_>], read_only: bool) -> Done {
    let (keys, values) = split(args)?;
    let sha = args::text(args[1]).to_ascii_lowercase();
    let text = ctx.server.scripts.get(&sha).ok_or(NO_SCRIPT)?;
    let read_only = read_only || forbids_writes(&text)?;
    run(ctx, &sha, &text, keys, values, read_only)
}

/// Whether the first line of a script, `#!lua flags=…`, has the flag `no-writes`.
fn forbids_writes(text: &[u8]) -> Result<bool, CommandError> {
    const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
    let Some(first) = text.strip_prefix(b"#!") else { return Ok(false) };
    let first = args::text(first.split(|byte| *byte == b'\n').next().unwrap_or(first)).into_owned();
    let mut words = first.split_ascii_whitespace();
    let engine = words.next().unwrap_or("");
    if engine != "lua" {
        return Err(CommandError::err(format_args!("Unexpected engine in script shebang: {engine}")));
    }
    let mut forbids = false;
    for word in words {
        let list = word
            .strip_prefix("flags=")
            .ok_or_else(|| CommandError::err(format_args!("Unknown lua shebang option: {word}")))?;
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(CommandError::err(format_args!("Unexpected flag in script shebang: {flag}")));
            }
            forbids |= flag == "no-writes";
        }
    }
    Ok(forbids)
}

fn eval(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run_text(ctx, args, false)
}

fn eval_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run_text(ctx, args, true)
}

fn evalsha(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run_known(ctx, args, false)
}

fn evalsha_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run_known(ctx, args, true)
}

fn load(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let sha = ctx.server.scripts.load(args[2])?;
    ctx.reply.bulk(sha.as_bytes());
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    ctx.reply.array(args.len() - 2);
    for sha in &args[2..] {
        let known = ctx.server.scripts.contains(&args::text(sha).to_ascii_lowercase());
        ctx.reply.int(i64::from(known));
    }
    Ok(())
}

fn flush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    match &args[2..] {
        [] => {}
        [how] if args::is(how, "SYNC") || args::is(how, "ASYNC") => {}
        _ => return Err(CommandError::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    ctx.server.scripts.clear();
    ctx.reply.ok();
    Ok(())
}

/// Scripts run within one turn, so none is running when a command arrives.
fn kill(_ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    Err(CommandError::of("NOTBUSY No scripts in execution right now."))
}

fn help(ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    super::streams::reply_help(
        ctx,
        "SCRIPT",
        &[
            "EXISTS <sha1> [<sha1> ...]",
            "    Say which of the scripts are in the cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Empty the cache.",
            "KILL",
            "    End the running script.",
            "LOAD <script>",
            "    Put a script into the cache.",
        ],
    );
    Ok(())
}
