//! Pages in objects, compressed one by one: so one page is still one range of the object.
//!
//! A page's stored body is its image (16 KiB), or is shorter. A shorter body begins with a header of eight bytes, because the map
//! knows lengths only and a reader of one page never sees the object's header (`docs/format.md`):
//!
//! | at | size | what |
//! | --- | --- | --- |
//! | 0 | 1 | codec: 1 lz4 (block format), 2 zstd (one frame) |
//! | 1 | 1 | zero |
//! | 2 | 2 | length of the compressed bytes |
//! | 4 | 4 | CRC-32C of the whole body, with this field zero |
//! | 8 | | the compressed bytes, then zeros up to a multiple of 64 |
//!
//! A page is compressed if that saves at least a sixteenth of it. [`Codecs`] decides which codec a table's pages get. A stored
//! body names its own codec, so a change of codec concerns later objects only.
//!
//! Whatever the bytes are, unpacking writes one page and uses no more memory than a codec's fixed state. It does not know what
//! the page should be: the caller compares the tag (`page::check`).

use crate::address::LENGTH_UNIT;
use crate::page::BadBody;
use crate::page::{PAGE_SIZE, SpaceId};
use hashbrown::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use terrace_io::lock::{Mutex, Mutexes, RwLock, RwLocks};
use zstd::bulk::{Compressor, Decompressor};

/// Header bytes of a compressed page.
pub const HEAD: usize = 8;
/// A body longer than this does not justify its decompression: the page is stored as it is.
pub const PAYS: usize = PAGE_SIZE - PAGE_SIZE / 16;
/// The zstd level: a higher one takes twice the time for a page of 16 KiB and saves a few percent.
const ZSTD_LEVEL: i32 = 3;
/// Memory of a zstd compression state, and of a decompression state, in bytes. (lz4 needs less.)
pub const PACK_STATE: usize = 288 << 10;
pub const UNPACK_STATE: usize = 96 << 10;
/// Maximum number of a codec's states kept for reuse.
pub const KEPT: usize = 4;

const _: () = assert!(PAYS.is_multiple_of(LENGTH_UNIT) && HEAD < LENGTH_UNIT);

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Codec {
    None = 0,
    Lz4 = 1,
    #[default]
    Zstd = 2,
}

impl Codec {
    pub const NAMES: [(&'static str, Codec); 3] =
        [("none", Codec::None), ("lz4", Codec::Lz4), ("zstd", Codec::Zstd)];

    pub fn named(name: &str) -> Option<Codec> {
        Codec::NAMES.iter().find(|(known, _)| *known == name).map(|(_, codec)| *codec)
    }
    pub fn name(self) -> &'static str {
        Codec::NAMES[self as usize].0
    }
    /// From its number in stored bytes.
    pub fn numbered(number: u8) -> Option<Codec> {
        Codec::NAMES.get(usize::from(number)).map(|(_, codec)| *codec)
    }
}

/// Which codec the pages of each space get in their next object.
#[derive(Debug)]
pub struct Codecs {
    fallback: AtomicU8,
    own: RwLock<HashMap<SpaceId, Codec>, { RwLocks::Codecs as u8 }>,
}

impl Codecs {
    pub fn new(fallback: Codec) -> Codecs {
        Codecs { fallback: AtomicU8::new(fallback as u8), own: RwLock::default() }
    }
    pub fn set_fallback(&self, codec: Codec) {
        self.fallback.store(codec as u8, Ordering::Relaxed);
    }
    /// The codec of spaces without their own.
    pub fn fallback(&self) -> Codec {
        Codec::numbered(self.fallback.load(Ordering::Relaxed)).unwrap_or_default()
    }
    /// None: the default codec.
    pub fn set(&self, space: SpaceId, codec: Option<Codec>) {
        let mut own = self.own.write();
        match codec {
            Some(codec) => _ = own.insert(space, codec),
            None => _ = own.remove(&space),
        }
    }
    pub fn of(&self, space: SpaceId) -> Codec {
        self.own.read().get(&space).copied().unwrap_or_else(|| self.fallback())
    }
}

#[derive(Default, Debug)]
pub struct PackCounters {
    /// Pages stored, those of them that are compressed, and the total bytes before and after.
    pub pages: AtomicU64,
    pub compressed: AtomicU64,
    pub raw_bytes: AtomicU64,
    pub stored_bytes: AtomicU64,
    /// How many of the pages stored have a body copied from their last object.
    pub taken_over: AtomicU64,
    /// Pages that were decompressed.
    pub unpacked: AtomicU64,
}

/// The codecs in use, with reusable states. Locks: `packers` and `unpackers`, to take and return one.
#[derive(Default)]
pub struct Packer {
    packers: Mutex<Vec<Compressor<'static>>, { Mutexes::Codecs as u8 }>,
    unpackers: Mutex<Vec<Decompressor<'static>>, { Mutexes::Codecs as u8 }>,
    pub counters: PackCounters,
}

/// Runs `work` with a state of a codec; None if memory for it cannot be allocated.
fn with<T, R>(
    kept: &Mutex<Vec<T>, { Mutexes::Codecs as u8 }>,
    make: impl Fn() -> Option<T>,
    work: impl FnOnce(&mut T) -> R,
) -> Option<R> {
    let taken = kept.lock().pop();
    let mut state = taken.or_else(make)?;
    let result = work(&mut state);
    let mut kept = kept.lock();
    if kept.len() < KEPT {
        kept.push(state);
    }
    Some(result)
}

/// Buffer size for a codec's output, however incompressible the page.
const SCRATCH: usize = HEAD + lz4_flex::block::get_maximum_output_size(PAGE_SIZE);

impl Packer {
    /// Replaces the page's image with its stored body, and returns its length. If compression does not pay, or the codec fails,
    /// that is the image.
    pub fn pack(&self, codec: Codec, image: &mut [u8]) -> usize {
        assert_eq!(image.len(), PAGE_SIZE);
        let mut body = [0; SCRATCH];
        let into = &mut body[HEAD..];
        let packed = match codec {
            Codec::None => None,
            Codec::Lz4 => lz4_flex::block::compress_into(image, into).ok(),
            Codec::Zstd => {
                let make = || Compressor::new(ZSTD_LEVEL).ok();
                with(&self.packers, make, |zstd| zstd.compress_to_buffer(image, into).ok()).flatten()
            }
        };
        let packed = packed.filter(|len| HEAD + len <= PAYS);
        let length = packed.map_or(PAGE_SIZE, |len| (HEAD + len).next_multiple_of(LENGTH_UNIT));
        if let Some(len) = packed {
            let body = &mut body[..length];
            body[HEAD + len..].fill(0);
            body[0] = codec as u8;
            body[2..4].copy_from_slice(&(len as u16).to_le_bytes());
            let crc = crc32c::crc32c(body);
            body[4..HEAD].copy_from_slice(&crc.to_le_bytes());
            image[..length].copy_from_slice(body);
        }
        self.count(packed.is_some(), length);
        length
    }

