//! Lua scripts: one interpreter, its sandbox, and the cache of scripts by their SHA-1.
//!
//! A script runs within the turn of the command that called it, under the lock of the core, so it is atomic. Commands that it calls go the
//! way of a client's commands, with a reply of their own that is turned into Lua values.
//!
//! The interpreter holds no state of a script between two runs but the functions compiled: `script/prelude.lua` builds globals that cannot be
//! changed. It is bounded in memory, and a script that has not written is ended when it runs for too long.
//!
//! | file | holds |
//! | --- | --- |
//! | `prelude.lua` | the globals of scripts |
//! | `convert` | replies to Lua values and back |

mod convert;

use crate::command::table::table;
use crate::command::{Arg, CommandError, Ctx, Flags};
use crate::resp::Reply;
use mlua::{ChunkMode, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState};
use sha1::{Digest, Sha1};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory that scripts may use.
const MEMORY_MAX: usize = 1 << 30;
/// How long a script that has not written may run: Redis's default of `busy-reply-threshold`.
const RUN_MS_MAX: u64 = 5000;
/// Instructions between two looks at the clock.
const INSTRUCTIONS_BETWEEN_LOOKS: u32 = 100_000;
/// The name that errors give a script.
const CHUNK_NAME: &str = "@user_script";

#[derive(Default)]
pub struct Scripts {
    interpreter: Option<Interpreter>,
    /// Scripts by the hexadecimal SHA-1 of their text.
    cache: HashMap<String, Arc<[u8]>>,
}

struct Interpreter {
    lua: Lua,
    host: Table,
    environment: Table,
    set_arguments: Function,
    run: Function,
    compiled: HashMap<String, Function>,
}

