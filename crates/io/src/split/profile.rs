//! NetCAS's performance profile (§3.3): what each device does alone, by block size, requests in flight of a thread, and threads.
//!
//! A profile is built once by a command, whole or for the cells of one workload, saved, and shared between machines that are alike.
//! The file is text with a checksum. It names the machine that it was measured on. [`Profile::load`] refuses a damaged file and one
//! of another machine with an error that says so; the caller reports that and goes on without a profile.

use std::fmt::Write;

/// The grid that is measured if nothing else is asked for: 2 × 7 × 5 cells.
pub const BLOCKS: [u32; 2] = [16 << 10, 64 << 10];
pub const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
pub const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

const HEAD: &str = "terrace split profile 1";
/// Cells that a file may have.
const CELLS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Point {
    /// Bytes.
    pub block: u32,
    /// Requests in flight of each thread.
    pub depth: u32,
    pub threads: u32,
}

impl Point {
    pub fn outstanding(&self) -> u32 {
        self.depth * self.threads
    }

    /// How far apart two points are: doublings, a block size counts most.
    fn distance(&self, other: &Point) -> f64 {
        let doublings = |a: u32, b: u32| (f64::from(a.max(1)).log2() - f64::from(b.max(1)).log2()).abs();
        4.0 * doublings(self.block, other.block)
            + doublings(self.depth, other.depth)
            + doublings(self.threads, other.threads)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub at: Point,
    /// Requests a second of the cache alone and of the backend alone.
    pub rates: [f64; 2],
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    machine: String,
    /// In the order of their points.
    cells: Vec<Cell>,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("the profile is damaged ({0}): it is ignored; build it again")]
    Damaged(&'static str),
    #[error("the profile was measured on `{of}`, and this is `{here}`: it is ignored; build one here")]
    OtherMachine { of: String, here: String },
}

impl Profile {
    pub fn new(machine: &str) -> Profile {
        Profile { machine: machine.replace('\n', " "), cells: Vec::new() }
    }

    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    pub fn put(&mut self, at: Point, rates: [f64; 2]) {
        match self.cells.binary_search_by_key(&at, |cell| cell.at) {
            Ok(found) => self.cells[found].rates = rates,
            Err(_) if self.cells.len() >= CELLS_MAX => {}
            Err(place) => self.cells.insert(place, Cell { at, rates }),
        }
    }

    /// The nearest cell, if one is within a doubling of the block size, and within one of depth and threads together if `near`.
    pub fn nearest(&self, at: Point) -> Option<&Cell> {
        let nearest = self.cells.iter().min_by(|a, b| a.at.distance(&at).total_cmp(&b.at.distance(&at)))?;
        (nearest.at.distance(&at) <= 5.0).then_some(nearest)
    }

    /// Requests a second of a device (0 or 1) alone with `in_flight` requests, as threads at most `threads` send them. Between two
    /// points of the profile it is interpolated.
    pub fn rate_at(&self, device: usize, block: u32, threads: u32, in_flight: f64) -> Option<f64> {
        if in_flight <= 0.0 {
            return Some(0.0);
        }
        // At each number in flight, the cell whose threads are nearest to those that would send them.
        let wanted = f64::from(threads.max(1)).min(in_flight.max(1.0)).log2();
        let block = self.nearest_block(block)?;
        let (mut below, mut above): (Option<(f64, f64, f64)>, Option<(f64, f64, f64)>) = (None, None);
        for cell in self.cells.iter().filter(|cell| cell.at.block == block) {
            let n = f64::from(cell.at.outstanding());
            let off = (f64::from(cell.at.threads).log2() - wanted).abs();
            let rate = cell.rates[device];
            if n <= in_flight && below.is_none_or(|(m, o, _)| n > m || n == m && off < o) {
                below = Some((n, off, rate));
            }
            if n >= in_flight && above.is_none_or(|(m, o, _)| n < m || n == m && off < o) {
                above = Some((n, off, rate));
            }
        }
        match (below, above) {
            (Some((n, _, a)), Some((m, _, b))) if m > n => Some(a + (b - a) * (in_flight - n) / (m - n)),
            (Some((_, _, rate)), _) => Some(rate),
            (None, Some((n, _, rate))) => Some(rate * in_flight / n),
            (None, None) => None,
        }
    }

