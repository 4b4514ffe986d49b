//! The name of a lock's holder, in the lock's file: the process, its host, and the time since when. It is for the message that refuses a second process, and decides
//! nothing: a process that was killed leaves its name, one that cannot write it has none.

use crate::disk::Holder;
use std::fs;
use std::io::{Read, Seek, Write};
use std::time::{SystemTime, UNIX_EPOCH};

fn host() -> String {
    let found = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match found.trim() {
        "" => "an unnamed host".to_string(),
        name => name.chars().filter(|c| !c.is_control()).collect(),
    }
}

/// This process, as in "process 4711 on db1".
pub fn process() -> String {
    format!("process {} on {}", std::process::id(), host())
}

/// Whether this machine surely has no such process any more.
fn is_gone(who: &str) -> bool {
    let number = who.strip_prefix("process ").and_then(|rest| rest.strip_suffix(&format!(" on {}", host())));
    number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| {
        fs::metadata("/proc/self").is_ok() && fs::metadata(format!("/proc/{number}")).is_err()
    })
}

/// Writes our name. A failure leaves no name.
pub(super) fn write(file: &mut fs::File) {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let text = format!("{}\n{ms}\n", process());
    if file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes())).is_err() {
        erase(file);
    }
}

pub(super) fn erase(file: &fs::File) {
    let _ = file.set_len(0);
}

/// The name in the file, unless it is that of a process that has ended. Accepts any bytes.
pub(super) fn read(file: &mut fs::File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(1000).read_to_string(&mut text)).ok()?;
    let (who, ms) = text.strip_suffix('\n')?.split_once('\n')?;
    let holder = Holder { who: who.to_string(), since_ms: ms.parse().ok()? };
    (who.starts_with("process ") && !who.contains(char::is_control) && !is_gone(who)).then_some(holder)
}
