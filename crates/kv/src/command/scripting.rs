//! EVAL and SCRIPT.

use super::table::{Access, CommandMatch, Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done, args, stored_keys};
use crate::client::Client;
use crate::client::acl::Denied;
use crate::keyspace::Databases;
use crate::resp::Reply;
use crate::script::{Failure, Host, Invocation, Verdict};
use crate::server::{Server, running};

const RUN: Flags =
    flags(&[Flags::NOSCRIPT, Flags::STALE, Flags::SKIP_MONITOR, Flags::MOVABLE_KEYS, Flags::MAY_REPLICATE]);
const RUN_READ: Flags =
    flags(&[Flags::NOSCRIPT, Flags::STALE, Flags::SKIP_MONITOR, Flags::MOVABLE_KEYS, Flags::READONLY]);
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

const NO_SCRIPT_RUNS: CommandError = CommandError::of("NOTBUSY No scripts in execution right now.");
const NO_SCRIPT: CommandError = CommandError::of("NOSCRIPT No matching script. Please use EVAL.");
/// As Redis words it.
const NO_OOM_FLAG: CommandError = CommandError::of(
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
);
const NOT_IN_MEMORY: CommandError = CommandError::of(
    "ERR Script attempted to access a key that it did not declare and that is not in memory",
);

fn container(_ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    Err(CommandError::Syntax)
}

/// The keys and the other arguments of a script.
type KeysAndValues<'a, 'b> = (&'b [Arg<'a>], &'b [Arg<'a>]);

