//! Formats that the Caffeine simulator (3.2.4) reads and has no trace of in its jar: a line a record, of kinds that are to be told apart.
//!
//! Where a trace says that something was written, that is a change here; Caffeine's own readers leave it out. What its readers count in
//! segments and blocks of their own is pages here, and volumes' blocks are not mixed.

use super::formats::{Format, SECTOR, extent, few};
use super::trace::{Access, Key};

/// One line; None if it is none of the format.
pub fn line(format: Format, line: &str, page: u64, each: &mut dyn FnMut(Access)) -> Option<()> {
    let commas: Vec<&str> = line.split(',').map(str::trim).collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |text: Option<&&str>| text.and_then(|t| t.parse::<u64>().ok());
    let sectors = |text: Option<&&str>| number(text)?.checked_mul(SECTOR);
    let hexadecimal =
        |text: Option<&&str>| u64::from_str_radix(text.copied()?.trim_start_matches("0x"), 16).ok();
    match format {
        // The authors' words on it.
        Format::Baleen if line.starts_with('#') => {}
        Format::Baleen => {
            let write = match *words.get(4)? {
                "1" | "2" | "5" => false,
                "3" | "4" | "6" => true,
                _ => return Some(()),
            };
            let (offset, bytes) = (number(words.get(1))?, number(words.get(2))?);
            if bytes > 0 {
                extent(page, words[0], (offset, bytes), write, each)?;
            }
        }
        Format::Cachelib => {
            let write = match *commas.get(1)? {
                "GET" | "GET_LEASE" => false,
                "SET" | "SET_LEASE" => true,
                _ => return Some(()),
            };
            let size = Some(number(commas.get(2))?.saturating_add(number(commas.get(4))?));
            (0..few(number(commas.get(3))?)?)
                .for_each(|_| each(Access { key: Key::Text(commas[0]), size, write }));
        }
        Format::Camelab => {
            let write = is_write(words.get(1)?)?;
            extent(page, "", (sectors(words.get(2))?, sectors(words.get(3))?), write, each)?;
        }
        Format::LcsCsv => {
            let (key, size) = (Key::Text(commas.get(4)?), number(commas.get(3))?);
            each(Access { key, size: Some(size), write: false });
        }
        Format::LcsTwitter => {
            let (key, size) = (Key::Text(commas.get(1)?), number(commas.get(2))?);
            each(Access { key, size: Some(size), write: false });
        }
        Format::Outbrain => each(Access { key: Key::Text(commas.get(1)?), size: None, write: false }),
        Format::SniaEnterprise => {
            let write = match commas[0] {
                "DiskRead" => false,
                "DiskWrite" => true,
                _ => return Some(()),
            };
            // The header has a line that says what the fields are.
            if commas.get(5) == Some(&"ByteOffset") {
                return Some(());
            }
            let (from, bytes) = (hexadecimal(commas.get(5))?, hexadecimal(commas.get(6))?);
            extent(page, commas.get(8)?, (from, bytes), write, each)?;
        }
        Format::SniaObjectStore => {
            let (write, object) = (words.get(1)?, Key::Text(words.get(2)?));
            // A read names its first and its last byte; a line that reads and writes nothing is skipped.
            let signed = |at: usize| words.get(at)?.parse::<i64>().ok();
            let (write, size) = match *write {
                "REST.GET.OBJECT" => (false, signed(5)?.checked_sub(signed(4)?)?.saturating_add(1)),
                "REST.PUT.OBJECT" => (true, signed(3)?),
                _ => return Some(()),
            };
            if let Some(size) = u64::try_from(size).ok().filter(|size| *size > 0) {
                each(Access { key: object, size: Some(size), write });
            }
        }
        Format::SniaK5cloud => {
            let write = is_write(commas.get(2)?)?;
            extent(page, commas[0], (number(commas.get(3))?, number(commas.get(4))?), write, each)?;
        }
        Format::SniaTencentBlock => {
            let write = match *commas.get(3)? {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            extent(page, commas.get(4)?, (sectors(commas.get(1))?, sectors(commas.get(2))?), write, each)?;
        }
        Format::SniaTencentPhoto => {
            let (name, kind, category) = (words.get(1)?, words.get(2)?, words.get(3)?);
            // Others than JPEG and WebP are made from these.
            if matches!(*kind, "0" | "5") {
                let key = format!("{name}/{kind}/{category}");
                each(Access { key: Key::Text(&key), size: Some(number(words.get(4))?), write: false });
            }
        }
        Format::SniaSystor => {
            // A first line, and requests that were not answered.
            if commas.len() != 6 || commas[1].is_empty() || commas[2].len() != 1 {
                return Some(());
            }
            let write = is_write(commas[2])?;
            extent(page, commas[3], (number(commas.get(4))?, number(commas.get(5))?), write, each)?;
        }
        Format::Tragen => {
            let size = number(commas.get(2))?;
            each(Access { key: Key::Text(commas[1]), size: Some(size), write: false });
        }
        Format::UmassYoutube => {
            if *words.get(3)? == "GETVIDEO" {
                each(Access { key: Key::Text(words.get(4)?), size: None, write: false });
            }
        }
        Format::Wikipedia => {
            let (url, flag) = (words.get(2)?, words.get(3)?);
            if let Some(path) = article(url).filter(|_| *flag == "-") {
                each(Access { key: Key::Text(&path), size: None, write: false });
            }
        }
        _ => return None,
    }
    Some(())
}

fn is_write(kind: &str) -> Option<bool> {
    match kind.as_bytes().first()?.to_ascii_lowercase() {
        b'r' => Some(false),
        b'w' => Some(true),
        _ => None,
    }
}

/// What a cache in front of an encyclopaedia would keep: no searches, no pages of its users and their talk, no programs.
fn article(url: &str) -> Option<String> {
    const ANYWHERE: [&str; 9] = [
        "?search=",
        "&search=",
        "&diff=",
        "&action=rollback",
        "User:",
        "User_talk",
        "User+talk",
        "Talk:",
        "Special:Watchlist",
    ];
    const AT_FIRST: [&str; 6] = [
        "wiki/Special:Search",
        "wiki/Special:AutoLogin",
        "Special:UserLogin",
        "w/query.php",
        "w/api.php",
        "error:",
    ];
    let (_, rest) = url.split_once("//")?;
    let (_, path) = rest.split_once('/')?;
    let mut path = path.to_string();
    for (coded, plain) in [("%2F", "/"), ("%20", " "), ("&amp;", "&"), ("%3A", ":")] {
        path = path.replace(coded, plain);
    }
    let refused =
        ANYWHERE.iter().any(|part| path.contains(part)) || AT_FIRST.iter().any(|p| path.starts_with(p));
    (!refused).then_some(path)
}
