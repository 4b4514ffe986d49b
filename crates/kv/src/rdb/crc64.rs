//! CRC-64 with the Jones polynomial, reflected, without inversion: the checksum of RDB files and DUMP payloads.

/// The polynomial 0xad93d23594c935a9 with its bits reversed.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// Eight tables: `TABLES[k][b]` is the checksum of byte `b` followed by `k` zero bytes.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// Continues `crc` (0 at the start) over `bytes`.
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mixed = crc ^ word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        crc = (0..8).fold(0, |sum, k| sum ^ TABLES[7 - k][(mixed >> (8 * k) & 255) as usize]);
    }
    for byte in words.remainder() {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u64::from(*byte)) & 255) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_the_check_string_is_the_published_one() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn a_checksum_in_parts_equals_that_of_the_whole() {
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), crc64(0, &bytes));
        }
    }
}
