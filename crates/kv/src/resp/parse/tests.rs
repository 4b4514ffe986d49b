use super::*;
use proptest::prelude::*;
use smallvec::SmallVec;

/// Feeds `bytes` in pieces of `piece` bytes and returns the commands.
fn commands(bytes: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
    let mut requests = Requests::default();
    let mut commands = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let space = requests.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            requests.filled(count);
            rest = &rest[count..];
            let parsed = requests.parse();
            loop {
                let mut args = SmallVec::new();
                if !requests.next(&mut args) {
                    break;
                }
                commands.push(args.iter().map(|arg| arg.to_vec()).collect());
            }
            parsed?;
        }
    }
    Ok(commands)
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn inline_requests_know_quotes_and_escapes() {
    let line = b"set \"a\\x41\\n\" 'it\\'s'\r\nPING\n";
    assert_eq!(commands(line, 3).unwrap(), vec![words(&["set", "aA\n", "it's"]), words(&["PING"])]);
    assert_eq!(commands(b"set \"a\r\n", 100), Err(protocol_error("unbalanced quotes in request")));
}

#[test]
fn malformed_requests_are_refused_with_the_texts_of_redis() {
    let error = |bytes: &[u8]| commands(bytes, 100).unwrap_err().0;
    assert_eq!(error(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n"), "Protocol error: expected '$', got 'f'");
    assert_eq!(error(b"*20000000000\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error(b"*1\r\n$-10\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error(b"*1\r\n$2000000000\r\n"), "Protocol error: invalid bulk length");
}

#[test]
fn commands_before_an_error_are_executed() {
    let mut requests = Requests::default();
    let bytes = b"*1\r\n$4\r\nPING\r\n*x\r\n";
    requests.space()[..bytes.len()].copy_from_slice(bytes);
    requests.filled(bytes.len());
    assert!(requests.parse().is_err());
    assert!(requests.has_next());
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_commands(
        sent in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..20),
        piece in 1usize..200,
    ) {
        let mut bytes = Vec::new();
        for command in &sent {
            bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in command {
                bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                bytes.extend_from_slice(arg);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        prop_assert_eq!(commands(&bytes, piece).unwrap(), sent);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..50) {
        let _ = commands(&bytes, piece);
    }

    #[test]
    fn numbers_parse_as_they_print(number in any::<i64>()) {
        prop_assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
    }
}
