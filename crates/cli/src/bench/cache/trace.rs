//! A trace in memory: what was used, in order, its objects numbered as they come.

use super::formats::Format;
use super::synthetic;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

pub type Result<T> = std::result::Result<T, String>;

#[derive(Clone, Copy)]
pub enum Key<'a> {
    Number(u64),
    Text(&'a str),
}

/// One record of a trace.
pub struct Access<'a> {
    pub key: Key<'a>,
    /// In bytes, if the trace says it.
    pub size: Option<u64>,
    pub write: bool,
}

impl Access<'_> {
    pub fn read(key: u64) -> Access<'static> {
        Access { key: Key::Number(key), size: None, write: false }
    }
}

/// Objects that a trace may have: numbers of 30 bits.
pub const OBJECTS_MAX: usize = 1 << 30;

#[derive(Default)]
pub struct Trace {
    /// An object's number, and in the lowest bit whether it was changed.
    uses: Vec<u32>,
    /// Sizes of the objects in bytes, as last seen. Empty: a page each.
    sizes: Vec<u64>,
    objects: usize,
    pub writes: u64,
}

impl Trace {
    pub fn objects(&self) -> usize {
        self.objects
    }
    pub fn len(&self) -> usize {
        self.uses.len()
    }
    /// Objects in the order of their use, and whether it was a change.
    pub fn uses(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.uses.iter().map(|packed| (packed >> 1, packed & 1 == 1))
    }
    /// Size of an object in bytes, if the trace says it.
    pub fn size(&self, object: u32) -> Option<u64> {
        self.sizes.get(object as usize).copied()
    }
}

#[derive(Default)]
pub struct Builder {
    numbers: HashMap<u64, u32>,
    names: HashMap<String, u32>,
    trace: Trace,
    full: bool,
}

impl Builder {
    pub fn add(&mut self, access: Access) {
        let new = self.trace.objects as u32;
        if self.trace.objects == OBJECTS_MAX {
            self.full = true;
            return;
        }
        let object = match access.key {
            Key::Number(number) => *self.numbers.entry(number).or_insert(new),
            Key::Text(name) => match name.parse::<u64>() {
                Ok(number) => *self.numbers.entry(number).or_insert(new),
                Err(_) => match self.names.entry(name.into()) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => *entry.insert(new),
                },
            },
        };
        self.trace.objects += usize::from(object == new);
        if let Some(size) = access.size {
            self.trace.sizes.resize(self.trace.objects, 0);
            self.trace.sizes[object as usize] = size;
        }
        self.trace.writes += u64::from(access.write);
        self.trace.uses.push(object << 1 | u32::from(access.write));
    }

    pub fn finish(self) -> Result<Trace> {
        if self.full {
            return Err(format!("it has more than {OBJECTS_MAX} objects"));
        }
        match self.trace.uses.len() {
            0 => Err("it has no accesses".into()),
            _ => Ok(self.trace),
        }
    }
}

/// Reads `[FORMAT:]FILE`, or makes what a synthetic trace's description says. `columns`: a CSV file's, if its first line doesn't name them.
pub fn open(
    what: &str,
    format: Option<Format>,
    columns: Option<&str>,
    page: u64,
    seed: u64,
) -> Result<Trace> {
    let named = |e: String| format!("{what}: {e}");
    if let Some(made) = synthetic::make(what, seed) {
        return made.map_err(named);
    }
    let prefix = what.split_once(':').and_then(|(name, rest)| Some((Format::named(name)?, rest)));
    let (format, path) = prefix.map_or((format, what), |(prefix, rest)| (Some(prefix), rest));
    let path = Path::new(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = [".gz", ".zst", ".xz"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let format = format.or_else(|| Format::of_file(plain)).ok_or_else(|| {
        named("its name does not say its format: name one with --format, or write FORMAT:FILE".into())
    })?;
    let file = File::open(path).map_err(|e| named(e.to_string()))?;
    let mut from = unpacked(BufReader::with_capacity(1 << 16, file)).map_err(named)?;
    let mut builder = Builder::default();
    format.read(&mut *from, columns, page, &mut |access| builder.add(access)).map_err(named)?;
    builder.finish().map_err(named)
}

/// What the file says after its compression, which its first bytes tell.
fn unpacked(mut file: BufReader<File>) -> Result<Box<dyn BufRead>> {
    let head = file.fill_buf().map_err(|e| e.to_string())?;
    let buffered =
        |from: Box<dyn Read>| Box::new(BufReader::with_capacity(1 << 16, from)) as Box<dyn BufRead>;
    if head.starts_with(&[0x1f, 0x8b]) {
        Ok(buffered(Box::new(flate2::bufread::MultiGzDecoder::new(file))))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let frames = ruzstd::decoding::StreamingDecoder::new(file).map_err(|e| e.to_string())?;
        Ok(buffered(Box::new(frames)))
    } else if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        Ok(buffered(Box::new(lzma_rust2::XzReader::new(file, true))))
    } else {
        Ok(Box::new(file))
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
