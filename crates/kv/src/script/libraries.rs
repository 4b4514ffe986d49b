//! The libraries of scripts beside Lua's own: `cjson`, `cmsgpack`, `struct` and `bit`.
//!
//! A function here returns true and its results, or false and a text that the prelude raises as an error at the place of the call.

use super::json::{NotANumber, Settings};
use super::{json, msgpack, structs};
use mlua::{IntoLua, Lua, MultiValue, Table, Value, Variadic};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a function hands to the prelude.
type Outcome = mlua::Result<MultiValue>;

fn outcome(lua: &Lua, result: Result<Vec<Value>, String>) -> Outcome {
    let (ok, values) = match result {
        Ok(values) => (true, values),
        Err(text) => (false, vec![text.into_lua(lua)?]),
    };
    Ok(std::iter::once(Value::Boolean(ok)).chain(values).collect())
}

fn expect_one<'a>(args: &'a [Value], name: &str) -> Result<&'a Value, String> {
    match args {
        [value] => Ok(value),
        _ => Err(format!("bad argument #1 to '{name}' (expected 1 argument)")),
    }
}

/// The bytes of a string or number argument.
fn bytes(value: &Value, name: &str) -> Result<Vec<u8>, String> {
    super::convert::argument(value)
        .ok_or_else(|| format!("bad argument #1 to '{name}' (string expected, got {})", value.type_name()))
}

pub fn cjson(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let settings: Shared = Arc::default();
    library.set("null", Value::NULL)?;
    let shared = settings.clone();
    library.set(
        "encode",
        lua.create_function(move |lua, args: Variadic<Value>| {
            let settings = *shared.lock();
            let text = expect_one(&args, "encode").and_then(|value| json::encode(&settings, value));
            match text {
                Ok(text) => {
                    let text = Value::String(lua.create_string(&text)?);
                    outcome(lua, Ok(vec![text]))
                }
                Err(fault) => outcome(lua, Err(fault)),
            }
        })?,
    )?;
    let shared = settings.clone();
    library.set(
        "decode",
        lua.create_function(move |lua, args: Variadic<Value>| {
            let settings = *shared.lock();
            let value = expect_one(&args, "decode")
                .and_then(|value| bytes(value, "decode"))
                .and_then(|text| json::decode(&settings, lua, &text));
            outcome(lua, value.map(|value| vec![value]))
        })?,
    )?;
    setting(lua, &library, &settings, "encode_sparse_array", |settings, args| {
        settings.sparse_converts = flag(args, 0)?.unwrap_or(settings.sparse_converts);
        settings.sparse_ratio = whole(args, 1, 0, i32::MAX)?.unwrap_or(settings.sparse_ratio);
        settings.sparse_safe = whole(args, 2, 0, i32::MAX)?.unwrap_or(settings.sparse_safe);
        let numbers =
            [settings.sparse_ratio, settings.sparse_safe].map(|number| Value::Number(number as f64));
        Ok([Value::Boolean(settings.sparse_converts)].into_iter().chain(numbers).collect())
    })?;
    setting(lua, &library, &settings, "encode_max_depth", |settings, args| {
        settings.encode_depth_max = whole(args, 0, 1, i32::MAX)?.unwrap_or(settings.encode_depth_max);
        Ok(vec![Value::Number(settings.encode_depth_max as f64)])
    })?;
    setting(lua, &library, &settings, "decode_max_depth", |settings, args| {
        settings.decode_depth_max = whole(args, 0, 1, i32::MAX)?.unwrap_or(settings.decode_depth_max);
        Ok(vec![Value::Number(settings.decode_depth_max as f64)])
    })?;
    setting(lua, &library, &settings, "encode_number_precision", |settings, args| {
        settings.digits = whole(args, 0, 1, 14)?.unwrap_or(settings.digits);
        Ok(vec![Value::Number(settings.digits as f64)])
    })?;
    setting(lua, &library, &settings, "encode_keep_buffer", |settings, args| {
        settings.keeps_buffer = flag(args, 0)?.unwrap_or(settings.keeps_buffer);
        Ok(vec![Value::Boolean(settings.keeps_buffer)])
    })?;
    setting(lua, &library, &settings, "encode_invalid_numbers", |settings, args| {
        settings.encode_invalid = match args.first() {
            Some(Value::String(word)) if *word.as_bytes() == *b"null" => NotANumber::Null,
            _ => match flag(args, 0)? {
                None => settings.encode_invalid,
                Some(false) => NotANumber::Refused,
                Some(true) => NotANumber::Written,
            },
        };
        Ok(vec![match settings.encode_invalid {
            NotANumber::Refused => Value::Boolean(false),
            NotANumber::Written => Value::Boolean(true),
            NotANumber::Null => Value::NULL,
        }])
    })?;
    setting(lua, &library, &settings, "decode_invalid_numbers", |settings, args| {
        settings.decode_invalid = flag(args, 0)?.unwrap_or(settings.decode_invalid);
        Ok(vec![Value::Boolean(settings.decode_invalid)])
    })?;
    Ok(library)
}

/// The settings of `cjson`, which all scripts of an interpreter share.
type Shared = Arc<Mutex<Settings>>;

/// Adds a function that changes a setting if it has arguments, and returns what it is then.
fn setting(
    lua: &Lua,
    library: &Table,
    settings: &Shared,
    name: &'static str,
    change: fn(&mut Settings, &[Value]) -> Result<Vec<Value>, Refusal>,
) -> mlua::Result<()> {
    let settings = settings.clone();
    let function = lua.create_function(move |lua, args: Variadic<Value>| {
        let changed = change(&mut settings.lock(), &args);
        outcome(lua, changed.map_err(|(place, why)| format!("bad argument #{place} to '{name}' ({why})")))
    })?;
    library.set(name, function)
}