    fn nearest_block(&self, block: u32) -> Option<u32> {
        let off = |other: u32| (f64::from(other.max(1)).log2() - f64::from(block.max(1)).log2()).abs();
        let nearest = self.cells.iter().map(|c| c.at.block).min_by(|a, b| off(*a).total_cmp(&off(*b)))?;
        (off(nearest) <= 1.0).then_some(nearest)
    }

    pub fn save(&self) -> String {
        let mut text = format!("{HEAD}\nmachine {}\n", self.machine);
        for Cell { at: Point { block, depth, threads }, rates: [cache, backend] } in &self.cells {
            let _ = writeln!(text, "cell {block} {depth} {threads} {cache:.1} {backend:.1}");
        }
        let sum = checksum(text.as_bytes());
        let _ = writeln!(text, "checksum {sum:016x}");
        text
    }

    /// Reads what [`Profile::save`] wrote. `here` is this machine; None accepts any.
    pub fn load(text: &str, here: Option<&str>) -> Result<Profile, ProfileError> {
        let damaged = ProfileError::Damaged;
        let (body, sum) = text.rsplit_once("checksum ").ok_or(damaged("its end is missing"))?;
        if sum != format!("{:016x}\n", checksum(body.as_bytes())) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err(damaged("it is of another kind or version"));
        }
        let machine =
            lines.next().and_then(|line| line.strip_prefix("machine ")).ok_or(damaged("no machine"))?;
        if let Some(here) = here
            && here != machine
        {
            return Err(ProfileError::OtherMachine { of: machine.into(), here: here.into() });
        }
        let mut profile = Profile::new(machine);
        for line in lines {
            let (at, rates) = cell_of(line).ok_or(damaged("a line is no cell"))?;
            profile.put(at, rates);
        }
        Ok(profile)
    }
}

fn cell_of(line: &str) -> Option<(Point, [f64; 2])> {
    let mut words = line.strip_prefix("cell ")?.split(' ');
    let mut whole = || words.next()?.parse::<u32>().ok().filter(|n| (1..=1 << 30).contains(n));
    let at = Point { block: whole()?, depth: whole()?, threads: whole()? };
    at.depth.checked_mul(at.threads)?;
    let mut rate = || words.next()?.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 0.0);
    let rates = [rate()?, rate()?];
    words.next().is_none().then_some((at, rates))
}

/// FNV-1a: enough to notice damage.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Profile {
        let mut profile = Profile::new("a");
        for threads in THREADS {
            for depth in DEPTHS {
                let n = f64::from(depth * threads);
                profile.put(
                    Point { block: 65536, depth, threads },
                    [54_000.0 * n.min(2.0), 2_500.0 * n.min(20.0)],
                );
            }
        }
        profile
    }

    #[test]
    fn a_saved_profile_is_loaded_as_it_was() {
        let profile = some();
        assert_eq!(Profile::load(&profile.save(), Some("a")), Ok(profile));
    }

    #[test]
    fn any_changed_or_missing_byte_is_named_as_damage() {
        let text = some().save();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Profile::load(&changed, None).is_err(), "byte {at} was changed");
            let _ = Profile::load(&text[..at], None).unwrap_err();
        }
        let error = Profile::load(&text[..text.len() / 2], None).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("ignored"), "{error}");
    }

    #[test]
    fn a_profile_of_another_machine_is_named_and_refused() {
        let error = Profile::load(&some().save(), Some("b")).unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("`b`"), "{error}");
    }

    #[test]
    fn a_partial_profile_answers_near_its_cells_only() {
        let mut profile = Profile::new("a");
        profile.put(Point { block: 65536, depth: 16, threads: 4 }, [100.0, 50.0]);
        assert!(profile.nearest(Point { block: 65536, depth: 8, threads: 4 }).is_some());
        assert!(profile.nearest(Point { block: 4096, depth: 16, threads: 4 }).is_none());
        assert_eq!(profile.rate_at(0, 4096, 4, 10.0), None);
    }

    #[test]
    fn rates_are_interpolated_between_numbers_in_flight() {
        let profile = some();
        assert_eq!(profile.rate_at(0, 65536, 16, 1.0), Some(54_000.0));
        assert_eq!(profile.rate_at(1, 65536, 1, 3.0), Some(7_500.0));
        assert_eq!(profile.rate_at(0, 65536, 1, 5000.0), Some(108_000.0));
    }
}
