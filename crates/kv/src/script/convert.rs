//! Replies of commands as Lua values, and values that scripts return as replies.

use crate::resp::Reply;
use mlua::{Lua, Table, Value};

/// Tables within tables that a reply may have.
const DEPTH_MAX: usize = 128;

/// An argument of a command: a string, or a number as Lua prints it.
pub fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) if *number == number.trunc() && number.abs() < 1e17 => {
            Some(format!("{number:.0}").into_bytes())
        }
        Value::Number(number) => {
            let mut reply = Reply::new(true);
            reply.double(*number);
            Some(reply.buffer[1..reply.buffer.len() - 2].to_vec())
        }
        _ => None,
    }
}

/// The Lua value of a reply that the server itself wrote.
pub fn to_lua(lua: &Lua, mut bytes: &[u8]) -> mlua::Result<Value> {
    read(lua, &mut bytes)
}

fn malformed() -> mlua::Error {
    mlua::Error::runtime("a malformed reply")
}

fn line<'a>(bytes: &mut &'a [u8]) -> mlua::Result<(u8, &'a [u8])> {
    let end = memchr::memchr(b'\n', bytes).filter(|end| *end >= 2).ok_or_else(malformed)?;
    let line = &bytes[..end - 1];
    *bytes = &bytes[end + 1..];
    Ok((line[0], &line[1..]))
}

fn number(text: &[u8]) -> mlua::Result<i64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed)
}

fn field(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn read(lua: &Lua, bytes: &mut &[u8]) -> mlua::Result<Value> {
    let (kind, text) = line(bytes)?;
    match kind {
        b'+' => field(lua, "ok", lua.create_string(text)?),
        b'-' => field(lua, "err", lua.create_string(text)?),
        b':' => Ok(Value::Number(number(text)? as f64)),
        b'_' => Ok(Value::Nil),
        b'#' => Ok(Value::Boolean(text == b"t")),
        b',' => {
            let value = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<f64>().ok())
                .ok_or_else(malformed)?;
            field(lua, "double", value)
        }
        b'(' => field(lua, "big_number", lua.create_string(text)?),
        b'$' | b'=' => {
            let Ok(length) = usize::try_from(number(text)?) else { return Ok(Value::Boolean(false)) };
            let body = bytes.get(..length).ok_or_else(malformed)?;
            *bytes = bytes.get(length + 2..).ok_or_else(malformed)?;
            if kind == b'$' {
                return Ok(Value::String(lua.create_string(body)?));
            }
            let verbatim = lua.create_table()?;
            verbatim.raw_set("format", lua.create_string(body.get(..3).ok_or_else(malformed)?)?)?;
            verbatim.raw_set("string", lua.create_string(body.get(4..).ok_or_else(malformed)?)?)?;
            field(lua, "verbatim_string", verbatim)
        }
        b'*' | b'>' => {
            let Ok(length) = usize::try_from(number(text)?) else { return Ok(Value::Boolean(false)) };
            let table = lua.create_table()?;
            for at in 1..=length {
                table.raw_set(at, read(lua, bytes)?)?;
            }
            Ok(Value::Table(table))
        }
        b'%' => {
            let map = lua.create_table()?;
            for _ in 0..number(text)? {
                let key = read(lua, bytes)?;
                map.raw_set(key, read(lua, bytes)?)?;
            }
            field(lua, "map", map)
        }
        b'~' => {
            let set = lua.create_table()?;
            for _ in 0..number(text)? {
                set.raw_set(read(lua, bytes)?, true)?;
            }
            field(lua, "set", set)
        }
        _ => Err(malformed()),
    }
}

/// Writes what a script returned. `resp3`: the script chose RESP3, so that booleans stay booleans.
pub fn write(reply: &mut Reply, value: &Value, resp3: bool) -> mlua::Result<()> {
    write_nested(reply, value, resp3, 0)
}

fn write_nested(reply: &mut Reply, value: &Value, resp3: bool, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH_MAX {
        reply.error("ERR reached lua stack limit");
        return Ok(());
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.int(*number),
        Value::Number(number) => reply.int(*number as i64),
        Value::Boolean(value) if resp3 => reply.bool(*value),
        Value::Boolean(true) => reply.int(1),
        Value::Table(table) => write_table(reply, table, resp3, depth)?,
        _ => reply.null(),
    }
    Ok(())
}

fn write_table(reply: &mut Reply, table: &Table, resp3: bool, depth: usize) -> mlua::Result<()> {
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        reply.error_bytes(&text.as_bytes());
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        reply.simple(&text.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(());
    }
    if let Value::Number(value) = table.raw_get::<Value>("double")? {
        reply.double(value);
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("big_number")? {
        reply.big_number(&text.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get::<Value>("verbatim_string")?
        && let (Value::String(text), Value::String(format)) =
            (verbatim.raw_get::<Value>("string")?, verbatim.raw_get::<Value>("format")?)
    {
        reply.verbatim(&format.to_string_lossy(), &text.as_bytes());
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get::<Value>("map")? {
        let pairs = map.pairs::<Value, Value>().collect::<mlua::Result<Vec<_>>>()?;
        reply.map(pairs.len());
        for (key, value) in &pairs {
            write_nested(reply, key, resp3, depth + 1)?;
            write_nested(reply, value, resp3, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get::<Value>("set")? {
        let members = set.pairs::<Value, Value>().collect::<mlua::Result<Vec<_>>>()?;
        reply.set(members.len());
        for (member, _) in &members {
            write_nested(reply, member, resp3, depth + 1)?;
        }
        return Ok(());
    }
    // An array ends at its first nil.
    let mut elements = Vec::new();
    loop {
        match table.raw_get::<Value>(elements.len() + 1)? {
            Value::Nil => break,
            value => elements.push(value),
        }
    }
    reply.array(elements.len());
    for element in &elements {
        write_nested(reply, element, resp3, depth + 1)?;
    }
    Ok(())
}
