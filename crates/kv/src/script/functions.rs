//! Libraries of functions: FUNCTION LOAD compiles one and runs it once, so that it registers its functions; FCALL runs one of them.
//!
//! Functions have an interpreter of their own. While a library is loaded it sees `redis.register_function` and no commands; when a function
//! runs, the reverse.

use super::{Entry, Failure, Host, Interpreter, Invocation, internal};
use crate::rdb::SliceSource;
use crate::rdb::length::{read_string, write_string};
use crate::resp::Reply;
use crate::resp::parse::split_words;
use mlua::{ChunkMode, Function, HookTriggers, Lua, Table, Value, Variadic, VmState};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_io::clock::Clock;

/// The name that errors give a library.
pub(super) const CHUNK_NAME: &str = "@user_function";
/// How long the loading of a library may take.
const LOAD_MS_MAX: u64 = 500;
/// The flags of functions, as they are listed.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

#[derive(Clone)]
pub struct LuaFunction {
    pub description: Option<Vec<u8>>,
    pub flags: Vec<&'static str>,
    callback: Function,
}

#[derive(Clone)]
pub struct Library {
    pub code: Arc<[u8]>,
    pub functions: BTreeMap<String, LuaFunction>,
}

#[derive(Default)]
pub struct Functions {
    interpreter: Option<Interpreter>,
    libraries: BTreeMap<String, Library>,
}

fn failed(text: impl std::fmt::Display) -> Failure {
    Failure(format!("ERR {text}"))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// The name of a library and its code after the first line, `#!lua name=…`, which stays as an empty line.
fn metadata(text: &[u8]) -> Result<(String, &[u8]), Failure> {
    let first = text.strip_prefix(b"#!").ok_or_else(|| failed("Missing library metadata"))?;
    let end = memchr::memchr(b'\n', first).ok_or_else(|| failed("Invalid library metadata"))?;
    let words = split_words(&first[..end]).ok_or_else(|| failed("Invalid library metadata"))?;
    let mut words: Vec<String> =
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // `#! name=x` names no engine.
    let has_engine = first.first().is_some_and(|byte| !byte.is_ascii_whitespace());
    let engine = if has_engine && !words.is_empty() { words.remove(0) } else { String::new() };
    let mut name = None;
    for word in &words {
        match word.split_at_checked("name=".len()) {
            Some((key, value)) if key.eq_ignore_ascii_case("name=") => {
                if name.replace(value.to_owned()).is_some() {
                    return Err(failed("Invalid metadata value, name argument was given multiple times"));
                }
            }
            _ => return Err(failed(format_args!("Invalid metadata value given: {word}"))),
        }
    }
    let name = name.ok_or_else(|| failed("Library name was not given"))?;
    if !is_name(&name) {
        return Err(failed(BAD_NAME));
    }
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(failed(format_args!("Engine '{engine}' not found")));
    }
    Ok((name, &first[end..]))
}

/// A library in serialised form begins with it: the code of an RDB file.
const LIBRARY: u8 = 245;

/// Why [`parse_dump`] fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadDump {
    /// Something else than a library.
    NotALibrary,
    Malformed,
}

/// The code of each library that [`Functions::dump`] serialised.
pub fn parse_dump(bytes: &[u8]) -> Result<Vec<Vec<u8>>, BadDump> {
    let mut source = SliceSource::new(bytes);
    let mut codes = Vec::new();
    while let Some((kind, rest)) = source.rest().split_first() {
        if *kind != LIBRARY {
            return Err(BadDump::NotALibrary);
        }
        source = SliceSource::new(rest);
        codes.push(read_string(&mut source).map_err(|_| BadDump::Malformed)?);
    }
    Ok(codes)
}

impl Functions {
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = (&String, &Library)> {
        self.libraries.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Functions::default();
    }

    pub fn remove(&mut self, name: &str) -> bool {
        self.libraries.remove(name).is_some()
    }

    pub fn get(&self, name: &str) -> Option<&LuaFunction> {
        let all = self.libraries.values().flat_map(|library| &library.functions);
        all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, function)| function)
    }

    /// Loads a library and returns its name; `replaces`: in place of one of the same name.
    pub fn load(&mut self, text: &[u8], replaces: bool, clock: Arc<dyn Clock>) -> Result<String, Failure> {
        let (name, code) = metadata(text)?;
        if !replaces && self.libraries.contains_key(&name) {
            return Err(failed(format_args!("Library '{name}' already exists")));
        }
        if self.interpreter.is_none() {
            self.interpreter = Some(Interpreter::new().map_err(internal)?);
        }
        let interpreter = self.interpreter.as_ref().ok_or_else(|| internal("no interpreter"))?;
        let functions = interpreter.load_library(code, clock)?;
        if functions.is_empty() {
            return Err(failed("No functions registered"));
        }
        for (other, library) in self.libraries.iter().filter(|(other, _)| **other != name) {
            if let Some(function) =
                functions.keys().find(|function| library.functions.contains_key(*function))
            {
                let _ = other;
                return Err(failed(format_args!("Function {function} already exists")));
            }
        }
        self.libraries.insert(name.clone(), Library { code: text.into(), functions });
        Ok(name)
    }

    /// All libraries in serialised form, without the footer of `FUNCTION DUMP`.
    pub fn dump(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for library in self.libraries.values() {
            out.push(LIBRARY);
            write_string(&mut out, &library.code);
        }
        out
    }

    /// Loads several libraries, all or none. `flushes`: they replace every library of the server.
    pub fn restore(
        &mut self,
        codes: &[Vec<u8>],
        flushes: bool,
        replaces: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), Failure> {
        let before = self.libraries.clone();
        if flushes {
            self.libraries.clear();
        }
        for code in codes {
            if let Err(failure) = self.load(code, replaces, clock.clone()) {
                self.libraries = before;
                return Err(Failure(
                    failure.0.replace("Library '", "Library ").replace("' already", " already"),
                ));
            }
        }
        Ok(())
    }

    /// Runs a function and writes its reply. `script.sha` is its name.
    pub fn run(
        &mut self,
        script: &Invocation<'_>,
        host: &mut dyn Host,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let function = self.get(script.sha).map(|function| function.callback.clone());
        match (function, &self.interpreter) {
            (Some(function), Some(interpreter)) => {
                interpreter.run(script, Entry::Function, &function, host, reply)
            }
            _ => Err(failed("Function not found")),
        }
    }
}

