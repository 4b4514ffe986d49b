//! A connection to a server that speaks Redis's protocol, for the subcommands that are clients.

use std::io::{BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
pub use terrace_kv::storage::redis::{Address, write_command};

/// The longest line of a reply.
const LINE_MAX: usize = 64 << 10;
/// The longest bulk string, as servers have it by default.
const BULK_MAX: u64 = 512 << 20;
const DEPTH_MAX: u32 = 16;
/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Text(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            Reply::Text(text) => Some(text.as_bytes()),
            _ => None,
        }
    }
}

/// The half of a connection that is read.
pub struct Input {
    pub stream: BufReader<TcpStream>,
    /// Bytes that were read.
    pub position: u64,
}

pub struct Connection {
    pub input: Input,
    output: BufWriter<TcpStream>,
    pub address: Address,
}

impl Input {
    pub fn byte(&mut self) -> Result<u8, String> {
        let mut one = [0];
        self.exact(&mut one)?;
        Ok(one[0])
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<(), String> {
        self.stream.read_exact(out).map_err(|error| error.to_string())?;
        self.position += out.len() as u64;
        Ok(())
    }

    /// A line without its end.
    pub fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => break,
                byte => line.push(byte),
            }
            if line.len() > LINE_MAX {
                return Err("a reply has a line that is too long".into());
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn bulk(&mut self, length: u64) -> Result<Vec<u8>, String> {
        if length > BULK_MAX {
            return Err(format!("a string of {length} bytes is too long"));
        }
        let mut bytes = vec![0; length as usize];
        self.exact(&mut bytes)?;
        let mut end = [0; 2];
        self.exact(&mut end)?;
        if end == *b"\r\n" { Ok(bytes) } else { Err("a string has no end".into()) }
    }

    /// A reply, or a command that the other side sends.
    pub fn reply(&mut self) -> Result<Reply, String> {
        self.reply_within(DEPTH_MAX)
    }

    fn reply_within(&mut self, depth: u32) -> Result<Reply, String> {
        let kind = self.byte()?;
        let text = self.line()?;
        let number = || text.parse::<i64>().map_err(|_| format!("{text:?} is not a number"));
        Ok(match kind {
            b'+' => Reply::Text(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(number()?),
            b'_' => Reply::Null,
            b'$' | b'*' if text == "-1" => Reply::Null,
            b'$' => {
                let length = u64::try_from(number()?).map_err(|_| "a negative length")?;
                Reply::Bulk(self.bulk(length)?)
            }
            b'*' if depth > 0 => {
                let count = number()?;
                Reply::Array((0..count).map(|_| self.reply_within(depth - 1)).collect::<Result<_, _>>()?)
            }
            kind => return Err(format!("{:?} does not begin a reply", char::from(kind))),
        })
    }
}

impl Connection {
    pub fn open(address: &Address) -> Result<Connection, String> {
        let failed = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect((address.host.as_str(), address.port)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let reader = stream.try_clone().map_err(failed)?;
        let input = Input { stream: BufReader::with_capacity(256 << 10, reader), position: 0 };
        let output = BufWriter::with_capacity(256 << 10, stream);
        let mut connection = Connection { input, output, address: address.clone() };
        if let Some(password) = &address.password {
            let mut args: Vec<&[u8]> = vec![b"AUTH"];
            args.extend(address.user.as_deref().map(str::as_bytes));
            args.push(password.as_bytes());
            connection.ask(&args)?;
        }
        Ok(connection)
    }

    pub fn send(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        self.send_raw(&bytes)
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.output.write_all(bytes).map_err(|error| format!("{}: {error}", self.address))
    }

    pub fn flush(&mut self) -> Result<(), String> {
        self.output.flush().map_err(|error| format!("{}: {error}", self.address))
    }

    /// The next reply; an error reply is one.
    pub fn reply(&mut self) -> Result<Reply, String> {
        self.input.reply().map_err(|error| format!("{}: {error}", self.address))
    }

    /// Sends a command and waits for its reply. An error reply is an error.
    pub fn ask(&mut self, args: &[&[u8]]) -> Result<Reply, String> {
        self.send(args)?;
        self.flush()?;
        match self.reply()? {
            Reply::Error(error) => Err(format!("{}: {error}", self.address)),
            reply => Ok(reply),
        }
    }

    /// A command of words.
    pub fn ask_words(&mut self, words: &str) -> Result<Reply, String> {
        self.ask(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// The fields of sections of `INFO`.
    pub fn info(&mut self) -> Result<std::collections::BTreeMap<String, String>, String> {
        let reply = self.ask_words("INFO ALL")?;
        let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
