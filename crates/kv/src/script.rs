//! Lua scripts: one interpreter, its sandbox, and the cache of scripts by their SHA-1.
//!
//! A script runs within the turn of the command that called it, under the lock of the core, so it is atomic. Commands that it calls go to
//! the caller's [`Call`], which runs them as a client's and writes a reply that is turned into Lua values.
//!
//! The interpreter holds no state of a script between two runs but the functions compiled: `script/prelude.lua` builds globals that cannot be
//! changed. It is bounded in memory, and a script that has not written is ended when it runs for too long.
//!
//! | file | holds |
//! | --- | --- |
//! | `prelude.lua` | the globals of scripts |
//! | `functions` | libraries of functions |
//! | `convert` | replies to Lua values and back |
//! | `libraries` | `cjson`, `cmsgpack`, `bit` |
//! | `json`, `msgpack` | values to these formats and back |

mod convert;
pub mod functions;
mod json;
mod libraries;
mod msgpack;

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

/// Runs a command of a script and writes its reply. Returns whether it is a command that changes data.
pub type Call<'a> = dyn FnMut(&[&[u8]], &mut Reply) -> bool + 'a;

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
        call: &mut Call<'_>,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let function = self.compiled(script.sha, script.text)?;
        self.interpreter()?.run(script, Entry::Script, &function, call, reply)
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
        call: &mut Call<'_>,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let lua = &self.lua;
        let table_of = |args: &[&[u8]]| {
            lua.create_sequence_from(
                args.iter().map(|arg| lua.create_string(arg)).collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        let (resp3, wrote) = (Cell::new(false), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let clock = script.clock.clone();
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
        let outcome = {
            let run_command = RefCell::new(call);
            lua.scope(|scope| {
                let call = scope.create_function(|lua, args: Variadic<Value>| {
                    let mut run_command = run_command
                        .try_borrow_mut()
                        .map_err(|_| mlua::Error::runtime("a command within a command"))?;
                    let mut reply = Reply::new(resp3.get());
                    match arguments(&args) {
                        Ok(args) => {
                            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                            if run_command(&args, &mut reply) {
                                wrote.store(true, std::sync::atomic::Ordering::Relaxed);
                            }
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
