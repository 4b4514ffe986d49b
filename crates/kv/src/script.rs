//! Lua scripts: one interpreter, its sandbox, and the cache of scripts by their SHA-1.
//!
//! A script runs within the turn of the command that called it, under the lock of the core, so it is atomic. Commands that it calls go to
//! the caller's [`Call`], which runs them as a client's and writes a reply that is turned into Lua values.
//!
//! The interpreter holds no state of a script between two runs but the functions compiled and the settings of `cjson`: `script/prelude.lua` builds
//! globals that cannot be changed. It is bounded in memory. While a script runs for long, other clients are answered ([`Host::while_busy`]).
//!
//! | file | holds |
//! | --- | --- |
//! | `prelude.lua` | the globals of scripts |
//! | `functions` | libraries of functions |
//! | `convert` | replies to Lua values and back |
//! | `libraries` | `cjson`, `cmsgpack`, `struct`, `bit` |
//! | `json`, `msgpack`, `structs` | values to these formats and back |

mod convert;
pub mod functions;
mod json;
mod libraries;
mod msgpack;
mod structs;

use crate::resp::Reply;
use mlua::{ChunkMode, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState};
use sha1::{Digest, Sha1};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory that scripts may use.
const MEMORY_MAX: usize = 1 << 30;
/// Instructions between two looks at the clock.
const INSTRUCTIONS_BETWEEN_LOOKS: u32 = 100_000;
const KILLED: &str = "Script killed by user with SCRIPT KILL.";
/// The name that errors give a script.
const CHUNK_NAME: &str = "@user_script";

/// What a script needs of the server.
pub trait Host {
    /// Runs a command of a script and writes its reply.
    fn call(&mut self, args: &[&[u8]], reply: &mut Reply);
    /// Called from time to time when the script has run for longer than [`Invocation::busy_nanos`]: whether it goes on.
    fn while_busy(&mut self) -> Verdict;
}

/// What becomes of a script that runs for long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    GoesOn,
    Killed,
}

/// Why a script failed, with the error's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// A script with the arguments it is called with.
pub struct Invocation<'a> {
    pub sha: &'a str,
    pub text: &'a [u8],
    pub keys: &'a [&'a [u8]],
    pub values: &'a [&'a [u8]],
    pub clock: Arc<dyn terrace_io::clock::Clock>,
    /// How long it may run before [`Host::while_busy`] is called.
    pub busy_nanos: u64,
}

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
    library_environment: Table,
    load_library: Function,
    run_function: Function,
}

/// What is run: a whole script, or a function of a library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Script,
    Function,
}

