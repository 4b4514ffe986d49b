//! The name of the writer that holds the store: which process, on which host, since when. The object `holder`, beside the epoch object, whose format it leaves as
//! it is: builds that know no names read and write their stores as before. It is lines of text ([`lines`]), put by a writer when it has taken the store:
//!
//! ```text
//! terrace holder 1
//! epoch 7
//! number 1a2b3c4d5e6f7081        drawn at the open, as in the epoch object
//! name process 4711 on db1, since 2026-11-28 17:30:00 UTC
//! end 4 1a2b3c4d
//! ```
//!
//! Nothing decides by it, it is for messages. So it counts only beside an epoch object of the same writer, and a writer that cannot put it goes on without a name.

use super::{TRIES, Writer};
use crate::objects::lines;
use terrace_io::store::{Bytes, ObjectStore, Purpose, StoreError};

pub const KEY: &str = "holder";
const FIRST: &str = "terrace holder 1";

fn encode(writer: &Writer, who: &str) -> Vec<u8> {
    let who: String = who.chars().filter(|c| !c.is_control()).collect();
    lines::seal(&[
        FIRST.to_string(),
        format!("epoch {}", writer.epoch),
        format!("number {:016x}", writer.nonce),
        format!("name {who}"),
    ])
}

/// The writer's epoch, its number, and who it is. Accepts any bytes.
fn decode(bytes: &[u8]) -> Option<(u32, u64, String)> {
    let lines = lines::open(bytes).ok()?;
    let [FIRST, epoch, number, who] = lines[..] else { return None };
    let epoch = epoch.strip_prefix("epoch ")?.parse().ok()?;
    let number = u64::from_str_radix(number.strip_prefix("number ")?, 16).ok()?;
    Some((epoch, number, who.strip_prefix("name ")?.to_string()))
}

/// The name of the writer, if it has one.
pub fn of(store: &dyn ObjectStore, writer: &Writer) -> Option<String> {
    let (bytes, _) = store.get(Purpose::Epoch, KEY).ok()?;
    let (epoch, number, who) = decode(&bytes)?;
    (epoch == writer.epoch && number == writer.nonce).then_some(who)
}

/// Puts the name of the writer, which has taken the store. A later writer's name stays.
pub(super) fn put(store: &dyn ObjectStore, writer: &Writer, who: &str) -> Result<(), StoreError> {
    let body = encode(writer, who);
    let mut last = Ok(());
    for _ in 0..TRIES {
        let put = match store.get(Purpose::Epoch, KEY) {
            Ok((found, _)) if found == body => return Ok(()),
            Ok((found, _)) if decode(&found).is_some_and(|(epoch, ..)| epoch > writer.epoch) => return Ok(()),
            Ok((_, version)) => store.put_if_match(Purpose::Epoch, KEY, &body, &version),
            Err(StoreError::Absent { .. }) => {
                store.put_if_absent(Purpose::Epoch, KEY, &[Bytes::copy_from_slice(&body)])
            }
            Err(error) => return Err(error),
        };
        match put {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unknown { .. })) => last = Err(error),
            Err(error) => return Err(error),
        }
    }
    last
}
