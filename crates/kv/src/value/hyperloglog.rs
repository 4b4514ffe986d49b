//! HyperLogLog in a string, byte-compatible with Redis's, so that GET, SET, DUMP and RESTORE carry it.
//!
//! A header of 16 bytes (`HYLL`, encoding, three zeros, the cached count with its top bit set when stale), then 16,384 registers of 6 bits: dense in
//! 12,288 bytes, or sparse as runs of registers of one value. A run is a byte `00LLLLLL` (zeros, 1 to 64), two bytes `01LLLLLL LLLLLLLL`
//! (zeros, 1 to 16,384) or a byte `1VVVVVLL` (value 1 to 32, 1 to 4 times). A sparse one becomes dense when it grows beyond a limit or a value
//! does not fit; never the other way round.
//!
//! Bytes may come from SET, so none is trusted: what does not decode is [`Corrupt`].

const HEADER_BYTES: usize = 16;
const ENCODING_AT: usize = 4;
const CACHE_AT: usize = 8;
const STALE_AT: usize = 15;
const STALE: u8 = 0x80;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const INDEX_BITS: u32 = 14;
pub const REGISTERS: usize = 1 << INDEX_BITS;
const REGISTER_BITS: usize = 6;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// The largest value of a register: zeros of 50 bits of hash, plus one.
const VALUE_MAX: usize = 64 - INDEX_BITS as usize + 1;
const SPARSE_VALUE_MAX: u8 = 32;

/// The runs of a sparse one do not describe the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// An empty one, sparse.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..4].copy_from_slice(b"HYLL");
    bytes[ENCODING_AT] = SPARSE;
    write_runs(&mut bytes, &[Run { value: 0, length: REGISTERS }]);
    bytes
}

/// As [`empty`], with a count that is stale, as in Redis after a `PFADD` that made the key.
pub fn uncounted() -> Vec<u8> {
    let mut bytes = empty();
    bytes[STALE_AT] |= STALE;
    bytes
}

/// Whether the header and, if dense, the size are right.
pub fn is_valid(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES
        && bytes.starts_with(b"HYLL")
        && match bytes[ENCODING_AT] {
            DENSE => bytes.len() == DENSE_BYTES,
            SPARSE => true,
            _ => false,
        }
}

pub fn is_sparse(bytes: &[u8]) -> bool {
    bytes.get(ENCODING_AT) == Some(&SPARSE)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub value: u8,
    pub length: usize,
}

/// The runs of a sparse one, each with its size in bytes. Ends early where they are malformed.
fn raw_runs(mut bytes: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let (first, rest) = bytes.split_first()?;
        bytes = rest;
        Some(match first >> 6 {
            0 => Run { value: 0, length: usize::from(first & 63) + 1 },
            1 => {
                let (second, rest) = bytes.split_first()?;
                bytes = rest;
                Run { value: 0, length: (usize::from(first & 63) << 8 | usize::from(*second)) + 1 }
            }
            _ => Run { value: (first >> 2 & 31) + 1, length: usize::from(first & 3) + 1 },
        })
    })
}

/// The runs as they are stored, if they cover all registers exactly.
pub fn stored_runs(bytes: &[u8]) -> Result<Vec<Run>, Corrupt> {
    let runs: Vec<Run> = raw_runs(bytes.get(HEADER_BYTES..).ok_or(Corrupt)?).collect();
    let covered: usize = runs.iter().map(|run| run.length).sum();
    if covered == REGISTERS { Ok(runs) } else { Err(Corrupt) }
}

fn write_runs(bytes: &mut Vec<u8>, runs: &[Run]) {
    bytes.truncate(HEADER_BYTES);
    for run in runs {
        if run.value > 0 {
            let mut left = run.length;
            while left > 0 {
                let length = left.min(4);
                bytes.push(0x80 | (run.value - 1) << 2 | (length - 1) as u8);
                left -= length;
            }
        } else if run.length <= 64 {
            bytes.push((run.length - 1) as u8);
        } else {
            bytes.extend_from_slice(&[0x40 | ((run.length - 1) >> 8) as u8, (run.length - 1) as u8]);
        }
    }
}

