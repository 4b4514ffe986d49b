//! The first commands on a pair of connections: they name this process, find out whether the server can be storage, and close older connections.
//!
//! 1. Both connections log in, take a name and learn their numbers.
//! 2. The server has to be a master that has loaded its data, is no part of a cluster, knows the commands that are needed, and has as many databases.
//! 3. At a start, this process becomes the `owner` in the reserved key. Later it has to be the owner still: the server may be another one by now, have lost its data, or be
//!    used by another `terrace kv`.
//! 4. All other connections of our name are closed, so that nothing runs any more that was sent on them. What sends on such a connection later meets step 3.

use super::address::Address;
use super::link::LANES;
use super::note::{ID, Note, OWNER, RESERVED};
use super::reply::{Reply, parse, write_command};
use crate::planted;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The name of our connections.
const NAME: &str = "terrace-kv-storage";

pub struct Hello {
    pub address: Address,
    /// How long the server may be silent.
    pub timeout: Duration,
    /// How many databases are needed.
    pub databases: u16,
    /// This process.
    pub owner: String,
    /// For a server that has no identity yet.
    pub new_id: String,
}

/// A pair of connections that can be used, and what the server has said.
pub struct Greeting {
    pub streams: Option<[TcpStream; LANES]>,
    pub note: Note,
    /// Keys of each database, the reserved one included.
    pub counts: Vec<u64>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// A connection on which one command waits for its reply.
struct Asking {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Asking {
    fn open(hello: &Hello) -> Result<Asking, String> {
        let Address { host, port, user, password } = &hello.address;
        let found = (host.as_str(), *port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
        let mut why = format!("{host} has no address");
        let mut connected = None;
        for address in found {
            match TcpStream::connect_timeout(&address, hello.timeout) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => why = error.to_string(),
            }
        }
        let stream = connected.ok_or(why)?;
        let settled = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(hello.timeout)))
            .and_then(|()| stream.set_write_timeout(Some(hello.timeout)));
        settled.map_err(|error| error.to_string())?;
        let mut asking = Asking { stream, input: Vec::new() };
        if let Some(password) = password {
            let mut args: Vec<&[u8]> = vec![b"AUTH"];
            args.extend(user.as_deref().map(str::as_bytes));
            args.push(password.as_bytes());
            asking.ask(&args)?;
        }
        asking.words(&format!("CLIENT SETNAME {NAME}"))?;
        Ok(asking)
    }

    fn ask(&mut self, args: &[&[u8]]) -> Result<Reply, String> {
        let mut bytes = Vec::new();
        write_command(&mut bytes, args);
        let silent = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "it does not answer".to_owned(),
            _ => error.to_string(),
        };
        self.stream.write_all(&bytes).map_err(silent)?;
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some((reply, length)) = parse(&self.input)? {
                self.input.drain(..length);
                return match reply {
                    Reply::Error(text) => Err(text),
                    reply => Ok(reply),
                };
            }
            match self.stream.read(&mut chunk).map_err(silent)? {
                0 => return Err("the server has closed the connection".into()),
                count => self.input.extend_from_slice(&chunk[..count]),
            }
        }
    }

    fn words(&mut self, words: &str) -> Result<Reply, String> {
        self.ask(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    fn number(&mut self, words: &str) -> Result<u64, String> {
        match self.words(words)? {
            Reply::Int(number) => Ok(number.max(0) as u64),
            other => Err(format!("{words} is answered with {other:?}")),
        }
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned()
}

/// Whether a server can be storage, by its `INFO`; what a person should know.
fn judge(info: &str) -> Result<Vec<String>, String> {
    let fields: BTreeMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).map_or("", |value| value.trim_end());
    if field("loading") == "1" {
        return Err("it is loading its data".into());
    }
    if field("role") == "slave" {
        return Err("it is a replica: storage has to be the master".into());
    }
    if field("cluster_enabled") == "1" {
        return Err("it is a node of a cluster: storage has to be one server".into());
    }
    let mut warnings = Vec::new();
    let policy = field("maxmemory_policy");
    if !["", "0"].contains(&field("maxmemory")) && !["", "noeviction"].contains(&policy) {
        warnings.push(format!("it evicts keys (maxmemory-policy {policy}), and what it evicts is lost"));
    }
    if field("aof_enabled") == "0" {
        warnings
            .push("it has no append only file (appendonly no): what it acknowledges is lost with it".into());
    }
    Ok(warnings)
}

/// The numbers of the connections with a name in the answer of `CLIENT LIST`.
fn numbers_of(list: &str, name: &str) -> Vec<u64> {
    let field = |line: &str, field: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(field)).map(str::to_owned)
    };
    list.lines()
        .filter(|line| field(line, "name=").as_deref() == Some(name))
        .filter_map(|line| field(line, "id=")?.parse().ok())
        .collect()
}