pub fn sha1_hex(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn internal(error: mlua::Error) -> CommandError {
    CommandError::err(error)
}

impl Scripts {
    pub fn contains(&self, sha: &str) -> bool {
        self.cache.contains_key(sha)
    }

    pub fn get(&self, sha: &str) -> Option<Arc<[u8]>> {
        self.cache.get(sha).cloned()
    }

    pub fn len(&self) -> usize {
        self.cache.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Scripts::default();
    }

    /// Compiles a script and keeps it. Returns its SHA-1.
    pub fn load(&mut self, text: &[u8]) -> Result<String, CommandError> {
        let sha = sha1_hex(text);
        if !self.cache.contains_key(&sha) {
            self.compiled(&sha, text)?;
            self.cache.insert(sha.clone(), text.into());
        }
        Ok(sha)
    }

    fn interpreter(&mut self) -> Result<&mut Interpreter, CommandError> {
        if self.interpreter.is_none() {
            self.interpreter = Some(Interpreter::new().map_err(internal)?);
        }
        self.interpreter.as_mut().ok_or(CommandError::of("ERR no interpreter"))
    }

    fn compiled(&mut self, sha: &str, text: &[u8]) -> Result<Function, CommandError> {
        let interpreter = self.interpreter()?;
        if let Some(function) = interpreter.compiled.get(sha) {
            return Ok(function.clone());
        }
        // A first line `#!lua …` names options of the script.
        let code = if text.starts_with(b"#!") {
            &text[memchr::memchr(b'\n', text).unwrap_or(text.len())..]
        } else {
            text
        };
        let chunk = interpreter.lua.load(code).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
        let function =
            chunk.set_environment(interpreter.environment.clone()).into_function().map_err(|error| {
                let text = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                CommandError::err(format_args!("Error compiling script (new function): {text}"))
            })?;
        interpreter.compiled.insert(sha.to_owned(), function.clone());
        Ok(function)
    }
}

/// Runs a script and writes its reply.
pub fn run(
    ctx: &mut Ctx<'_>,
    sha: &str,
    text: &[u8],
    keys: &[Arg<'_>],
    values: &[Arg<'_>],
    read_only: bool,
) -> Result<(), CommandError> {
    let mut scripts = std::mem::take(&mut ctx.server.scripts);
    let outcome = scripts.compiled(sha, text).and_then(|function| match &scripts.interpreter {
        Some(interpreter) => interpreter.run(ctx, (sha, text), &function, keys, values, read_only),
        None => Err(CommandError::of("ERR no interpreter")),
    });
    ctx.server.scripts = scripts;
    outcome
}

impl Interpreter {
    fn new() -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let host = lua.create_table()?;
        host.set("sha1hex", lua.create_function(|_, text: mlua::String| Ok(sha1_hex(&text.as_bytes())))?)?;
        host.set("explain", lua.create_function(explain)?)?;
        host.set("clock", lua.create_function(|_, ()| Ok(0.0))?)?;
        let prelude =
            lua.load(include_str!("script/prelude.lua")).set_name("=prelude").set_mode(ChunkMode::Text);
        let made: Table = prelude.call(host.clone())?;
        Ok(Interpreter {
            environment: made.get("environment")?,
            set_arguments: made.get("arguments")?,
            run: made.get("run")?,
            compiled: HashMap::new(),
            host,
            lua,
        })
    }

    fn run(
        &self,
        ctx: &mut Ctx<'_>,
        (sha, text): (&str, &[u8]),
        function: &Function,
        keys: &[Arg<'_>],
        values: &[Arg<'_>],
        read_only: bool,
    ) -> Result<(), CommandError> {
        let lua = &self.lua;
        let table_of = |args: &[Arg<'_>]| {
            lua.create_sequence_from(
                args.iter().map(|arg| lua.create_string(arg)).collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        let client_resp3 = ctx.reply.resp3;
        let (resp3, wrote) = (Cell::new(false), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let clock = ctx.server.world.clock.clone();
        let started = clock.now();
        let has_written = wrote.clone();
        lua.set_global_hook(
            HookTriggers::new().every_nth_instruction(INSTRUCTIONS_BETWEEN_LOOKS),
            move |_, _| {
                let over = clock.now().saturating_sub(started) > RUN_MS_MAX * 1_000_000;
                if over && !has_written.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(mlua::Error::runtime(
                        "the script ran for too long and had not written, so it was ended",
                    ));
                }
                Ok(VmState::Continue)
            },
        )
        .map_err(internal)?;
        let db_before = ctx.client.db;
        let outcome = {
            let ctx = RefCell::new(&mut *ctx);
            lua.scope(|scope| {
                let call = scope.create_function(|lua, args: Variadic<Value>| {
                    let mut ctx = ctx
                        .try_borrow_mut()
                        .map_err(|_| mlua::Error::runtime("a command within a command"))?;
                    let mut reply = Reply::new(resp3.get());
                    match call(&mut ctx, &mut reply, &args, read_only) {
                        Ok(true) => wrote.store(true, std::sync::atomic::Ordering::Relaxed),
                        Ok(false) => {}
                        Err(error) => reply.error(error.text()),
                    }
                    let ok = reply.buffer.first() != Some(&b'-');
                    Ok((ok, convert::to_lua(lua, &reply.buffer)?))
                })?;
                self.host.raw_set("call", call)?;
                self.host.raw_set(
                    "setresp",
                    scope.create_function(|_, version: i64| {
                        resp3.set(version == 3);
                        Ok(())
                    })?,
                )?;
                self.set_arguments.call::<()>((table_of(keys)?, table_of(values)?))?;
                self.run.call::<(bool, Value)>(function)
            })
        };
        lua.remove_global_hook();
        ctx.client.db = db_before;
        let (ok, value) = outcome.map_err(internal)?;
        if ok {
            convert::write(ctx.reply, &value, resp3.get() && client_resp3).map_err(internal)?;
            return Ok(());
        }
        Err(CommandError::Text(failure(&value, sha, text).into()))
    }
}

/// The text of an error that ended a script: with the place where it happened.
fn failure(value: &Value, sha: &str, script: &[u8]) -> String {
    let is_one_line = !script.contains(&b'\n');
    let Value::Table(table) = value else { return "ERR unknown error".to_owned() };
    let text = table
        .raw_get::<mlua::String>("err")
        .map_or_else(|_| "ERR unknown error".to_owned(), |text| text.to_string_lossy());
    match (table.raw_get::<String>("source"), table.raw_get::<i64>("line")) {
        (Ok(source), Ok(line)) => format!("{text} script: {sha}, on {source}:{line}."),
        // `return redis.call(…)` leaves no frame of the script that would know its line.
        _ if is_one_line => format!("{text} script: {sha}, on {CHUNK_NAME}:1."),
        _ => format!("{text} script: {sha}"),
    }
}

/// Turns what a script raised into a table with its text and place.
fn explain(lua: &Lua, raised: Value) -> mlua::Result<Table> {
    let table = match raised {
        Value::Table(table) => table,
        other => {
            let table = lua.create_table()?;
            let text = match other {
                Value::String(text) => text.to_string_lossy(),
                Value::Error(error) => error.to_string(),
                other => other.to_string()?,
            };
            table.raw_set("err", format!("ERR {text}"))?;
            table
        }
    };
    let mut level = 0;
    while let Some(place) = lua.inspect_stack(level, |frame| {
        let source = frame.source().source.map(|source| source.into_owned());
        (source.as_deref() == Some(CHUNK_NAME)).then(|| frame.current_line()).flatten()
    }) {
        if let Some(line) = place {
            table.raw_set("source", CHUNK_NAME)?;
            table.raw_set("line", line)?;
            break;
        }
        level += 1;
    }
    Ok(table)
}

/// Runs a command of a script. Returns whether it writes.
fn call(ctx: &mut Ctx<'_>, reply: &mut Reply, args: &[Value], read_only: bool) -> Result<bool, CommandError> {
    const BAD_ARGUMENT: CommandError =
        CommandError::of("ERR Lua redis lib command arguments must be strings or integers");
    if args.is_empty() {
        return Err(CommandError::of("ERR Please specify at least one argument for this redis.call() call"));
    }
    let args = args.iter().map(convert::argument).collect::<Option<Vec<Vec<u8>>>>().ok_or(BAD_ARGUMENT)?;
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let found = table()
        .find_with_subcommand(&args)
        .ok_or(CommandError::of("ERR Unknown Redis command called from script"))?;
    if !found.row.accepts(args.len()) {
        return Err(CommandError::of("ERR Wrong number of args calling Redis command from script"));
    }
    if found.row.flags.contains(Flags::NOSCRIPT) {
        return Err(CommandError::of("ERR This Redis command is not allowed from script"));
    }
    let writes = found.row.flags.contains(Flags::WRITE);
    if writes && read_only {
        return Err(CommandError::of("ERR Write commands are not allowed from read-only scripts."));
    }
    let mut inner = Ctx {
        dbs: ctx.dbs,
        server: ctx.server,
        client: ctx.client,
        reply,
        is_nested: true,
        is_resumed: false,
    };
    inner.call(found, &args);
    Ok(writes)
}