pub fn sha1_hex(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure(format!("ERR {error}"))
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
    pub fn load(&mut self, text: &[u8]) -> Result<String, Failure> {
        let sha = sha1_hex(text);
        if !self.cache.contains_key(&sha) {
            self.compiled(&sha, text)?;
            self.cache.insert(sha.clone(), text.into());
        }
        Ok(sha)
    }

    fn interpreter(&mut self) -> Result<&mut Interpreter, Failure> {
        if self.interpreter.is_none() {
            self.interpreter = Some(Interpreter::new().map_err(internal)?);
        }
        self.interpreter.as_mut().ok_or_else(|| internal("no interpreter"))
    }

    fn compiled(&mut self, sha: &str, text: &[u8]) -> Result<Function, Failure> {
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
                internal(format_args!("Error compiling script (new function): {text}"))
            })?;
        interpreter.compiled.insert(sha.to_owned(), function.clone());
        Ok(function)
    }

    /// Runs a script and writes its reply.
    pub fn run(
        &mut self,
        script: &Invocation<'_>,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let function = self.compiled(script.sha, script.text)?;
        self.interpreter()?.run(script, Entry::Script, &function, host, reply)
    }
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
        let library: Function = made.get("library")?;
        library.call::<()>(("cjson", libraries::cjson(&lua)?))?;
        library.call::<()>(("cmsgpack", libraries::cmsgpack(&lua)?))?;
        library.call::<()>(("bit", libraries::bit(&lua)?))?;
        library.call::<()>(("struct", libraries::structs(&lua)?))?;
        Ok(Interpreter {
            environment: made.get("environment")?,
            set_arguments: made.get("arguments")?,
            run: made.get("run")?,
            library_environment: made.get("library_environment")?,
            load_library: made.get("load_library")?,
            run_function: made.get("run_function")?,
            compiled: HashMap::new(),
            host,
            lua,
        })
    }

    fn run(
        &self,
        script: &Invocation<'_>,
        entry: Entry,
        function: &Function,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let lua = &self.lua;
        let table_of = |args: &[&[u8]]| {
            lua.create_sequence_from(
                args.iter().map(|arg| lua.create_string(arg)).collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        let resp3 = Cell::new(false);
        self.look_from_time_to_time(script)?;
        let outcome = {
            let server = RefCell::new(host);
            lua.scope(|scope| {
                self.host.raw_set(
                    "while_busy",
                    scope.create_function(|_, ()| {
                        // Within a command of the script: it is looked at again after it.
                        let verdict = server.try_borrow_mut().map(|mut server| server.while_busy());
                        Ok(!verdict.is_ok_and(|verdict| verdict == Verdict::Killed))
                    })?,
                )?;
                let call = scope.create_function(|lua, args: Variadic<Value>| {
                    let mut server = server
                        .try_borrow_mut()
                        .map_err(|_| mlua::Error::runtime("a command within a command"))?;
                    let mut reply = Reply::new(resp3.get());
                    match arguments(&args) {
                        Ok(args) => {
                            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                            server.call(&args, &mut reply);
                        }
                        Err(text) => reply.error(text),
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
                let (keys, values) = (table_of(script.keys)?, table_of(script.values)?);
                if entry == Entry::Function {
                    return self.run_function.call::<(bool, Value)>((function, keys, values));
                }
                self.set_arguments.call::<()>((keys, values))?;
                self.run.call::<(bool, Value)>(function)
            })
        };
        lua.remove_global_hook();
        let (ok, value) = outcome.map_err(internal)?;
        if ok {
            convert::write(reply, &value, resp3.get() && reply.resp3).map_err(internal)?;
            return Ok(());
        }
        Err(Failure(failure(&value, script.sha, script.text)))
    }
}

impl Interpreter {
    /// Has the server look after other clients when the script has run for long. A script that is killed meets the error in each line from then on, so
    /// that it cannot catch it.
    fn look_from_time_to_time(&self, script: &Invocation<'_>) -> Result<(), Failure> {
        let (clock, busy_nanos, host) = (script.clock.clone(), script.busy_nanos, self.host.clone());
        let started = clock.now();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_BETWEEN_LOOKS);
        let hook = move |lua: &Lua, _: &mlua::Debug<'_>| {
            if busy_nanos == 0 || clock.now().saturating_sub(started) <= busy_nanos {
                return Ok(VmState::Continue);
            }
            if host.raw_get::<Function>("while_busy")?.call::<bool>(())? {
                return Ok(VmState::Continue);
            }
            lua.set_global_hook(HookTriggers::EVERY_LINE, |_, _| Err(mlua::Error::runtime(KILLED)))?;
            Err(mlua::Error::runtime(KILLED))
        };
        self.lua.set_global_hook(triggers, hook).map_err(internal)
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
                Value::Error(error) => match *error {
                    mlua::Error::RuntimeError(text) => text,
                    other => other.to_string(),
                },
                other => other.to_string()?,
            };
            table.raw_set("err", format!("ERR {text}"))?;
            table
        }
    };
    let mut level = 0;
    while let Some(place) = lua.inspect_stack(level, |frame| {
        let source = frame.source().source.map(|source| source.into_owned());
        let known =
            [CHUNK_NAME, functions::CHUNK_NAME].into_iter().find(|known| source.as_deref() == Some(*known));
        known.and_then(|known| frame.current_line().map(|line| (known, line)))
    }) {
        if let Some((source, line)) = place {
            table.raw_set("source", source)?;
            table.raw_set("line", line)?;
            break;
        }
        level += 1;
    }
    Ok(table)
}

/// The arguments of a command that a script calls, or the error that it gets.
fn arguments(args: &[Value]) -> Result<Vec<Vec<u8>>, &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis.call() call");
    }
    args.iter()
        .map(convert::argument)
        .collect::<Option<_>>()
        .ok_or("ERR Lua redis lib command arguments must be strings or integers")
}