    /// Average bytes of a stored page so far; never 0.
    pub fn mean(&self) -> usize {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pages = get(&self.counters.pages);
        let mean = get(&self.counters.stored_bytes).checked_div(pages).map(|mean| mean as usize);
        // Another thread may have counted its page and not its bytes yet.
        mean.filter(|mean| *mean >= LENGTH_UNIT).unwrap_or(PAGE_SIZE)
    }

    fn count(&self, compressed: bool, length: usize) {
        let count = |counter: &AtomicU64, n: usize| _ = counter.fetch_add(n as u64, Ordering::Relaxed);
        count(&self.counters.pages, 1);
        count(&self.counters.compressed, usize::from(compressed));
        count(&self.counters.raw_bytes, PAGE_SIZE);
        count(&self.counters.stored_bytes, length);
    }

    /// Whether a page's stored body is what this codec produces: the result of `pack`. Counted as packed.
    pub fn takes_over(&self, codec: Codec, body: &[u8]) -> bool {
        let same = match codec {
            Codec::None => body.len() == PAGE_SIZE,
            _ => body.len() < PAGE_SIZE && body[0] == codec as u8,
        };
        if same {
            self.count(codec != Codec::None, body.len());
            self.counters.taken_over.fetch_add(1, Ordering::Relaxed);
        }
        same
    }

    /// Restores the image from its stored body, whose bytes are checked. After an error the content of `image` is undefined.
    pub fn unpack(&self, body: &[u8], image: &mut [u8]) -> Result<(), BadBody> {
        assert_eq!(image.len(), PAGE_SIZE);
        if body.len() == PAGE_SIZE {
            image.copy_from_slice(body);
            return Ok(());
        }
        let (codec, bytes) = open(body)?;
        self.counters.unpacked.fetch_add(1, Ordering::Relaxed);
        let found = match codec {
            // `image` bounds what they write, whatever the bytes claim.
            Codec::Lz4 => lz4_flex::block::decompress_into(bytes, image).map_err(|bad| bad.to_string()),
            _ => with(
                &self.unpackers,
                || Decompressor::new().ok(),
                |zstd| zstd.decompress_to_buffer(bytes, image),
            )
            .ok_or_else(|| "no memory for a decompressor".to_string())
            .and_then(|found| found.map_err(|bad| bad.to_string())),
        };
        match found {
            Ok(PAGE_SIZE) => Ok(()),
            Ok(len) => Err(BadBody::Unpack(format!("they give {len} bytes"))),
            Err(bad) => Err(BadBody::Unpack(bad)),
        }
    }
}

/// The codec and the compressed bytes of a body that is shorter than a page.
fn open(body: &[u8]) -> Result<(Codec, &[u8]), BadBody> {
    if body.len() < LENGTH_UNIT || body.len() > PAYS || !body.len().is_multiple_of(LENGTH_UNIT) {
        return Err(BadBody::Length(body.len()));
    }
    let found = u32::from_le_bytes([body[4], body[5], body[6], body[7]]);
    let computed =
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&body[..4]), &[0; 4]), &body[HEAD..]);
    if found != computed {
        return Err(BadBody::Checksum { found, computed });
    }
    let codec =
        Codec::numbered(body[0]).filter(|codec| *codec != Codec::None).ok_or(BadBody::Codec(body[0]))?;
    let len = usize::from(u16::from_le_bytes([body[2], body[3]]));
    if len == 0 || (HEAD + len).next_multiple_of(LENGTH_UNIT) != body.len() {
        return Err(BadBody::Compressed(len));
    }
    if body[1] != 0 || body[HEAD + len..].iter().any(|b| *b != 0) {
        return Err(BadBody::Stray);
    }
    Ok((codec, &body[HEAD..HEAD + len]))
}

#[cfg(test)]
mod tests;
