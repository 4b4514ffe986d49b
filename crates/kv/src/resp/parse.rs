//! Requests of a connection: a buffer that the socket fills, and the commands found in it.
//!
//! The buffer has three parts: consumed bytes, commands that are parsed and not yet executed, and the beginning of a command that has not
//! arrived whole. A parsed argument is a range of the buffer, so that a command is executed without a copy. [`Requests::parse`] goes on
//! where it stopped, so that a large command that arrives in pieces is scanned once.
//!
//! Invariants
//! * `consumed <= position <= filled <= buffer.len()`.
//! * Ranges are relative to the buffer and only valid until [`Requests::space`], which moves bytes when all parsed commands were taken.
//!
//! Not here: the limit of the buffer, which the connection checks against `client-query-buffer-limit`.

use memchr::memchr;

/// Arguments of a multi-bulk request; Redis's limit.
const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// An inline request, and the line that begins a bulk.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Limits of a client that has not authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_MAX: i64 = 16384;
/// Bytes that a connection keeps while it is in use.
const KEPT_BYTES: usize = 16 * 1024;
/// Commands parsed ahead of their execution.
const AHEAD_MAX: usize = 4096;

/// A request that cannot be understood: the reply, after which the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtocolError(pub String);

#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
}

#[derive(Default)]
pub struct Requests {
    buffer: Vec<u8>,
    filled: usize,
    consumed: usize,
    position: usize,
    /// Arguments that the current multi-bulk request still lacks; 0 between requests.
    missing: i64,
    /// Length of the bulk whose header was read.
    bulk: Option<usize>,
    spans: Vec<Span>,
    /// End of each parsed command in `spans`, and where the next command begins in the buffer.
    commands: Vec<(usize, usize)>,
    next: usize,
    pub limits: ParseLimits,
}

/// What [`Requests::parse`] refuses.
#[derive(Clone, Copy)]
pub struct ParseLimits {
    pub bulk_bytes_max: i64,
    pub authenticated: bool,
}

impl Default for ParseLimits {
    fn default() -> ParseLimits {
        ParseLimits { bulk_bytes_max: 512 << 20, authenticated: true }
    }
}

