//! LZF, the compression of long strings in RDB: literals and back-references in runs, no header.
//!
//! A control byte below 32 introduces that many literals plus one. Another one holds a length in its upper three bits (7: a byte with the
//! rest follows) and the upper five bits of a distance; the lower eight bits follow. A reference is at most 264 bytes long and at most 8192
//! bytes back, and may overlap what it produces.

const MAX_LITERALS: usize = 32;
const MAX_DISTANCE: usize = 1 << 13;
const MAX_REFERENCE: usize = 264;
const HASH_BITS_MAX: u32 = 14;

/// The most bytes that `compressed` bytes can expand to.
pub fn expansion_max(compressed: u64) -> u64 {
    compressed.saturating_mul(MAX_REFERENCE as u64)
}

/// Compresses `input`, or returns nothing if that would not save at least four bytes.
pub fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let limit = input.len().checked_sub(4)?;
    let mut output = Vec::with_capacity(limit);
    // Position plus one of the last occurrence of each hash of three bytes.
    // A table about as large as the input, so that a short string does not pay for clearing a large one.
    let hash_bits = (usize::BITS - input.len().leading_zeros()).min(HASH_BITS_MAX);
    let mut seen = vec![0u32; 1 << hash_bits];
    let mut literals_from = 0;
    let mut at = 0;
    while at + 2 < input.len() {
        let three = u32::from(input[at]) << 16 | u32::from(input[at + 1]) << 8 | u32::from(input[at + 2]);
        let slot = (three.wrapping_mul(0x9e37_79b1) >> (32 - hash_bits)) as usize;
        let candidate = (seen[slot] as usize).checked_sub(1);
        seen[slot] = u32::try_from(at + 1).ok()?;
        let matched = candidate
            .filter(|from| at - from <= MAX_DISTANCE && input[*from..*from + 3] == input[at..at + 3]);
        let Some(from) = matched else {
            at += 1;
            continue;
        };
        let most = MAX_REFERENCE.min(input.len() - at);
        let length = 3 + (3..most).take_while(|i| input[from + i] == input[at + i]).count();
        put_literals(&mut output, &input[literals_from..at]);
        let (distance, code) = (at - from - 1, length - 2);
        if code < 7 {
            output.push((code << 5 | distance >> 8) as u8);
        } else {
            output.push((7 << 5 | distance >> 8) as u8);
            output.push((code - 7) as u8);
        }
        output.push(distance as u8);
        at += length;
        literals_from = at;
        if output.len() > limit {
            return None;
        }
    }
    put_literals(&mut output, &input[literals_from..]);
    (output.len() <= limit).then_some(output)
}

fn put_literals(output: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(MAX_LITERALS) {
        output.push((run.len() - 1) as u8);
        output.extend_from_slice(run);
    }
}

/// Expands `input` to exactly `length` bytes. Nothing if it is not LZF of that length.
pub fn decompress(input: &[u8], length: usize) -> Option<Vec<u8>> {
    if length as u64 > expansion_max(input.len() as u64) {
        return None;
    }
    let mut output = Vec::with_capacity(length);
    let mut at = 0;
    while at < input.len() {
        let control = input[at] as usize;
        at += 1;
        if control < MAX_LITERALS {
            let run = input.get(at..at + control + 1)?;
            at += run.len();
            output.extend_from_slice(run);
        } else {
            let mut code = control >> 5;
            if code == 7 {
                code += *input.get(at)? as usize;
                at += 1;
            }
            let distance = ((control & 31) << 8 | *input.get(at)? as usize) + 1;
            at += 1;
            let from = output.len().checked_sub(distance)?;
            if output.len() + code + 2 > length {
                return None;
            }
            for i in 0..code + 2 {
                output.push(output[from + i]);
            }
        }
        if output.len() > length {
            return None;
        }
    }
    (output.len() == length).then_some(output)
}
