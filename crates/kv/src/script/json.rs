//! The library `cjson` of scripts.
//!
//! A table whose keys are all positive integers is an array, any other an object; an empty table is an object. `null` is a light userdata, so
//! that it can stand in a table. Numbers are written with 14 digits.

use crate::value::decimal::format_g;
use mlua::{Lua, Table, Value};

/// What becomes of a number that JSON has no form for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NotANumber {
    Refused,
    Written,
    Null,
}

/// What the library's functions of the same names change.
#[derive(Clone, Copy)]
pub struct Settings {
    /// An array that is too sparse is written as an object.
    pub sparse_converts: bool,
    /// An array with more places than this many times its elements is too sparse if it is longer than `sparse_safe`; 0: none is.
    pub sparse_ratio: usize,
    pub sparse_safe: usize,
    /// Tables within tables.
    pub encode_depth_max: usize,
    pub decode_depth_max: usize,
    pub digits: usize,
    pub encode_invalid: NotANumber,
    /// Whether NaN, infinities and hexadecimal numbers are read.
    pub decode_invalid: bool,
    /// Told when asked for: a buffer is made for each call.
    pub keeps_buffer: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sparse_converts: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            digits: 14,
            encode_invalid: NotANumber::Refused,
            decode_invalid: true,
            keeps_buffer: true,
        }
    }
}

/// Why a value cannot be written or a text cannot be read.
type Fault = String;

pub fn encode(settings: &Settings, value: &Value) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    write(settings, &mut out, value, 0)?;
    Ok(out)
}

fn write(settings: &Settings, out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), Fault> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(data) if data.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Integer(number) => write_number(settings, out, *number as f64)?,
        Value::Number(number) => write_number(settings, out, *number)?,
        Value::String(text) => write_string(out, &text.as_bytes()),
        Value::Table(table) => write_table(settings, out, table, depth + 1)?,
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn write_number(settings: &Settings, out: &mut Vec<u8>, number: f64) -> Result<(), Fault> {
    if !number.is_finite() {
        let text: &[u8] = match settings.encode_invalid {
            NotANumber::Refused => {
                return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
            }
            NotANumber::Null => b"null",
            NotANumber::Written if number.is_nan() => b"nan",
            NotANumber::Written if number > 0.0 => b"inf",
            NotANumber::Written => b"-inf",
        };
        out.extend_from_slice(text);
        return Ok(());
    }
    out.extend_from_slice(format_g(number, settings.digits).as_bytes());
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
fn array_length(settings: &Settings, table: &Table) -> Result<Option<usize>, Fault> {
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
    let is_sparse = settings.sparse_ratio > 0 && last > count.saturating_mul(settings.sparse_ratio);
    if is_sparse && last > settings.sparse_safe {
        if settings.sparse_converts {
            return Ok(None);
        }
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok((count > 0).then_some(last))
}

fn write_table(settings: &Settings, out: &mut Vec<u8>, table: &Table, depth: usize) -> Result<(), Fault> {
    if depth > settings.encode_depth_max {
        return Err(format!("Cannot serialise, excessive nesting ({depth})"));
    }
    if let Some(length) = array_length(settings, table)? {
        out.push(b'[');
        for place in 1..=length {
            if place > 1 {
                out.push(b',');
            }
            let element: Value = table.raw_get(place).map_err(|error| error.to_string())?;
            write(settings, out, &element, depth)?;
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
                write(settings, out, &key, depth)?;
                out.push(b'"');
            }
            _ => {
                let kind = key.type_name();
                return Err(format!("Cannot serialise {kind}: table key must be a number or string"));
            }
        }
        out.push(b':');
        write(settings, out, &value, depth)?;
    }
    out.push(b'}');
    Ok(())
}

pub fn decode(settings: &Settings, lua: &Lua, text: &[u8]) -> Result<Value, Fault> {
    let mut reader = Reader { settings, lua, text, at: 0 };
    let value = reader.value(0)?;
    match reader.next() {
        b'\0' if reader.at >= text.len() => Ok(value),
        _ => Err(reader.fault("the end")),
    }
}

struct Reader<'a> {
    settings: &'a Settings,
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
        let first = self.next();
        if self.is_invalid_number() {
            if !self.settings.decode_invalid {
                return Err(match first {
                    b'i' | b'I' | b'n' | b'N' => self.fault("value"),
                    _ => {
                        format!("Expected value but found invalid number at character {}", self.at + 1)
                    }
                });
            }
            return self.invalid_number();
        }
        match first {
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
        if depth > self.settings.decode_depth_max {
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

    /// Whether a number begins here that JSON does not have: NaN, an infinity, a hexadecimal one, one with a leading zero or a plus sign.
    fn is_invalid_number(&self) -> bool {
        let rest = &self.text[self.at.min(self.text.len())..];
        let digits = rest.strip_prefix(b"-").unwrap_or(rest);
        if rest.first() == Some(&b'+') {
            return true;
        }
        match digits {
            [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
            [a, b, c, ..] => {
                let word = [a, b, c].map(u8::to_ascii_lowercase);
                word == *b"inf" || word == *b"nan"
            }
            _ => false,
        }
    }

    /// As C's `strtod` reads it.
    fn invalid_number(&mut self) -> Result<Value, Fault> {
        let rest = &self.text[self.at..];
        let signs = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
        let sign = if rest.first() == Some(&b'-') { -1.0 } else { 1.0 };
        let body = &rest[signs..];
        let starts = |word: &[u8]| body.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
        let (number, length) = if starts(b"infinity") {
            (f64::INFINITY, 8)
        } else if starts(b"inf") {
            (f64::INFINITY, 3)
        } else if starts(b"nan") {
            (f64::NAN, 3)
        } else if starts(b"0x") {
            let digits = body[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let value =
                |sum: f64, byte: &u8| sum * 16.0 + f64::from(char::from(*byte).to_digit(16).unwrap_or(0));
            (body[2..2 + digits].iter().fold(0.0, value), 2 + digits)
        } else {
            self.at += usize::from(rest.first() == Some(&b'+'));
            return self.number();
        };
        self.at += signs + length;
        Ok(Value::Number(sign * number))
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