fn dense_register(registers: &[u8], index: usize) -> u8 {
    let bit = index * REGISTER_BITS;
    let low = u16::from(registers[bit / 8]);
    let high = u16::from(*registers.get(bit / 8 + 1).unwrap_or(&0));
    ((high << 8 | low) >> (bit % 8) & 63) as u8
}

fn set_dense_register(registers: &mut [u8], index: usize, value: u8) {
    let bit = index * REGISTER_BITS;
    let (byte, shift) = (bit / 8, bit % 8);
    let mask = 63u16 << shift;
    let bits = u16::from(value) << shift;
    registers[byte] = registers[byte] & !(mask as u8) | bits as u8;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = *next & !((mask >> 8) as u8) | (bits >> 8) as u8;
    }
}

/// The value of every register.
pub fn registers(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    if !is_sparse(bytes) {
        let dense = bytes.get(HEADER_BYTES..DENSE_BYTES).ok_or(Corrupt)?;
        return Ok((0..REGISTERS).map(|index| dense_register(dense, index)).collect());
    }
    let mut values = Vec::with_capacity(REGISTERS);
    for run in stored_runs(bytes)? {
        values.resize(values.len() + run.length, run.value);
    }
    Ok(values)
}

/// Makes it dense.
pub fn to_dense(bytes: &mut Vec<u8>) -> Result<(), Corrupt> {
    if is_sparse(bytes) {
        let values = registers(bytes)?;
        store_dense(bytes, &values);
    }
    Ok(())
}

fn store_dense(bytes: &mut Vec<u8>, values: &[u8]) {
    bytes.truncate(HEADER_BYTES);
    bytes.resize(DENSE_BYTES, 0);
    bytes[ENCODING_AT] = DENSE;
    for (index, value) in values.iter().enumerate() {
        set_dense_register(&mut bytes[HEADER_BYTES..], index, *value);
    }
}

/// Adds an element. Returns whether a register changed; the cached count is stale then.
pub fn add(bytes: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupt> {
    let hash = murmur64(element);
    let index = hash as usize & (REGISTERS - 1);
    let value = ((hash >> INDEX_BITS) | 1 << (64 - INDEX_BITS)).trailing_zeros() as u8 + 1;
    let changed = raise(bytes, index, value, sparse_bytes_max)?;
    if changed {
        bytes[STALE_AT] |= STALE;
    }
    Ok(changed)
}

/// Sets register `index` to `value` if it is smaller.
fn raise(bytes: &mut Vec<u8>, index: usize, value: u8, sparse_bytes_max: usize) -> Result<bool, Corrupt> {
    if is_sparse(bytes) {
        let mut runs = stored_runs(bytes)?;
        let mut from = 0;
        let Some(at) = runs.iter().position(|run| {
            from += run.length;
            from > index
        }) else {
            return Err(Corrupt);
        };
        let run = runs[at];
        if run.value >= value {
            return Ok(false);
        }
        if value <= SPARSE_VALUE_MAX {
            let before = index - (from - run.length);
            let parts = [(run.value, before), (value, 1), (run.value, run.length - before - 1)];
            runs.splice(
                at..=at,
                parts
                    .into_iter()
                    .filter(|(_, length)| *length > 0)
                    .map(|(value, length)| Run { value, length }),
            );
            runs.dedup_by(|next, run| {
                let same = next.value == run.value;
                if same {
                    run.length += next.length;
                }
                same
            });
            write_runs(bytes, &runs);
            if bytes.len() > sparse_bytes_max.saturating_add(HEADER_BYTES) {
                to_dense(bytes)?;
            }
            return Ok(true);
        }
        to_dense(bytes)?;
    }
    let dense = bytes.get_mut(HEADER_BYTES..DENSE_BYTES).ok_or(Corrupt)?;
    if dense_register(dense, index) >= value {
        return Ok(false);
    }
    set_dense_register(dense, index, value);
    Ok(true)
}

/// The cached count, if it is not stale.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let cache = *bytes.get(CACHE_AT..)?.first_chunk::<8>()?;
    (bytes[STALE_AT] & STALE == 0).then_some(u64::from_le_bytes(cache))
}