impl Interpreter {
    fn load_library(
        &self,
        code: &[u8],
        clock: Arc<dyn Clock>,
    ) -> Result<BTreeMap<String, LuaFunction>, Failure> {
        let chunk = self.lua.load(code).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
        let chunk =
            chunk.set_environment(self.library_environment.clone()).into_function().map_err(|error| {
                let text = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                failed(format_args!("Error compiling function: {text}"))
            })?;
        let started = clock.now();
        let hook = move |_: &Lua, _: &mlua::Debug<'_>| {
            if clock.now().saturating_sub(started) > LOAD_MS_MAX * 1_000_000 {
                return Err(mlua::Error::runtime("FUNCTION LOAD timeout"));
            }
            Ok(VmState::Continue)
        };
        self.lua
            .set_global_hook(
                HookTriggers::new().every_nth_instruction(super::INSTRUCTIONS_BETWEEN_LOOKS),
                hook,
            )
            .map_err(internal)?;
        let registered = RefCell::new(BTreeMap::new());
        let outcome = self.lua.scope(|scope| {
            let register = scope.create_function(|lua, args: Variadic<Value>| {
                let outcome = read_registration(&args).and_then(|(name, function)| {
                    match registered.borrow_mut().entry(name) {
                        std::collections::btree_map::Entry::Occupied(_) => {
                            Err("Function already exists in the library".to_owned())
                        }
                        std::collections::btree_map::Entry::Vacant(vacant) => {
                            vacant.insert(function);
                            Ok(())
                        }
                    }
                });
                match outcome {
                    Ok(()) => Ok(Value::Nil),
                    Err(text) => Ok(Value::Table(error_table(lua, &text)?)),
                }
            })?;
            self.host.raw_set("register", register)?;
            self.load_library.call::<(bool, Value)>(chunk)
        });
        self.lua.remove_global_hook();
        let (ok, value) = outcome.map_err(internal)?;
        if !ok {
            let text = match &value {
                Value::Table(table) => {
                    table.raw_get::<mlua::String>("err").map(|text| text.to_string_lossy())
                }
                _ => Ok("ERR unknown error".to_owned()),
            };
            return Err(failed(format_args!("Error registering functions: {}", text.map_err(internal)?)));
        }
        Ok(registered.into_inner())
    }
}

fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", format!("ERR {text}"))?;
    Ok(table)
}

/// What `redis.register_function` is called with: a name and a function, or a table of named arguments.
fn read_registration(args: &[Value]) -> Result<(String, LuaFunction), String> {
    let (mut name, mut description, mut flags, mut callback) = (None, None, Vec::new(), None);
    match args {
        [Value::Table(table)] => {
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair.map_err(|error| error.to_string())?;
                let Value::String(key) = key else {
                    return Err("named argument key given to redis.register_function is not a string".into());
                };
                match (key.to_string_lossy().to_ascii_lowercase().as_str(), value) {
                    ("function_name", Value::String(text)) => name = Some(text.to_string_lossy()),
                    ("function_name", _) => {
                        return Err(
                            "function_name argument given to redis.register_function must be a string".into(),
                        );
                    }
                    ("description", Value::String(text)) => description = Some(text.as_bytes().to_vec()),
                    ("description", _) => {
                        return Err(
                            "description argument given to redis.register_function must be a string".into()
                        );
                    }
                    ("callback", Value::Function(function)) => callback = Some(function),
                    ("callback", _) => {
                        return Err(
                            "callback argument given to redis.register_function must be a function".into()
                        );
                    }
                    ("flags", Value::Table(list)) => flags = read_flags(&list).ok_or("unknown flag given")?,
                    ("flags", _) => {
                        return Err(
                            "flags argument to redis.register_function must be a table representing function flags"
                                .into(),
                        );
                    }
                    _ => return Err("unknown argument given to redis.register_function".into()),
                }
            }
            if name.is_none() {
                return Err("redis.register_function must get a function name argument".into());
            }
        }
        [_] => {
            return Err("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).".into());
        }
        [Value::String(text), Value::Function(function)] => {
            (name, callback) = (Some(text.to_string_lossy()), Some(function.clone()));
        }
        [Value::String(_), _] => {
            return Err("second argument to redis.register_function must be a function".into());
        }
        [_, _] => return Err("first argument to redis.register_function must be a string".into()),
        _ => return Err("wrong number of arguments to redis.register_function".into()),
    }
    let (Some(name), Some(callback)) = (name, callback) else {
        return Err("redis.register_function must get a callback argument".into());
    };
    if !is_name(&name) {
        return Err(BAD_NAME.into());
    }
    Ok((name, LuaFunction { description, flags, callback }))
}

fn read_flags(list: &Table) -> Option<Vec<&'static str>> {
    let given: Vec<Value> = list.sequence_values().collect::<mlua::Result<_>>().ok()?;
    given
        .iter()
        .map(|flag| {
            let Value::String(text) = flag else { return None };
            let text = text.to_string_lossy();
            FLAGS.into_iter().find(|known| known.eq_ignore_ascii_case(&text))
        })
        .collect()
}