impl Requests {
    /// Room for the next read of the socket. All parsed commands must have been taken or stay valid: bytes move only if none is left.
    pub fn space(&mut self) -> &mut [u8] {
        if self.next == self.commands.len() {
            self.forget_taken();
        }
        let wanted = match self.bulk {
            // The rest of a large bulk in one read.
            Some(bytes) => (self.position + bytes + 2).saturating_sub(self.filled).clamp(KEPT_BYTES, 1 << 20),
            None => KEPT_BYTES,
        };
        if self.buffer.len() - self.filled < wanted.min(KEPT_BYTES) {
            self.buffer.resize((self.filled + wanted).max(KEPT_BYTES), 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// `bytes` of [`Requests::space`] were read.
    pub fn filled(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Bytes that were received and not yet executed.
    pub fn pending_bytes(&self) -> usize {
        self.filled - self.consumed
    }

    /// Bytes of memory.
    pub fn heap_bytes(&self) -> usize {
        self.buffer.capacity() + self.spans.capacity() * size_of::<Span>() + self.commands.capacity() * 16
    }

    /// Gives back memory that an idle connection doesn't need.
    pub fn shrink(&mut self) {
        if self.filled == self.consumed && self.next == self.commands.len() {
            let limits = self.limits;
            let (missing, bulk) = (self.missing, self.bulk);
            if missing == 0 && bulk.is_none() {
                *self = Requests { limits, ..Requests::default() };
            }
        }
    }

    fn forget_taken(&mut self) {
        // Spans of the command that is not complete yet stay.
        let done = self.commands.last().map_or(0, |&(end, _)| end);
        self.spans.drain(..done);
        self.commands.clear();
        self.next = 0;
        if self.consumed == self.filled && self.missing == 0 {
            self.consumed = 0;
            self.position = 0;
            self.filled = 0;
            if self.buffer.len() > 4 * KEPT_BYTES {
                self.buffer = Vec::new();
            }
        } else if self.consumed > 0 {
            let by = self.consumed;
            self.buffer.copy_within(by..self.filled, 0);
            self.filled -= by;
            self.position -= by;
            self.consumed = 0;
            for span in &mut self.spans {
                span.from -= by;
                span.to -= by;
            }
        }
    }

    /// Parses what has arrived. An error stands behind the commands before it: these are still to be executed.
    pub fn parse(&mut self) -> Result<(), ProtocolError> {
        while self.commands.len() - self.next < AHEAD_MAX && self.parse_one()? {}
        Ok(())
    }

    pub fn has_next(&self) -> bool {
        self.next < self.commands.len()
    }

    /// Hands the arguments of the next command to `take`.
    pub fn next<'b>(&'b mut self, args: &mut smallvec::SmallVec<[&'b [u8]; 8]>) -> bool {
        let Some(&(end, ends_at)) = self.commands.get(self.next) else { return false };
        let from = if self.next == 0 { 0 } else { self.commands[self.next - 1].0 };
        self.next += 1;
        self.consumed = ends_at;
        args.extend(self.spans[from..end].iter().map(|span| &self.buffer[span.from..span.to]));
        true
    }

    /// Parses one request; false if it has not arrived whole.
    fn parse_one(&mut self) -> Result<bool, ProtocolError> {
        if self.missing == 0 {
            if self.position == self.filled {
                return Ok(false);
            }
            if self.buffer[self.position] != b'*' {
                return self.parse_inline();
            }
            let Some(line) = self.line("too big mbulk count string")? else { return Ok(false) };
            let count =
                parse_i64(&self.buffer[line.from + 1..line.to]).filter(|&count| count <= ARGUMENTS_MAX);
            let Some(count) = count else { return Err(protocol_error("invalid multibulk length")) };
            if count > UNAUTHENTICATED_ARGUMENTS_MAX && !self.limits.authenticated {
                return Err(protocol_error("unauthenticated multibulk length"));
            }
            if count <= 0 {
                self.finish_command();
                return Ok(true);
            }
            self.missing = count;
        }
        while self.missing > 0 {
            let bytes = match self.bulk {
                Some(bytes) => bytes,
                None => {
                    let Some(line) = self.line("too big bulk count string")? else { return Ok(false) };
                    let first = self.buffer.get(line.from).copied().unwrap_or(0);
                    if first != b'$' {
                        return Err(protocol_error(&format!("expected '$', got '{}'", char::from(first))));
                    }
                    let bytes = parse_i64(&self.buffer[line.from + 1..line.to]);
                    let bytes = bytes.filter(|&bytes| (0..=self.limits.bulk_bytes_max).contains(&bytes));
                    let Some(bytes) = bytes else { return Err(protocol_error("invalid bulk length")) };
                    if bytes > UNAUTHENTICATED_BULK_MAX && !self.limits.authenticated {
                        return Err(protocol_error("unauthenticated bulk length"));
                    }
                    self.bulk = Some(bytes as usize);
                    bytes as usize
                }
            };
            if self.filled - self.position < bytes + 2 {
                return Ok(false);
            }
            self.spans.push(Span { from: self.position, to: self.position + bytes });
            self.position += bytes + 2;
            self.bulk = None;
            self.missing -= 1;
        }
        self.finish_command();
        Ok(true)
    }

    fn finish_command(&mut self) {
        self.commands.push((self.spans.len(), self.position));
    }

    /// The next line without its end; `None` if it has not arrived.
    fn line(&mut self, too_long: &str) -> Result<Option<Span>, ProtocolError> {
        let rest = &self.buffer[self.position..self.filled];
        match memchr(b'\r', &rest[..rest.len().min(LINE_BYTES_MAX)]) {
            Some(at) if at + 1 < rest.len() => {
                let span = Span { from: self.position, to: self.position + at };
                self.position += at + 2;
                Ok(Some(span))
            }
            None if rest.len() >= LINE_BYTES_MAX => Err(protocol_error(too_long)),
            _ => Ok(None),
        }
    }

    fn parse_inline(&mut self) -> Result<bool, ProtocolError> {
        let rest = &self.buffer[self.position..self.filled];
        let Some(at) = memchr(b'\n', rest) else {
            if rest.len() > LINE_BYTES_MAX {
                return Err(protocol_error("too big inline request"));
            }
            return Ok(false);
        };
        let line = rest[..at].strip_suffix(b"\r").unwrap_or(&rest[..at]);
        let Some(words) = split_words(line) else {
            return Err(protocol_error("unbalanced quotes in request"));
        };
        // A word is never longer than its quoted form: the words are written over the line, one after another.
        let mut to = self.position;
        for word in &words {
            self.buffer[to..to + word.len()].copy_from_slice(word);
            self.spans.push(Span { from: to, to: to + word.len() });
            to += word.len();
        }
        self.position += at + 1;
        self.finish_command();
        Ok(true)
    }
}

fn protocol_error(text: &str) -> ProtocolError {
    ProtocolError(format!("Protocol error: {text}"))
}

/// A decimal number as Redis accepts it: no leading zeros, no plus, no spaces.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    match negative {
        true if value <= 1 << 63 => Some((value as i64).wrapping_neg()),
        false => i64::try_from(value).ok(),
        _ => None,
    }
}

/// The words of a line: separated by spaces, with `"…"` (escapes) and `'…'`. `None` if a quote is not closed or is followed by text.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        let mut quote = None;
        loop {
            let byte = line.get(at).copied();
            match (quote, byte) {
                (None, None) => break,
                (Some(_), None) => return None,
                (None, Some(byte)) if byte.is_ascii_whitespace() => break,
                (None, Some(byte @ (b'"' | b'\''))) => quote = Some(byte),
                (None, Some(byte)) => word.push(byte),
                (Some(b'"'), Some(b'\\')) => at += unescape(&line[at..], &mut word)?,
                (Some(b'\''), Some(b'\\')) if line.get(at + 1) == Some(&b'\'') => {
                    word.push(b'\'');
                    at += 1;
                }
                (Some(open), Some(byte)) if open == byte => {
                    if line.get(at + 1).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return None;
                    }
                    at += 1;
                    break;
                }
                (Some(_), Some(byte)) => word.push(byte),
            }
            at += 1;
        }
        words.push(word);
    }
}

/// Adds the byte of the escape that `text` begins with; returns how many bytes follow the backslash.
fn unescape(text: &[u8], word: &mut Vec<u8>) -> Option<usize> {
    if let [_, b'x', high, low, ..] = text
        && let (Some(high), Some(low)) = (char::from(*high).to_digit(16), char::from(*low).to_digit(16))
    {
        word.push((high * 16 + low) as u8);
        return Some(3);
    }
    word.push(match text.get(1)? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    });
    Some(1)
}

#[cfg(test)]
mod tests;
