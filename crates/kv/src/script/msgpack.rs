//! The library `cmsgpack` of scripts: MessagePack.
//!
//! A table whose keys are 1 to its length is an array, also if it is empty, any other a map. A number without fraction is an integer of the
//! fewest bytes, any other a float of 4 bytes if that is exact and of 8 otherwise.

use mlua::{Lua, Table, Value};

/// Tables within tables: those that are deeper are written as nil, and not read.
const WRITE_DEPTH_MAX: usize = 16;
const READ_DEPTH_MAX: usize = 1000;
const MISSING: &str = "Missing bytes in input.";
const MALFORMED: &str = "Bad data format in input.";

pub fn pack(out: &mut Vec<u8>, value: &Value) -> mlua::Result<()> {
    write(out, value, 0)
}

fn write(out: &mut Vec<u8>, value: &Value, depth: usize) -> mlua::Result<()> {
    match value {
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => write_int(out, *number),
        Value::Number(number) if number.trunc() == *number && number.abs() < 9.2e18 => {
            write_int(out, *number as i64);
        }
        Value::Number(number) if f64::from(*number as f32) == *number => {
            out.push(0xca);
            out.extend_from_slice(&(*number as f32).to_be_bytes());
        }
        Value::Number(number) => {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                len @ 0..32 => out.push(0xa0 | len as u8),
                len @ 32..0x100 => out.extend_from_slice(&[0xd9, len as u8]),
                len => write_length(out, len, 0xda, 0xdb),
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < WRITE_DEPTH_MAX => write_table(out, table, depth + 1)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn write_length(out: &mut Vec<u8>, length: usize, two_bytes: u8, four_bytes: u8) {
    match u16::try_from(length) {
        Ok(length) => {
            out.push(two_bytes);
            out.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            out.push(four_bytes);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

fn write_int(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let (code, size) = match number {
        -32..=0x7f => return out.push(number as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..=-33 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(code);
    out.extend_from_slice(&bytes[8 - size..]);
}

fn write_table(out: &mut Vec<u8>, table: &Table, depth: usize) -> mlua::Result<()> {
    let pairs = table.pairs::<Value, Value>().collect::<mlua::Result<Vec<_>>>()?;
    let is_array = pairs.iter().all(|(key, _)| match key {
        Value::Integer(place) => (1..=pairs.len() as i64).contains(place),
        Value::Number(place) => place.trunc() == *place && *place >= 1.0 && *place <= pairs.len() as f64,
        _ => false,
    });
    if is_array {
        match pairs.len() {
            len @ 0..16 => out.push(0x90 | len as u8),
            len => write_length(out, len, 0xdc, 0xdd),
        }
        for place in 1..=pairs.len() {
            write(out, &table.raw_get::<Value>(place)?, depth)?;
        }
        return Ok(());
    }
    match pairs.len() {
        len @ 0..16 => out.push(0x80 | len as u8),
        len => write_length(out, len, 0xde, 0xdf),
    }
    for (key, value) in &pairs {
        write(out, key, depth)?;
        write(out, value, depth)?;
    }
    Ok(())
}

/// All values of the bytes.
pub fn unpack(lua: &Lua, bytes: &[u8]) -> Result<Vec<Value>, String> {
    let (mut rest, mut values) = (bytes, Vec::new());
    while !rest.is_empty() {
        values.push(read(lua, &mut rest, 0)?);
    }
    Ok(values)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(MISSING)?;
    *bytes = rest;
    Ok(taken)
}

fn unsigned(bytes: &mut &[u8], size: usize) -> Result<u64, String> {
    Ok(take(bytes, size)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn read(lua: &Lua, bytes: &mut &[u8], depth: usize) -> Result<Value, String> {
    let code = take(bytes, 1)?[0];
    let number = |number: f64| Ok(Value::Number(number));
    match code {
        0..=0x7f => number(f64::from(code)),
        0xe0..=0xff => number(f64::from(code as i8)),
        0x80..=0x8f => read_map(lua, bytes, usize::from(code & 15), depth + 1),
        0x90..=0x9f => read_array(lua, bytes, usize::from(code & 15), depth + 1),
        0xa0..=0xbf => read_string(lua, bytes, usize::from(code & 31)),
        0xc0 => Ok(Value::Nil),
        0xc2 => Ok(Value::Boolean(false)),
        0xc3 => Ok(Value::Boolean(true)),
        0xca => number(f64::from(f32::from_bits(unsigned(bytes, 4)? as u32))),
        0xcb => number(f64::from_bits(unsigned(bytes, 8)?)),
        0xcc..=0xcf => number(unsigned(bytes, 1 << (code - 0xcc))? as f64),
        0xd0..=0xd3 => {
            let size = 1 << (code - 0xd0);
            let shift = 64 - 8 * size;
            number(((unsigned(bytes, size)? << shift) as i64 >> shift) as f64)
        }
        0xc4..=0xc6 | 0xd9..=0xdb => {
            let size = if code < 0xd0 { 1 << (code - 0xc4) } else { 1 << (code - 0xd9) };
            let length = unsigned(bytes, size)? as usize;
            read_string(lua, bytes, length)
        }
        0xdc | 0xdd => {
            let length = unsigned(bytes, if code == 0xdc { 2 } else { 4 })? as usize;
            read_array(lua, bytes, length, depth + 1)
        }
        0xde | 0xdf => {
            let length = unsigned(bytes, if code == 0xde { 2 } else { 4 })? as usize;
            read_map(lua, bytes, length, depth + 1)
        }
        _ => Err(MALFORMED.to_owned()),
    }
}

fn text_of(error: mlua::Error) -> String {
    error.to_string()
}

fn read_string(lua: &Lua, bytes: &mut &[u8], length: usize) -> Result<Value, String> {
    lua.create_string(take(bytes, length)?).map(Value::String).map_err(text_of)
}

fn read_array(lua: &Lua, bytes: &mut &[u8], length: usize, depth: usize) -> Result<Value, String> {
    if depth > READ_DEPTH_MAX {
        return Err(MALFORMED.to_owned());
    }
    let table = lua.create_table().map_err(text_of)?;
    for place in 1..=length {
        let element = read(lua, bytes, depth)?;
        table.raw_set(place, element).map_err(text_of)?;
    }
    Ok(Value::Table(table))
}

fn read_map(lua: &Lua, bytes: &mut &[u8], length: usize, depth: usize) -> Result<Value, String> {
    if depth > READ_DEPTH_MAX {
        return Err(MALFORMED.to_owned());
    }
    let table = lua.create_table().map_err(text_of)?;
    for _ in 0..length {
        let key = read(lua, bytes, depth)?;
        if matches!(key, Value::Nil) || matches!(key, Value::Number(number) if number.is_nan()) {
            return Err(MALFORMED.to_owned());
        }
        let value = read(lua, bytes, depth)?;
        table.raw_set(key, value).map_err(text_of)?;
    }
    Ok(Value::Table(table))
}
