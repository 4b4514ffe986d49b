//! The library `struct` of scripts: numbers and strings to bytes and back, by a format.
//!
//! | letter | holds |
//! | --- | --- |
//! | `<`, `>`, `=` | the byte order of what follows: little, big, the machine's |
//! | `!n` | what follows is aligned to at most n bytes |
//! | `b`, `h`, `l`, `i[n]` | a signed integer of 1, 2, 8, n (4) bytes; a capital letter: unsigned; `T` as `L` |
//! | `f`, `d` | a float |
//! | `s`, `c[n]` | a string up to its zero; n bytes. `c0` is a whole string, or as long as the number before it says |
//! | `x` | a byte that is skipped |

use mlua::{Lua, Value};

const INTEGER_BYTES_MAX: usize = 32;
const ALIGNMENT: usize = 8;

/// What a letter of a format stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Item {
    Integer { signed: bool },
    Float,
    Double,
    Padding,
    Bytes,
    Text,
    Control,
}

struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    alignment: usize,
}

impl Format<'_> {
    fn new(text: &[u8]) -> Format<'_> {
        Format { rest: text, is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// A number in the format, or `default` if there is none.
    fn number(&mut self, default: usize) -> Result<usize, String> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(default);
        }
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
        number.and_then(|number| usize::try_from(number).ok()).ok_or("integral size overflow".to_owned())
    }

    /// The next item with its size; `None` at the end.
    fn next(&mut self) -> Result<Option<(Item, usize)>, String> {
        let Some((&letter, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let integer = Item::Integer { signed: letter.is_ascii_lowercase() };
        Ok(Some(match letter {
            b'b' | b'B' => (integer, 1),
            b'h' | b'H' => (integer, 2),
            b'l' | b'L' | b'T' => (integer, 8),
            b'i' | b'I' => {
                let bytes = self.number(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    return Err(format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"));
                }
                (integer, bytes)
            }
            b'f' => (Item::Float, 4),
            b'd' => (Item::Double, 8),
            b'x' => (Item::Padding, 1),
            b'c' => (Item::Bytes, self.number(1)?),
            b's' => (Item::Text, 0),
            other => {
                self.control(other)?;
                (Item::Control, 0)
            }
        }))
    }

    fn control(&mut self, letter: u8) -> Result<(), String> {
        match letter {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'=' => self.is_big = cfg!(target_endian = "big"),
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(format!("alignment {alignment} is not a power of 2"));
                }
                self.alignment = alignment;
            }
            other => return Err(format!("invalid format option '{}'", char::from(other))),
        }
        Ok(())
    }

    /// The bytes that are left out before an item at `at`.
    fn padding(&self, at: usize, item: Item, size: usize) -> usize {
        if size == 0 || item == Item::Bytes {
            return 0;
        }
        let unit = size.min(self.alignment);
        match unit.is_power_of_two() {
            true => (unit - (at & (unit - 1))) & (unit - 1),
            false => 0,
        }
    }
}

fn bad(place: usize, name: &str, why: &str) -> String {
    format!("bad argument #{place} to '{name}' ({why})")
}

fn number(args: &[Value], at: usize) -> Result<f64, String> {
    let number = match args.get(at) {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => {
            std::str::from_utf8(&text.as_bytes()).ok().and_then(|text| text.trim().parse().ok())
        }
        _ => None,
    };
    let given = args.get(at).map_or("no value", Value::type_name);
    number.ok_or_else(|| bad(at + 1, "pack", &format!("number expected, got {given}")))
}

fn text(args: &[Value], at: usize, name: &str) -> Result<Vec<u8>, String> {
    let given = args.get(at).map_or("no value", Value::type_name);
    let text = args.get(at).and_then(super::convert::argument);
    text.ok_or_else(|| bad(at + 1, name, &format!("string expected, got {given}")))
}

/// The little-endian bytes of an item, turned round if the format is big-endian.
fn put(out: &mut Vec<u8>, is_big: bool, mut bytes: Vec<u8>) {
    if is_big {
        bytes.reverse();
    }
    out.append(&mut bytes);
}

