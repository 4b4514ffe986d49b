//! The miss-ratio curve of the last run, kept on the volume for `terrace advise`.
//!
//! One file, written as a whole at an orderly end and put in place by a rename: magic, version, CRC-32C of what follows,
//! length, then numbers of eight bytes (`docs/format.md`). It is advice: whatever is wrong with it, nothing else is.

use crate::engine::inspect::info_tables;
use crate::error::Error;
use crate::txn::shared::Core;
use terrace_cost::{Curve, Observed, Price, Prices, advice};
use terrace_io::AlignedBuf;
use terrace_io::disk::{Class, Disk, DiskError};

pub const FILE: &str = "curve";
const NEW: &str = "curve.new";
const MAGIC: &[u8; 8] = b"TERRCURV";
const VERSION: u32 = 1;
const HEAD: usize = 24;
const BYTES_MAX: u64 = 1 << 20;
/// Numbers before the curve's steps.
const FIXED: usize = 18;

/// What was kept.
pub struct KeptCurve {
    pub curve: Curve,
    pub observed: Observed,
    pub prices: Prices,
}

impl KeptCurve {
    pub fn of(core: &Core) -> KeptCurve {
        KeptCurve {
            curve: core.storage.pages.pool().curve(),
            observed: info_tables::observed(core),
            prices: core.config.prices,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (o, p) = (&self.observed, &self.prices);
        let mut numbers: Vec<u64> = vec![
            o.seconds.to_bits(),
            o.memory,
            o.flash,
            o.volume,
            o.object,
            o.page_bytes,
            o.store_share.to_bits(),
            o.puts,
            p.memory.0,
            p.flash.0,
            p.volume.0,
            p.object.0,
            p.puts.0,
            p.gets.0,
            self.curve.first().to_bits(),
            self.curve.reads().to_bits(),
            self.curve.rate().to_bits(),
            self.curve.steps().len() as u64,
        ];
        assert_eq!(numbers.len(), FIXED);
        numbers.extend(self.curve.steps().iter().flat_map(|(size, reads)| [size.to_bits(), reads.to_bits()]));
        let body: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Total: None for whatever is not what `encode` makes.
    fn decode(bytes: &[u8]) -> Option<KeptCurve> {
        let head = bytes.get(..HEAD)?;
        let length = u64::from_le_bytes(head[16..24].try_into().ok()?);
        let body = bytes.get(HEAD..)?.get(..usize::try_from(length).ok()?)?;
        let crc = u32::from_le_bytes(head[12..16].try_into().ok()?);
        if head[..8] != *MAGIC || head[8..12] != VERSION.to_le_bytes() || crc32c::crc32c(body) != crc {
            return None;
        }
        let n: Vec<u64> =
            body.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes)).collect();
        let real = |at: usize| f64::from_bits(n[at]);
        let steps = n.get(FIXED..)?;
        if n[FIXED - 1].checked_mul(2) != Some(steps.len() as u64)
            || n.iter().any(|n| f64::from_bits(*n).is_nan())
        {
            return None;
        }
        let steps = steps.chunks_exact(2).map(|pair| (f64::from_bits(pair[0]), f64::from_bits(pair[1])));
        let observed = Observed {
            seconds: real(0),
            memory: n[1],
            flash: n[2],
            volume: n[3],
            object: n[4],
            page_bytes: n[5],
            store_share: real(6),
            puts: n[7],
        };
        let [memory, flash, volume, object, puts, gets] = std::array::from_fn(|i| Price(n[8 + i]));
        let prices = Prices { memory, flash, volume, object, puts, gets };
        Some(KeptCurve { curve: Curve::new(steps.collect(), real(14), real(15), real(16)), observed, prices })
    }

    /// Puts it in place of the last run's. A curve of too few reads is not worth it.
    pub fn save(&self, volume: &dyn Disk) -> Result<(), DiskError> {
        if self.curve.reads() < advice::READS_MIN {
            return Ok(());
        }
        let bytes = self.encode();
        let mut buf = AlignedBuf::zeroed(bytes.len().next_multiple_of(4096));
        buf[..bytes.len()].copy_from_slice(&bytes);
        if volume.exists(NEW)? {
            volume.remove(NEW)?;
        }
        let file = volume.create(NEW)?;
        file.grow(buf.len() as u64, false)?;
        file.write(Class::Superblock, 0, &buf)?;
        file.sync(Class::Superblock)?;
        volume.rename(NEW, FILE)?;
        volume.sync_dir()
    }

    /// Err: there is none, or it can't be read.
    pub fn load(volume: &dyn Disk) -> Result<KeptCurve, Error> {
        let none = || {
            Error::Invalid(format!(
                "there is nothing to advise from: an orderly shutdown keeps what the run has read, and since the instance was \
                 made no run with {:.0} reads and more had one",
                advice::READS_MIN
            ))
        };
        if !volume.exists(FILE)? {
            return Err(none());
        }
        let file = volume.open(FILE)?;
        let mut buf = AlignedBuf::zeroed((file.len().min(BYTES_MAX) / 4096 * 4096) as usize);
        file.read(Class::Superblock, 0, &mut buf)?;
        KeptCurve::decode(&buf)
            .ok_or_else(|| Error::Corrupt(format!("the file {FILE} is not what was kept of the last run")))
    }

    /// In plain words.
    pub fn advise(&self) -> Vec<String> {
        advice::advise(&self.curve, &self.observed, &self.prices, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> KeptCurve {
        let observed =
            Observed { seconds: 5.5, memory: 1 << 20, flash: 7, page_bytes: 16384, ..Observed::default() };
        let curve = Curve::new(vec![(10.0, 900.0), (20.5, 80.0)], 20.0, 1500.0, 0.25);
        KeptCurve { curve, observed, prices: Prices::default() }
    }

    #[test]
    fn a_kept_curve_is_read_back() {
        let (kept, bytes) = (kept(), kept().encode());
        let back = KeptCurve::decode(&bytes).unwrap();
        assert_eq!((&back.curve, back.observed, back.prices), (&kept.curve, kept.observed, kept.prices));
    }

    #[test]
    fn any_other_content_of_the_curve_file_is_refused() {
        let bytes = kept().encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(KeptCurve::decode(&bad).is_none(), "byte {at}");
            assert!(KeptCurve::decode(&bytes[..at]).is_none(), "cut at {at}");
        }
    }
}