pub fn cache(bytes: &mut [u8], count: u64) {
    if let Some(cache) = bytes.get_mut(CACHE_AT..HEADER_BYTES) {
        cache.copy_from_slice(&count.to_le_bytes());
    }
}

/// Takes the larger value of each register into `union`.
pub fn merge_into(union: &mut [u8], bytes: &[u8]) -> Result<(), Corrupt> {
    for (mine, other) in union.iter_mut().zip(registers(bytes)?) {
        *mine = (*mine).max(other);
    }
    Ok(())
}

/// Replaces the registers. The result is dense if `dense` says so or it does not fit the sparse form.
pub fn store(bytes: &mut Vec<u8>, values: &[u8], dense: bool, sparse_bytes_max: usize) {
    let fits = values.iter().all(|value| *value <= SPARSE_VALUE_MAX);
    if dense || !fits {
        store_dense(bytes, values);
    } else {
        let mut runs: Vec<Run> = Vec::new();
        for value in values {
            match runs.last_mut() {
                Some(run) if run.value == *value => run.length += 1,
                _ => runs.push(Run { value: *value, length: 1 }),
            }
        }
        bytes[ENCODING_AT] = SPARSE;
        write_runs(bytes, &runs);
        if bytes.len() > sparse_bytes_max.saturating_add(HEADER_BYTES) {
            store_dense(bytes, values);
        }
    }
    bytes[STALE_AT] |= STALE;
}

/// The estimate of the number of distinct elements, from the values of the registers: Ertl, "New cardinality estimation algorithms for
/// HyperLogLog sketches", the improved raw estimator.
pub fn estimate(values: &[u8]) -> u64 {
    let mut histogram = [0u32; 64];
    for value in values {
        histogram[usize::from(value & 63)] += 1;
    }
    let m = REGISTERS as f64;
    let mut z = m * tau((m - f64::from(histogram[VALUE_MAX])) / m);
    for count in histogram[1..VALUE_MAX].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA * m * m / z).round() as u64
}

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// MurmurHash64A with the seed that Redis uses.
pub fn murmur64(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| {
        let word = word.wrapping_mul(M);
        (word ^ word >> 47).wrapping_mul(M)
    };
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        hash = (hash ^ mix(word)).wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sparse_and_dense_hold_the_same_registers(elements in proptest::collection::vec(any::<u32>(), 0..1500), limit in 0usize..3000) {
            let (mut sparse, mut dense) = (empty(), empty());
            to_dense(&mut dense).unwrap();
            for element in &elements {
                let element = element.to_string();
                prop_assert_eq!(add(&mut sparse, element.as_bytes(), limit), add(&mut dense, element.as_bytes(), limit));
            }
            prop_assert_eq!(registers(&sparse), registers(&dense));
            let values = registers(&sparse).unwrap();
            let mut stored = empty();
            store(&mut stored, &values, false, limit);
            prop_assert_eq!(registers(&stored).unwrap(), values);
        }

        #[test]
        fn hostile_bytes_are_corrupt_without_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = empty();
            bytes.truncate(HEADER_BYTES);
            bytes.extend_from_slice(&tail);
            let _ = registers(&bytes);
            let _ = add(&mut bytes, b"x", 3000);
        }
    }

    #[test]
    fn the_estimate_is_within_four_standard_errors() {
        let mut bytes = empty();
        for count in 1..=100_000u64 {
            add(&mut bytes, count.to_string().as_bytes(), 3000).unwrap();
            if matches!(count, 10 | 100 | 1000 | 10_000 | 100_000) {
                let estimate = estimate(&registers(&bytes).unwrap()) as f64;
                assert!((estimate / count as f64 - 1.0).abs() < 4.0 * 0.0081, "{count}: {estimate}");
            }
        }
        assert!(!is_sparse(&bytes));
    }
}