impl Hello {
    /// `claims`: at a start.
    ///
    /// # Errors
    /// Why the server cannot be used, with its address.
    pub fn connect(&self, claims: bool) -> Result<Greeting, String> {
        self.greet(claims).map_err(|why| format!("redis://{}: {why}", self.address))
    }

    fn greet(&self, claims: bool) -> Result<Greeting, String> {
        let (mut reads, mut writes) = (Asking::open(self)?, Asking::open(self)?);
        let own = [reads.number("CLIENT ID")?, writes.number("CLIENT ID")?];
        let warnings = judge(&text(&writes.words("INFO")?))?;
        writes
            .ask(&[b"PEXPIRETIME", RESERVED])
            .map_err(|why| format!("it has to be Redis 7.0 or later, or Valkey ({why})"))?;
        let mut note = Note::of_reply(&writes.ask(&[b"HGETALL", RESERVED])?)?;
        if claims {
            if note.text(ID).is_none() {
                note.set(ID, self.new_id.as_bytes());
            }
            note.set(OWNER, self.owner.as_bytes());
            writes.ask(&note.command())?;
        } else if note.text(ID).is_none() {
            return Err("it has lost its data, or is another server: start again to go on with it".into());
        } else if note.text(OWNER) != Some(&self.owner) {
            return Err("another terrace kv has it as storage now".into());
        }
        let list = text(&writes.words("CLIENT LIST")?);
        for number in numbers_of(&list, NAME) {
            if !own.contains(&number) && !planted::OLD_CONNECTIONS_LEFT.on() {
                writes.words(&format!("CLIENT KILL ID {number}"))?;
            }
        }
        let mut counts = Vec::new();
        for db in 0..self.databases {
            let why = |why: String| match why.contains("out of range") {
                true => format!("it has {db} databases, and `databases` says {}", self.databases),
                false => why,
            };
            writes.words(&format!("SELECT {db}")).map_err(why)?;
            counts.push(writes.number("DBSIZE")?);
        }
        Ok(Greeting { streams: Some([reads.stream, writes.stream]), note, counts, warnings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_storage_is_refused_and_a_careless_one_named() {
        let refused = ["role:slave", "loading:1\r\nrole:master", "role:master\r\ncluster_enabled:1"];
        refused.iter().for_each(|info| assert!(judge(info).is_err(), "{info}"));
        let warnings = |info: &str| judge(&info.replace(' ', "\r\n")).unwrap().len();
        assert_eq!(warnings("role:master aof_enabled:1 maxmemory:0 maxmemory_policy:allkeys-lru"), 0);
        assert_eq!(warnings("role:master aof_enabled:1 maxmemory:9 maxmemory_policy:noeviction"), 0);
        assert_eq!(warnings("role:master aof_enabled:0 maxmemory:9 maxmemory_policy:allkeys-lru"), 2);
    }

    #[test]
    fn connections_are_found_by_their_names() {
        let list = "id=3 addr=x name=terrace-kv-storage age=1\nid=4 addr=y name= age=1\nid=55 addr=z name=terrace-kv-storage db=0\n";
        assert_eq!(numbers_of(list, NAME), [3, 55]);
    }
}