/// Why an argument is refused, with its place.
type Refusal = (usize, String);

/// A boolean argument, if it is there.
fn flag(args: &[Value], at: usize) -> Result<Option<bool>, Refusal> {
    match args.get(at) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(value)) => Ok(Some(*value)),
        Some(_) => Err((at + 1, "expected a boolean".to_owned())),
    }
}

/// A whole number from `min` to `max`, if it is there.
fn whole(args: &[Value], at: usize, min: i32, max: i32) -> Result<Option<usize>, Refusal> {
    let number = match args.get(at) {
        None | Some(Value::Nil) => return Ok(None),
        Some(Value::Integer(number)) => *number as f64,
        Some(Value::Number(number)) => *number,
        Some(_) => f64::NAN,
    };
    if (f64::from(min)..=f64::from(max)).contains(&number) {
        return Ok(Some(number as usize));
    }
    Err((at + 1, format!("expected integer between {min} and {max}")))
}

pub fn structs(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set(
        "pack",
        lua.create_function(|lua, args: Variadic<Value>| match structs::pack(&args) {
            Ok(packed) => {
                let packed = Value::String(lua.create_string(&packed)?);
                outcome(lua, Ok(vec![packed]))
            }
            Err(fault) => outcome(lua, Err(fault)),
        })?,
    )?;
    library.set(
        "unpack",
        lua.create_function(|lua, args: Variadic<Value>| outcome(lua, structs::unpack(lua, &args)))?,
    )?;
    library.set(
        "size",
        lua.create_function(|lua, args: Variadic<Value>| {
            outcome(lua, structs::size(&args).map(|size| vec![Value::Number(size as f64)]))
        })?,
    )?;
    Ok(library)
}

pub fn cmsgpack(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.set(
        "pack",
        lua.create_function(|lua, args: Variadic<Value>| {
            if args.is_empty() {
                let fault = "bad argument #0 to 'pack' (MessagePack pack needs input.)";
                return outcome(lua, Err(fault.to_owned()));
            }
            let mut packed = Vec::new();
            for value in args.iter() {
                msgpack::pack(&mut packed, value)?;
            }
            let packed = Value::String(lua.create_string(&packed)?);
            outcome(lua, Ok(vec![packed]))
        })?,
    )?;
    library.set(
        "unpack",
        lua.create_function(|lua, args: Variadic<Value>| {
            let values = args
                .first()
                .ok_or_else(|| "bad argument #1 to 'unpack' (string expected, got no value)".to_owned())
                .and_then(|value| bytes(value, "unpack"))
                .and_then(|packed| msgpack::unpack(lua, &packed));
            outcome(lua, values)
        })?,
    )?;
    Ok(library)
}

/// A number modulo 2^32, rounded to the nearest, as a signed integer.
fn to_bits(value: &Value) -> Option<i32> {
    let number = match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        Value::String(text) => std::str::from_utf8(&text.as_bytes()).ok()?.trim().parse().ok()?,
        _ => return None,
    };
    Some(number.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32)
}

/// Adds a function of numbers, of which it takes at least `min`.
fn add(
    lua: &Lua,
    library: &Table,
    name: &'static str,
    min: usize,
    compute: fn(&[i32]) -> i32,
) -> mlua::Result<()> {
    let function = lua.create_function(move |lua, args: Variadic<Value>| {
        let mut numbers = Vec::with_capacity(args.len().max(min));
        for at in 0..args.len().max(min) {
            match args.get(at).and_then(to_bits) {
                Some(number) => numbers.push(number),
                None => {
                    let given = args.get(at).map_or("no value", Value::type_name);
                    let fault =
                        format!("bad argument #{} to '{name}' (number expected, got {given})", at + 1);
                    return outcome(lua, Err(fault));
                }
            }
        }
        outcome(lua, Ok(vec![Value::Number(f64::from(compute(&numbers)))]))
    })?;
    library.set(name, function)
}

pub fn bit(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "tobit", 1, |args| args[0])?;
    add(lua, &library, "bnot", 1, |args| !args[0])?;
    add(lua, &library, "bswap", 1, |args| args[0].swap_bytes())?;
    add(lua, &library, "band", 1, |args| args.iter().fold(-1, |all, arg| all & arg))?;
    add(lua, &library, "bor", 1, |args| args.iter().fold(0, |all, arg| all | arg))?;
    add(lua, &library, "bxor", 1, |args| args.iter().fold(0, |all, arg| all ^ arg))?;
    add(lua, &library, "lshift", 2, |args| args[0].wrapping_shl(args[1] as u32))?;
    add(lua, &library, "rshift", 2, |args| (args[0] as u32).wrapping_shr(args[1] as u32) as i32)?;
    add(lua, &library, "arshift", 2, |args| args[0].wrapping_shr(args[1] as u32))?;
    add(lua, &library, "rol", 2, |args| args[0].rotate_left(args[1] as u32 & 31))?;
    add(lua, &library, "ror", 2, |args| args[0].rotate_right(args[1] as u32 & 31))?;
    library.set(
        "tohex",
        lua.create_function(|lua, args: Variadic<Value>| {
            let Some(number) = args.first().and_then(to_bits) else {
                let fault = "bad argument #1 to 'tohex' (number expected)";
                return outcome(lua, Err(fault.to_owned()));
            };
            let digits = args.get(1).and_then(to_bits).unwrap_or(8);
            let kept = digits.unsigned_abs().min(8) as usize;
            let text = format!("{number:08x}");
            let text = if digits < 0 { text.to_uppercase() } else { text };
            let text = Value::String(lua.create_string(&text[8 - kept..])?);
            outcome(lua, Ok(vec![text]))
        })?,
    )?;
    Ok(library)
}
