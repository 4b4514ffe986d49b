//! Replies of a client, in RESP2 or RESP3 as it asked for.
//!
//! A reply is written straight into the client's output buffer. A type that RESP2 lacks is written as RESP2's nearest, as Redis does: a map
//! as an array of twice the length, a double as a bulk string.

use std::fmt::Write as _;

#[derive(Default)]
pub struct Reply {
    pub buffer: Vec<u8>,
    pub resp3: bool,
    /// Nothing is written: `CLIENT REPLY OFF` and `SKIP`.
    pub muted: bool,
    /// Errors written since the start: the dispatcher compares before and after a command.
    pub errors: u64,
    /// Their codes, until the dispatcher takes them.
    pub codes: Vec<Box<str>>,
}

impl Reply {
    pub fn new(resp3: bool) -> Reply {
        Reply { resp3, ..Reply::default() }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        if self.muted {
            return;
        }
        self.buffer.reserve(text.len() + 3);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(text);
        self.buffer.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, number: i64) {
        self.line(kind, itoa::Buffer::new().format(number).as_bytes());
    }

    /// Bytes that are in the protocol already.
    pub fn raw(&mut self, bytes: &[u8]) {
        if !self.muted {
            self.buffer.extend_from_slice(bytes);
        }
    }

    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// Writes a message that is no reply: it is sent though replies are off.
    pub fn message(&mut self, write: impl FnOnce(&mut Reply)) {
        let muted = std::mem::replace(&mut self.muted, false);
        write(self);
        self.muted = muted;
    }

    /// A status of bytes that hold no line end.
    pub fn simple_bytes(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }

    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error with its code: `ERR no such key`. Line ends in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.errors += 1;
        self.codes.push(text.split(' ').next().unwrap_or("").into());
        if text.contains(['\r', '\n']) {
            self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
        } else {
            self.line(b'-', text.as_bytes());
        }
    }

    pub fn error_bytes(&mut self, text: &[u8]) {
        self.errors += 1;
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        self.codes.push(String::from_utf8_lossy(code).into());
        let clean: Vec<u8> =
            text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect();
        self.line(b'-', &clean);
    }

    pub fn int(&mut self, number: i64) {
        match number {
            0 => self.raw(b":0\r\n"),
            1 => self.raw(b":1\r\n"),
            _ => self.number(b':', number),
        }
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.muted {
            return;
        }
        let mut length = itoa::Buffer::new();
        let length = length.format(bytes.len()).as_bytes();
        self.buffer.reserve(bytes.len() + length.len() + 5);
        self.buffer.push(b'$');
        self.buffer.extend_from_slice(length);
        self.buffer.extend_from_slice(b"\r\n");
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(b"\r\n");
    }

    pub fn bulk_int(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number).as_bytes());
    }

    /// An element of a listpack.
    pub fn element(&mut self, element: crate::value::stream::listpack::Element<'_>) {
        match element {
            crate::value::stream::listpack::Element::Str(bytes) => self.bulk(bytes),
            crate::value::stream::listpack::Element::Int(number) => self.bulk_int(number),
        }
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub fn null_array(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }

    /// `len` pairs follow.
    pub fn map(&mut self, len: usize) {
        match self.resp3 {
            true => self.number(b'%', len as i64),
            false => self.number(b'*', 2 * len as i64),
        }
    }

    pub fn set(&mut self, len: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// A message that no command asked for.
    pub fn push(&mut self, len: usize) {
        self.number(if self.resp3 { b'>' } else { b'*' }, len as i64);
    }

    pub fn attribute(&mut self, len: usize) {
        self.number(b'|', len as i64);
    }

    pub fn bool(&mut self, value: bool) {
        match self.resp3 {
            true => self.raw(if value { b"#t\r\n" } else { b"#f\r\n" }),
            false => self.int(i64::from(value)),
        }
    }

    /// `text` is the number as the command prints it.
    pub fn double_text(&mut self, text: &[u8]) {
        match self.resp3 {
            true => self.line(b',', text),
            false => self.bulk(text),
        }
    }

    /// A double with 17 significant digits at most, shortest form that reads back as the same number.
    pub fn double(&mut self, value: f64) {
        let mut text = String::new();
        if value.is_infinite() {
            text.push_str(if value > 0.0 { "inf" } else { "-inf" });
        } else if value.is_nan() {
            text.push_str("nan");
        } else if value == value.trunc() && value.abs() < 1e17 {
            let _ = write!(text, "{}", value as i64);
        } else {
            text = shortest(value);
        }
        self.double_text(text.as_bytes());
    }

    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        self.number(b'=', text.len() as i64 + 4);
        self.raw(format.as_bytes());
        self.raw(b":");
        self.raw(text);
        self.raw(b"\r\n");
    }

    pub fn big_number(&mut self, text: &str) {
        match self.resp3 {
            true => self.line(b'(', text.as_bytes()),
            false => self.bulk(text.as_bytes()),
        }
    }

    /// Writes an array whose length is known after its elements: `write` returns it.
    pub fn counted_array(&mut self, write: impl FnOnce(&mut Reply) -> usize) {
        let mut inner = Reply { resp3: self.resp3, muted: self.muted, ..Reply::default() };
        let len = write(&mut inner);
        self.errors += inner.errors;
        self.codes.append(&mut inner.codes);
        self.array(len);
        self.raw(&inner.buffer);
    }
}

/// As C's `%.17g` if no shorter form reads back as the same number.
fn shortest(value: f64) -> String {
    let plain = format!("{value:?}");
    let Some((mantissa, exponent)) = plain.split_once('e') else { return plain };
    match exponent.strip_prefix('-') {
        Some(digits) => format!("{mantissa}e-{digits:0>2}"),
        None => format!("{mantissa}e+{exponent:0>2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(resp3);
        write(&mut reply);
        String::from_utf8(reply.buffer).unwrap()
    }

    #[test]
    fn types_that_resp2_lacks_become_its_nearest() {
        let write = |reply: &mut Reply| {
            reply.map(1);
            reply.double(1.5);
            reply.null();
            reply.bool(true);
            reply.verbatim("txt", b"x");
        };
        assert_eq!(written(false, write), "*2\r\n$3\r\n1.5\r\n$-1\r\n:1\r\n$1\r\nx\r\n");
        assert_eq!(written(true, write), "%1\r\n,1.5\r\n_\r\n#t\r\n=5\r\ntxt:x\r\n");
    }

    #[test]
    fn a_muted_reply_writes_nothing() {
        let mut reply = Reply { muted: true, ..Reply::default() };
        reply.ok();
        reply.bulk(b"x");
        reply.array(3);
        assert!(reply.buffer.is_empty());
    }

    #[test]
    fn an_error_stays_on_one_line() {
        assert_eq!(written(false, |reply| reply.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }
}