pub fn pack(args: &[Value]) -> Result<Vec<u8>, String> {
    let format = text(args, 0, "pack")?;
    let mut format = Format::new(&format);
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some((item, size)) = format.next()? {
        let padding = format.padding(out.len(), item, size);
        out.resize(out.len() + padding, 0);
        let takes = !matches!(item, Item::Padding | Item::Control);
        match item {
            Item::Integer { .. } => {
                let number = number(args, at)?;
                let bits = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let mut bytes = bits.to_le_bytes().to_vec();
                bytes.resize(size, 0);
                put(&mut out, format.is_big, bytes);
            }
            Item::Float => put(&mut out, format.is_big, (number(args, at)? as f32).to_le_bytes().to_vec()),
            Item::Double => put(&mut out, format.is_big, number(args, at)?.to_le_bytes().to_vec()),
            Item::Padding => out.push(0),
            Item::Bytes | Item::Text => {
                let bytes = text(args, at, "pack")?;
                let size = if size == 0 { bytes.len() } else { size };
                let bytes = bytes.get(..size).ok_or_else(|| bad(at + 2, "pack", "string too short"))?;
                out.extend_from_slice(bytes);
                if item == Item::Text {
                    out.push(0);
                }
            }
            Item::Control => {}
        }
        at += usize::from(takes);
    }
    Ok(out)
}

/// The values that bytes hold, and the position behind them.
pub fn unpack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let (format, data) = (text(args, 0, "unpack")?, text(args, 1, "unpack")?);
    let start = match args.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => number(args, 2)?,
    };
    if start < 1.0 {
        return Err(bad(3, "unpack", "offset must be 1 or greater"));
    }
    let short = || bad(2, "unpack", "data string too short");
    let string =
        |bytes: &[u8]| lua.create_string(bytes).map(Value::String).map_err(|error| error.to_string());
    let mut format = Format::new(&format);
    let (mut at, mut found) = (start as usize - 1, Vec::new());
    while let Some((item, size)) = format.next()? {
        at = at.saturating_add(format.padding(at, item, size));
        let bytes = at.checked_add(size).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        let mut ordered = bytes.to_vec();
        if format.is_big {
            ordered.reverse();
        }
        let mut taken = size;
        match item {
            Item::Integer { signed } => found.push(Value::Number(integer(&ordered, signed))),
            Item::Float => {
                let bytes: [u8; 4] = ordered.try_into().map_err(|_| short())?;
                found.push(Value::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            Item::Double => {
                let bytes: [u8; 8] = ordered.try_into().map_err(|_| short())?;
                found.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            Item::Bytes if size == 0 => {
                let Some(Value::Number(length)) = found.pop() else {
                    return Err("format 'c0' needs a previous size".to_owned());
                };
                // A negative length is beyond every string too.
                taken = if length < 0.0 { usize::MAX } else { length as usize };
                let bytes = at.checked_add(taken).and_then(|end| data.get(at..end)).ok_or_else(short)?;
                found.push(string(bytes)?);
            }
            Item::Bytes => found.push(string(bytes)?),
            Item::Text => {
                let rest = &data[at..];
                let length = memchr::memchr(0, rest).ok_or("unfinished string in data")?;
                found.push(string(&rest[..length])?);
                taken = length + 1;
            }
            Item::Padding | Item::Control => {}
        }
        at += taken;
    }
    found.push(Value::Number((at + 1) as f64));
    Ok(found)
}

fn integer(little: &[u8], signed: bool) -> f64 {
    let mut bytes = [0; 8];
    let kept = little.len().min(8);
    bytes[..kept].copy_from_slice(&little[..kept]);
    let bits = u64::from_le_bytes(bytes);
    if !signed {
        return bits as f64;
    }
    let unused = 64 - 8 * kept.max(1) as u32;
    ((bits << unused) as i64 >> unused) as f64
}

/// The bytes that a format takes.
pub fn size(args: &[Value]) -> Result<usize, String> {
    let format = text(args, 0, "size")?;
    let mut format = Format::new(&format);
    let mut total = 0usize;
    while let Some((item, size)) = format.next()? {
        match item {
            Item::Text => return Err(bad(1, "size", "variable-size format in sizeof")),
            Item::Bytes if size == 0 => return Err(bad(1, "size", "variable-length format")),
            _ => total = total.saturating_add(format.padding(total, item, size)).saturating_add(size),
        }
    }
    Ok(total)
}
