//! A server that plays a test's script of answers, and records the requests.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What the server does with one request.
#[derive(Clone, Copy)]
pub enum Act {
    /// Answers with this status line's rest, these headers and body.
    Answer(&'static str, &'static str, &'static str),
    /// Reads the request and closes the connection without a response.
    Close,
    /// Reads the request and never answers.
    Silence,
    /// Announces more than it sends.
    CutOff,
}

/// Plays one act a request, and remembers the requests' heads.
pub struct Stage {
    pub endpoint: String,
    pub heads: Arc<Mutex<Vec<String>>>,
}

fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buf = [0; 4096];
    let (head, have) = loop {
        let count = socket.read(&mut buf).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buf[..count]);
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..end]).to_string(), bytes.len() - end - 4);
        }
    };
    let length =
        head.to_lowercase().lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok());
    let mut left = length.unwrap_or(0usize).saturating_sub(have);
    while left > 0 {
        left -= socket.read(&mut buf).ok().filter(|n| *n > 0)?;
    }
    Some(head)
}

pub fn stage(acts: &'static [Act]) -> Stage {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = heads.clone();
    std::thread::spawn(move || {
        let mut acts = acts.iter();
        let mut silent = Vec::new();
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            while let Some(head) = read_request(&mut socket) {
                seen.lock().unwrap().push(head);
                match acts.next().expect("an act for each request") {
                    Act::Answer(status, headers, body) => {
                        let length = body.len();
                        let text =
                            format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
                        socket.write_all(text.as_bytes()).unwrap();
                    }
                    Act::Close => break,
                    Act::Silence => {
                        silent.push(socket);
                        break;
                    }
                    Act::CutOff => {
                        socket.write_all(b"HTTP/1.1 206 Partial\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
                        break;
                    }
                }
            }
        }
    });
    Stage { endpoint, heads }
}