/// `not_a_number`: the error for a count of keys that is not a number.
pub fn split_keys<'a, 'b>(
    args: &'b [Arg<'a>],
    not_a_number: CommandError,
) -> Result<KeysAndValues<'a, 'b>, CommandError> {
    let count = args::int(args[2]).map_err(|_| not_a_number)?;
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

/// What is run.
pub enum Running<'a> {
    /// A script: its SHA-1 and its text.
    Script(&'a str, &'a [u8]),
    /// A function of a library, by its name.
    Function(&'a str),
}

/// Runs a script or a function in the selected database, which it may leave for another while it runs.
pub fn run_lua(
    ctx: &mut Ctx<'_>,
    args: &[Arg<'_>],
    running: Running<'_>,
    keys: &[Arg<'_>],
    values: &[Arg<'_>],
    flags: ScriptFlags,
) -> Done {
    if ctx.server.is_out_of_memory && flags.is_flagged && !flags.allows_oom && !flags.read_only {
        return Err(NO_OOM_FLAG);
    }
    feed_monitors(ctx, args);
    let mut scripts = std::mem::take(&mut ctx.server.scripts);
    let mut functions = std::mem::take(&mut ctx.server.functions);
    let (db_before, denied_before) =
        (ctx.client.db, std::mem::replace(&mut ctx.client.denies_blocking, true));
    if ctx.client.tracking.is_some() {
        ctx.client.script_keys = keys.iter().map(|key| key.to_vec()).collect();
    }
    let (is_function, name) = match running {
        Running::Script(sha, _) => (false, sha),
        Running::Function(name) => (true, name),
    };
    let clock = ctx.server.world.clock.clone();
    let busy_nanos = ctx.server.config.limits.busy_millis.saturating_mul(1_000_000);
    ctx.server.running = Some(running::Running {
        is_function,
        name: name.to_owned(),
        command: args.iter().map(|arg| arg.to_vec()).collect(),
        started: clock.now(),
        has_written: false,
        is_killed: false,
    });
    let Ctx { dbs, server, client, reply, .. } = ctx;
    let mut host = ScriptHost { dbs, server, client, flags };
    let outcome = match running {
        Running::Script(sha, text) => {
            scripts.run(&Invocation { sha, text, keys, values, clock, busy_nanos }, &mut host, reply)
        }
        Running::Function(name) => {
            let script = Invocation { sha: name, text: b"", keys, values, clock, busy_nanos };
            functions.run(&script, &mut host, reply)
        }
    };
    let ended = ctx.server.running.take();
    if ended.is_some_and(|running| running.has_written) && ctx.server.is_stopping {
        ctx.server.stops_hard = true;
    }
    ctx.client.db = db_before;
    ctx.client.denies_blocking = denied_before;
    ctx.client.script_keys.clear();
    ctx.server.scripts = scripts;
    ctx.server.functions = functions;
    Ok(outcome?)
}

/// The server as a script sees it.
struct ScriptHost<'a> {
    dbs: &'a mut Databases,
    server: &'a mut Server,
    client: &'a mut Client,
    flags: ScriptFlags,
}

impl Host for ScriptHost<'_> {
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply) {
        let ScriptHost { dbs, server, client, .. } = self;
        let mut inner =
            Ctx { dbs, server, client, reply, is_nested: true, from_script: true, is_resumed: false };
        let writes = call(&mut inner, args, self.flags).unwrap_or_else(|error| {
            inner.reply.error(error.text());
            inner.reply.codes.clear();
            inner.server.count_error(error.text());
            false
        });
        if let Some(running) = &mut self.server.running {
            running.has_written |= writes;
        }
    }

    fn while_busy(&mut self) -> Verdict {
        for (index, handle) in self.server.loops.running() {
            // Where it is held, its loop waits for sockets: it gives it back as soon as something arrives.
            if let Some(mut sockets) = handle.sockets.try_lock() {
                sockets.serve_busy(self.dbs, self.server, index);
            }
        }
        let is_killed = self.server.running.as_ref().is_some_and(|running| running.is_killed);
        if is_killed || self.server.is_stopping { Verdict::Killed } else { Verdict::GoesOn }
    }
}

/// Scripts are shown to monitors before the commands that they run.
fn feed_monitors(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) {
    if !ctx.server.monitors.is_empty()
        && let Some(found) = table().find(args[0])
    {
        ctx.feed_monitors(found, args);
    }
}

/// Runs a command of a script. Returns whether it is a command that changes data.
fn call(ctx: &mut Ctx<'_>, args: &[Arg<'_>], flags: ScriptFlags) -> Result<bool, CommandError> {
    let found = table()
        .find_with_subcommand(args)
        .ok_or(CommandError::of("ERR Unknown Redis command called from script"))?;
    if !found.row.accepts(args.len()) {
        return Err(CommandError::of("ERR Wrong number of args calling Redis command from script"));
    }
    if found.row.flags.contains(Flags::NOSCRIPT) {
        return Err(CommandError::of("ERR This Redis command is not allowed from script"));
    }
    if let Some(tier) = &ctx.server.tier {
        if let Some(error) = stored_keys::refusal(&*tier.storage, found, args, true) {
            return Err(error);
        }
        let named = stored_keys::of_command(ctx.client, found, args);
        if let Some(tier) = &mut ctx.server.tier {
            tier.note_nested(ctx.dbs, &named).map_err(|_| NOT_IN_MEMORY)?;
        }
    }
    // What has written goes on to its end.
    let goes_on = flags.allows_oom || ctx.server.running.as_ref().is_some_and(|running| running.has_written);
    if ctx.server.is_out_of_memory && !goes_on && found.row.flags.contains(Flags::DENYOOM) {
        return Err(CommandError::of("OOM command not allowed when used memory > 'maxmemory'."));
    }
    let writes = found.row.flags.contains(Flags::WRITE);
    if flags.read_only && (writes || found.row.flags.contains(Flags::MAY_REPLICATE)) {
        return Err(CommandError::of("ERR Write commands are not allowed from read-only scripts."));
    }
    if let Err(denied) = super::rights::check(ctx.server, ctx.client, found, args) {
        super::acl::refuse(ctx, denied, args, &found.full_name(), "lua");
        let text = match denied {
            Denied::Command => "can't run this command or subcommand",
            Denied::Key(_) => "can't access at least one of the keys mentioned in the command arguments",
            Denied::Channel(_) => "can't publish to the channel mentioned in the command",
        };
        return Err(CommandError::err(format_args!("The user executing the script {text}")));
    }
    ctx.call(found, args);
    Ok(writes)
}

