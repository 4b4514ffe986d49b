//! Changes of valid bytes that keep most of their shape.

/// Random numbers from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
    /// Below `n`, which is above 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Changes `bytes` in a few places; in two of three cases within a header. `headers`: one begins each so
/// many bytes and is so long.
pub fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>, headers: (usize, usize)) {
    let most = [1, 2, 4, 16][dice.below(4)];
    let changes = 1 + dice.below(most);
    // Often in one neighbourhood: what belongs together is wrong together.
    let mut near = place(dice, bytes.len(), headers);
    for _ in 0..changes {
        if bytes.is_empty() {
            bytes.push(dice.next() as u8);
            continue;
        }
        if dice.one_in(2) {
            near = place(dice, bytes.len(), headers);
        }
        let at = (near + dice.below(16)).min(bytes.len() - 1);
        change(dice, bytes, at);
    }
}

fn place(dice: &mut Dice, len: usize, (period, header): (usize, usize)) -> usize {
    if len == 0 {
        return 0;
    }
    let at = dice.below(len);
    if dice.one_in(3) || period == 0 {
        return at;
    }
    (at / period * period + dice.below(header.max(1))).min(len - 1)
}

fn change(dice: &mut Dice, bytes: &mut Vec<u8>, at: usize) {
    let len = bytes.len();
    match dice.below(12) {
        0 | 1 => bytes[at] ^= 1 << dice.below(8),
        2 => bytes[at] = dice.next() as u8,
        3..=7 => number(dice, bytes, at),
        8 => {
            // A piece of itself, elsewhere.
            let n = 1 + dice.below(64.min(len));
            let (from, to) = (dice.below(len - n + 1), dice.below(len - n + 1));
            bytes.copy_within(from..from + n, to);
        }
        9 => {
            let n = (1 + dice.below(32)).min(len - at);
            bytes[at..at + n].fill([0, 0xFF, dice.next() as u8][dice.below(3)]);
        }
        10 if dice.one_in(4) => bytes.truncate(dice.below(len)),
        _ => {
            let old = bytes[at];
            bytes[at] = if dice.one_in(2) { old.wrapping_add(1) } else { old.wrapping_sub(1) };
        }
    }
}

/// Writes a number that is likely to be at some border.
fn number(dice: &mut Dice, bytes: &mut [u8], at: usize) {
    let width = [1, 2, 2, 4, 4, 8][dice.below(6)];
    let at = at & !(width - 1);
    let Some(field) = bytes.get_mut(at..at + width) else { return };
    let mut old = [0; 8];
    old[..width].copy_from_slice(field);
    let (old, top) = (u64::from_le_bytes(old), u64::MAX >> (64 - 8 * width as u32));
    let new = match dice.below(12) {
        0 => 0,
        1 => 1,
        2 => top,
        3 => top - 1,
        4 => top / 2 + 1,
        5 => old.wrapping_add(1),
        6 => old.wrapping_sub(1),
        7 => 1 << dice.below(8 * width),
        8 => 16 * 1024 - dice.below(3) as u64,
        9 => dice.below(256) as u64,
        10 => dice.below(16 * 1024) as u64,
        _ => dice.next(),
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
}
