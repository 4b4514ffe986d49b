//! The library `cjson` of scripts.
//!
//! A table whose keys are all positive integers is an array, any other an object; an empty table is an object. `null` is a light userdata, so
//! that it can stand in a table. Numbers are written with 14 digits.

use crate::value::decimal::format_g;
use mlua::{Lua, Table, Value};

/// Tables within tables.
const DEPTH_MAX: usize = 1000;
/// An array with more places than this many times its elements is refused if it is longer than [`SPARSE_SAFE`].
const SPARSE_RATIO: usize = 2;
const SPARSE_SAFE: usize = 10;
const NUMBER_DIGITS: usize = 14;

/// Why a value cannot be written or a text cannot be read.
type Fault = String;

pub fn encode(value: &Value) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    write(&mut out, value, 0)?;
    Ok(out)
}

fn write(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), Fault> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(data) if data.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Integer(number) => write_number(out, *number as f64)?,
        Value::Number(number) => write_number(out, *number)?,
        Value::String(text) => write_string(out, &text.as_bytes()),
        Value::Table(table) => write_table(out, table, depth + 1)?,
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn write_number(out: &mut Vec<u8>, number: f64) -> Result<(), Fault> {
    if !number.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    out.extend_from_slice(format_g(number, NUMBER_DIGITS).as_bytes());
    Ok(())
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..=31 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The length of the array that a table is; `None` if it is an object.
fn array_length(table: &Table) -> Result<Option<usize>, Fault> {
    let (mut count, mut last) = (0usize, 0usize);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|error| error.to_string())?;
        let place = match key {
            Value::Integer(number) if number > 0 => number as usize,
            Value::Number(number) if number >= 1.0 && number.trunc() == number => number as usize,
            _ => return Ok(None),
        };
        (count, last) = (count + 1, last.max(place));
    }
    if last > SPARSE_SAFE && last > count * SPARSE_RATIO {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok((count > 0).then_some(last))
}

fn write_table(out: &mut Vec<u8>, table: &Table, depth: usize) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        return Err(format!("Cannot serialise, excessive nesting ({depth})"));
    }
    if let Some(length) = array_length(table)? {
        out.push(b'[');
        for place in 1..=length {
            if place > 1 {
                out.push(b',');
            }
            let element: Value = table.raw_get(place).map_err(|error| error.to_string())?;
            write(out, &element, depth)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match key {
            Value::String(text) => write_string(out, &text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                write(out, &key, depth)?;
                out.push(b'"');
            }
            _ => {
                let kind = key.type_name();
                return Err(format!("Cannot serialise {kind}: table key must be a number or string"));
            }
        }
        out.push(b':');
        write(out, &value, depth)?;
    }
    out.push(b'}');
    Ok(())
}

pub fn decode(lua: &Lua, text: &[u8]) -> Result<Value, Fault> {
    let mut reader = Reader { lua, text, at: 0 };
    let value = reader.value(0)?;
    match reader.next() {
        b'\0' if reader.at >= text.len() => Ok(value),
        _ => Err(reader.fault("the end")),
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The first byte of the next token; 0 at the end.
    fn next(&mut self) -> u8 {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn fault(&self, expected: &str) -> Fault {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = match rest.first() {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            Some(b'"') => "T_STRING",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(b't') if rest.starts_with(b"true") => "T_BOOLEAN",
            Some(b'f') if rest.starts_with(b"false") => "T_BOOLEAN",
            Some(b'n') if rest.starts_with(b"null") => "T_NULL",
            Some(_) => "invalid token",
        };
        format!("Expected {expected} but found {found} at character {}", self.at + 1)
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, Fault> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.fault("value"))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        match self.next() {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true", Value::Boolean(true)),
            b'f' => self.word(b"false", Value::Boolean(false)),
            b'n' => self.word(b"null", Value::NULL),
            _ => Err(self.fault("value")),
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at + 1
            ));
        }
        Ok(())
    }

    fn table(&self) -> Result<Table, Fault> {
        self.lua.create_table().map_err(|error| error.to_string())
    }

    fn array(&mut self, depth: usize) -> Result<Value, Fault> {
        self.check_depth(depth)?;
        self.at += 1;
        let table = self.table()?;
        if self.next() == b']' {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        for place in 1.. {
            let element = self.value(depth)?;
            table.raw_set(place, element).map_err(|error| error.to_string())?;
            match self.next() {
                b',' => self.at += 1,
                b']' => break,
                _ => return Err(self.fault("comma or array end")),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.check_depth(depth)?;
        self.at += 1;
        let table = self.table()?;
        if self.next() == b'}' {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        loop {
            if self.next() != b'"' {
                return Err(self.fault("object key string"));
            }
            let key = self.string()?;
            if self.next() != b':' {
                return Err(self.fault("colon"));
            }
            self.at += 1;
            let value = self.value(depth)?;
            table.raw_set(key, value).map_err(|error| error.to_string())?;
            match self.next() {
                b',' => self.at += 1,
                b'}' => break,
                _ => return Err(self.fault("comma or object end")),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let number = std::str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse::<f64>().ok());
        let Some(number) = number else {
            return Err(format!("Expected value but found invalid number at character {}", self.at + 1));
        };
        self.at += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let broken =
            |what: &str, at: usize| format!("Expected value but found {what} at character {}", at + 1);
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err(broken("unexpected end of string", self.at));
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    let escape = self.text.get(self.at).copied().unwrap_or(0);
                    self.at += 1;
                    match escape {
                        b'"' | b'\\' | b'/' => out.push(escape),
                        b'b' => out.push(8),
                        b'f' => out.push(12),
                        b'n' => out.push(10),
                        b'r' => out.push(13),
                        b't' => out.push(9),
                        b'u' => {
                            let letter = self
                                .escaped()
                                .ok_or_else(|| broken("invalid unicode escape code", self.at - 2))?;
                            out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        _ => return Err(broken("invalid escape code", self.at - 2)),
                    }
                }
                0..=31 => return Err(broken("invalid token", start)),
                _ => out.push(byte),
            }
        }
        self.lua.create_string(&out).map(Value::String).map_err(|error| error.to_string())
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    /// The character behind `\u`, which two escapes describe beyond the first plane.
    fn escaped(&mut self) -> Option<char> {
        let high = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        if self.text.get(self.at..self.at + 2)? != b"\\u" {
            return None;
        }
        self.at += 2;
        let low = self.four_digits().filter(|low| (0xdc00..0xe000).contains(low))?;
        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }
}