/// Whether a command is the call of a script or function that says of itself that it does not write.
pub fn only_reads(server: &crate::server::Server, found: CommandMatch, args: &[Arg<'_>]) -> bool {
    let name = || args::text(args[1]).into_owned();
    match found.row.name {
        "eval" => flags_of(args[1]).is_ok_and(|flags| flags.read_only),
        "evalsha" => {
            let text = server.scripts.get(&name().to_ascii_lowercase());
            text.is_some_and(|text| flags_of(&text).is_ok_and(|flags| flags.read_only))
        }
        "fcall" => {
            server.functions.get(&name()).is_some_and(|function| function.flags.contains(&"no-writes"))
        }
        _ => false,
    }
}

fn run_text(ctx: &mut Ctx<'_>, args: &[Arg<'_>], read_only: bool) -> Done {
    let (keys, values) = split_keys(args, CommandError::NotInteger)?;
    let sha = ctx.server.scripts.load(args[1])?;
    let mut flags = flags_of(args[1])?;
    flags.read_only |= read_only;
    run_lua(ctx, args, Running::Script(&sha, args[1]), keys, values, flags)
}

fn run_known(ctx: &mut Ctx<'_>, args: &[Arg<'_>], read_only: bool) -> Done {
    let (keys, values) = split_keys(args, CommandError::NotInteger)?;
    let sha = args::text(args[1]).to_ascii_lowercase();
    let text = ctx.server.scripts.get(&sha).ok_or(NO_SCRIPT)?;
    let mut flags = flags_of(&text)?;
    flags.read_only |= read_only;
    run_lua(ctx, args, Running::Script(&sha, &text), keys, values, flags)
}

/// What a script or function says of itself, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptFlags {
    /// It has flags, perhaps none of them set; a script without the line for them is run as before there were any.
    pub is_flagged: bool,
    /// `no-writes`
    pub read_only: bool,
    /// `allow-oom`
    pub allows_oom: bool,
}

/// The flags in the first line of a script, `#!lua flags=…`.
fn flags_of(text: &[u8]) -> Result<ScriptFlags, CommandError> {
    const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
    let Some(first) = text.strip_prefix(b"#!") else { return Ok(ScriptFlags::default()) };
    let first = args::text(first.split(|byte| *byte == b'\n').next().unwrap_or(first)).into_owned();
    let mut words = first.split_ascii_whitespace();
    let engine = words.next().unwrap_or("");
    if engine != "lua" {
        return Err(CommandError::err(format_args!("Unexpected engine in script shebang: {engine}")));
    }
    let mut flags = ScriptFlags { is_flagged: true, ..ScriptFlags::default() };
    for word in words {
        let list = word
            .strip_prefix("flags=")
            .ok_or_else(|| CommandError::err(format_args!("Unknown lua shebang option: {word}")))?;
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(CommandError::err(format_args!("Unexpected flag in script shebang: {flag}")));
            }
            flags.read_only |= flag == "no-writes";
            flags.allows_oom |= flag == "allow-oom";
        }
    }
    Ok(flags)
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

fn kill(ctx: &mut Ctx<'_>, _args: &[Arg<'_>]) -> Done {
    kill_running(ctx, false)
}

/// Ends the script or function that runs.
pub fn kill_running(ctx: &mut Ctx<'_>, function: bool) -> Done {
    let running = ctx.server.running.as_mut().ok_or(NO_SCRIPT_RUNS)?;
    running.kill(function).map_err(CommandError::of)?;
    ctx.reply.ok();
    Ok(())
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
