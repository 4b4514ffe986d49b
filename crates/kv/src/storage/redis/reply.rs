//! RESP2 as a client speaks it: commands out, replies in.

/// The longest line of a reply, and the longest bulk string: what the longest value of 512 MiB takes as a payload.
const LINE_MAX: usize = 64 << 10;
const BULK_MAX: u64 = (512 << 20) + (1 << 20);
const DEPTH_MAX: u32 = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Ok,
    /// A command of a transaction is queued.
    Queued,
    Text(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    /// The bytes of a bulk string, or of a line.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            Reply::Text(text) => Some(text.as_bytes()),
            _ => None,
        }
    }
}

/// Appends a command.
pub fn write_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    let mut number = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(number.format(args.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        out.push(b'$');
        out.extend_from_slice(number.format(arg.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// The reply at the start of `bytes`, with its length; `None`: not all of it is there.
///
/// # Errors
/// The bytes are not RESP2.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    parse_within(bytes, DEPTH_MAX)
}

fn parse_within(bytes: &[u8], depth: u32) -> Result<Option<(Reply, usize)>, String> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return if bytes.len() > LINE_MAX { Err("a line is too long".into()) } else { Ok(None) };
    };
    let line = &bytes[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some((kind, text)) = line.split_first() else { return Err("an empty line".into()) };
    let number = || {
        let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        parsed.ok_or_else(|| format!("{:?} is not a number", String::from_utf8_lossy(text)))
    };
    let mut at = end + 1;
    let reply = match kind {
        b'+' if text == b"OK" => Reply::Ok,
        b'+' if text == b"QUEUED" => Reply::Queued,
        b'+' => Reply::Text(String::from_utf8_lossy(text).into_owned()),
        b'-' => Reply::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Reply::Int(number()?),
        b'$' | b'*' if text == b"-1" => Reply::Null,
        b'$' => {
            let length = u64::try_from(number()?).ok().filter(|length| *length <= BULK_MAX);
            let length = length.ok_or("a string of impossible length")? as usize;
            let Some(bulk) = bytes.get(at..at + length + 2) else { return Ok(None) };
            let bulk = bulk.strip_suffix(b"\r\n").ok_or("a string without an end")?;
            at += length + 2;
            Reply::Bulk(bulk.to_vec())
        }
        b'*' if depth > 0 => {
            let count = number()?;
            let mut all = Vec::new();
            for _ in 0..count {
                let Some((reply, length)) = parse_within(&bytes[at..], depth - 1)? else { return Ok(None) };
                all.push(reply);
                at += length;
            }
            Reply::Array(all)
        }
        kind => return Err(format!("{:?} does not begin a reply", char::from(*kind))),
    };
    Ok(Some((reply, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_however_they_are_cut_and_damaged_ones_are_errors() {
        let bytes = b"+OK\r\n+QUEUED\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*3\r\n:1\r\n*-1\r\n*1\r\n$0\r\n\r\n+PONG\r\n";
        let expected = [
            Reply::Ok,
            Reply::Queued,
            Reply::Error("ERR no".into()),
            Reply::Int(-7),
            Reply::Bulk(b"a\r\n".to_vec()),
            Reply::Null,
            Reply::Array(vec![Reply::Int(1), Reply::Null, Reply::Array(vec![Reply::Bulk(Vec::new())])]),
            Reply::Text("PONG".into()),
        ];
        let mut at = 0;
        for reply in expected {
            let (found, length) = parse(&bytes[at..]).unwrap().unwrap();
            assert_eq!(found, reply);
            for cut in 0..length {
                assert_eq!(parse(&bytes[at..at + cut]), Ok(None), "{reply:?} cut at {cut}");
            }
            at += length;
        }
        assert_eq!(at, bytes.len());
        let deep = b"*1\r\n".repeat(9);
        for wrong in [&b"\r\n"[..], b"?1\r\n", b":x\r\n", b"$-2\r\n", b"$9999999999\r\n", b"$1\r\nabc", &deep]
        {
            assert!(parse(wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"SET", b"k\n", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$2\r\nk\n\r\n$0\r\n\r\n");
    }
}
