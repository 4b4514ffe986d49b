//! Bits of strings: bit 0 is the highest bit of the first byte. What lies behind the end counts as zero.

/// The bit at `at`.
pub fn get(bytes: &[u8], at: u64) -> bool {
    usize::try_from(at / 8)
        .ok()
        .and_then(|byte| bytes.get(byte))
        .is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

/// Sets the bit at `at`, which lies within `bytes`. Returns the old one.
pub fn set(bytes: &mut [u8], at: u64, on: bool) -> bool {
    let (byte, mask) = ((at / 8) as usize, 0x80u8 >> (at % 8));
    let Some(byte) = bytes.get_mut(byte) else { return false };
    let old = *byte & mask != 0;
    *byte = if on { *byte | mask } else { *byte & !mask };
    old
}

pub fn count(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let whole: u64 = (&mut words)
        .map(|word| u64::from(u64::from_ne_bytes(word.try_into().unwrap_or_default()).count_ones()))
        .sum();
    whole + words.remainder().iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// Set bits among the bits `first` to `last`, both included and within `bytes`.
pub fn count_between(bytes: &[u8], first: u64, last: u64) -> u64 {
    let (from, to) = ((first / 8) as usize, (last / 8) as usize);
    let Some(touched) = bytes.get(from..=to) else { return 0 };
    let before = touched[0] & !(0xff >> (first % 8));
    let after = touched[to - from] & !(0xffu16 << (7 - last % 8)) as u8;
    count(touched) - u64::from(before.count_ones()) - u64::from(after.count_ones())
}

/// The first bit equal to `on` among the bits `first` to `last`, both included and within `bytes`.
pub fn position(bytes: &[u8], on: bool, first: u64, last: u64) -> Option<u64> {
    let skipped: u8 = if on { 0 } else { 0xff };
    let (from, to) = ((first / 8) as usize, (last / 8) as usize);
    for (index, byte) in bytes.get(from..=to)?.iter().enumerate() {
        let index = (from + index) as u64;
        if *byte == skipped {
            continue;
        }
        let in_byte =
            (0..8).map(|bit| index * 8 + bit).find(|at| (first..=last).contains(at) && get(bytes, *at) == on);
        if in_byte.is_some() {
            return in_byte;
        }
    }
    None
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    And,
    Or,
    Xor,
    /// Of one string.
    Not,
}

/// Combines strings, the shorter ones extended by zeros.
pub fn combine(operation: Operation, sources: &[&[u8]]) -> Vec<u8> {
    let length = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let Some((first, rest)) = sources.split_first() else { return Vec::new() };
    let mut result = first.to_vec();
    result.resize(length, 0);
    if operation == Operation::Not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
        return result;
    }
    for source in rest {
        let (common, beyond) = result.split_at_mut(source.len());
        let pairs = common.iter_mut().zip(*source);
        match operation {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                beyond.fill(0);
            }
            Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Operation::Not => {}
        }
    }
    result
}

/// An integer within a string: `u1` to `u63`, `i1` to `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub is_signed: bool,
    pub bits: u32,
}

/// What a change that leaves the field's range does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    Wrap,
    /// The nearest bound.
    Saturate,
    /// Nothing.
    Fail,
}

impl Field {
    pub fn parse(text: &[u8]) -> Option<Field> {
        let (kind, digits) = text.split_first()?;
        let is_signed = match kind {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        let bits: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let most = if is_signed { 64 } else { 63 };
        (digits[0].is_ascii_digit() && (1..=most).contains(&bits)).then_some(Field { is_signed, bits })
    }

    fn bounds(self) -> (i128, i128) {
        if self.is_signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The integer at bit `at`.
    pub fn get(self, bytes: &[u8], at: u64) -> i64 {
        let raw =
            (0..u64::from(self.bits)).fold(0u64, |value, bit| value << 1 | u64::from(get(bytes, at + bit)));
        if self.is_signed {
            let unused = 64 - self.bits;
            (raw << unused) as i64 >> unused
        } else {
            raw as i64
        }
    }

    /// Stores the low bits of `value` at bit `at`. The field lies within `bytes`.
    pub fn set(self, bytes: &mut [u8], at: u64, value: i64) {
        for bit in 0..u64::from(self.bits) {
            set(bytes, at + bit, value >> (u64::from(self.bits) - 1 - bit) & 1 == 1);
        }
    }

    /// What `value` becomes in this field. Nothing if it does not fit and `overflow` is [`Overflow::Fail`].
    pub fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.bounds();
        let fitting = match overflow {
            _ if (min..=max).contains(&value) => value,
            Overflow::Fail => return None,
            Overflow::Saturate => value.clamp(min, max),
            Overflow::Wrap => min + (value - min).rem_euclid(1 << self.bits),
        };
        Some(fitting as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_and_positions_equal_those_of_a_walk_over_bits(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 1..40), a in any::<u64>(), b in any::<u64>(), on in any::<bool>()) {
            let bits = bytes.len() as u64 * 8;
            let (first, last) = ((a % bits).min(b % bits), (a % bits).max(b % bits));
            let walked = (first..=last).filter(|at| get(&bytes, *at)).count() as u64;
            prop_assert_eq!(count_between(&bytes, first, last), walked);
            prop_assert_eq!(count(&bytes), count_between(&bytes, 0, bits - 1));
            prop_assert_eq!(position(&bytes, on, first, last), (first..=last).find(|at| get(&bytes, *at) == on));
        }

        #[test]
        fn a_field_reads_back_and_leaves_its_neighbours(bytes in proptest::collection::vec(any::<u8>(), 20), at in 0u64..90, bits in 1u32..64, is_signed in any::<bool>(), value in any::<i64>()) {
            let field = Field { is_signed, bits };
            let mut changed = bytes.clone();
            let stored = field.fit(i128::from(value), Overflow::Wrap).unwrap();
            field.set(&mut changed, at, stored);
            prop_assert_eq!(field.get(&changed, at), stored);
            prop_assert_eq!((stored ^ value) << (64 - bits), 0);
            let outside = |bytes: &[u8]| (0..160).filter(|bit| !(at..at + u64::from(bits)).contains(bit)).map(|bit| get(bytes, bit)).collect::<Vec<_>>();
            prop_assert_eq!(outside(&changed), outside(&bytes));
        }
    }

    #[test]
    fn overflow_follows_its_kind() {
        let unsigned = Field::parse(b"u8").unwrap();
        assert_eq!(unsigned.fit(257, Overflow::Wrap), Some(1));
        assert_eq!(unsigned.fit(257, Overflow::Saturate), Some(255));
        assert_eq!(unsigned.fit(-1, Overflow::Saturate), Some(0));
        assert_eq!(unsigned.fit(257, Overflow::Fail), None);
        let signed = Field::parse(b"i64").unwrap();
        assert_eq!(signed.fit(i128::from(i64::MAX) + 1, Overflow::Wrap), Some(i64::MIN));
        assert_eq!(signed.fit(i128::from(i64::MIN) - 5, Overflow::Saturate), Some(i64::MIN));
        for refused in [&b"u64"[..], b"i65", b"u0", b"x8", b"i", b"i+3", b""] {
            assert_eq!(Field::parse(refused), None);
        }
    }
}
