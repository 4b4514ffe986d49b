//! Numbers of variable length: seven bits in each byte, the lowest first, and as few bytes as it takes. The high bit says that another
//! byte follows.

/// Numbers one behind the other, in a bounded number of bytes.
pub struct Numbers<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Numbers<N> {
    pub fn new() -> Numbers<N> {
        Numbers { bytes: [0; N], len: 0 }
    }

    #[inline]
    pub fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Why there is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoNumber {
    /// The bytes end before it does.
    Short,
    /// It is longer than it need be, or has more bits than it may.
    Nonsense,
}

/// Takes the number at the start of `bytes`.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Result<u64, NoNumber> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Ok(u64::from(byte))
        }
        _ => take_long(bytes),
    }
}

fn take_long(bytes: &mut &[u8]) -> Result<u64, NoNumber> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(NoNumber::Short)?;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits {
            return Err(NoNumber::Nonsense);
        }
        number |= bits << shift;
        if byte < 0x80 {
            return if byte == 0 { Err(NoNumber::Nonsense) } else { Ok(number) };
        }
    }
    Err(NoNumber::Nonsense)
}
