//! Numbers as Redis adds them: the `long double` of x86-64, with 64 bits of mantissa. Decimal texts are rounded to it, sums too, and a sum is printed as it is: so
//! `1234567890123.1` and `0.1` make `1234567890123.20000004768371582`.
//!
//! Values are below 10^20 in magnitude, with at most [`DIGITS`] digits behind the point, as texts; all steps are exact but the roundings, which go to the even
//! neighbour.

/// Digits behind the point.
pub const DIGITS: u32 = 17;
const SCALE: u128 = 10u128.pow(DIGITS);
/// By how many bits the larger number of a sum is shifted at most, so that the smaller one stands below it.
const ALIGN_MAX: u32 = 60;

/// `mantissa` × 2^`exponent`, negative or not. The mantissa's highest bit is set, or it is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extended {
    is_negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// Rounds `value` × 2^`exponent`; `sticky`: something below is not zero.
fn rounded(is_negative: bool, value: u128, exponent: i32, sticky: bool) -> Extended {
    let bits = 128 - value.leading_zeros();
    if bits == 0 {
        return Extended { is_negative, mantissa: 0, exponent: 0 };
    }
    if bits <= 64 {
        let shift = 64 - bits;
        return Extended {
            is_negative,
            mantissa: (value as u64) << shift,
            exponent: exponent - shift as i32,
        };
    }
    let shift = bits - 64;
    let (kept, dropped) = ((value >> shift) as u64, value & ((1 << shift) - 1));
    let half = 1u128 << (shift - 1);
    let is_up = dropped > half || dropped == half && (sticky || kept & 1 == 1);
    let exponent = exponent + shift as i32;
    match kept.checked_add(u64::from(is_up)) {
        Some(mantissa) => Extended { is_negative, mantissa, exponent },
        None => Extended { is_negative, mantissa: 1 << 63, exponent: exponent + 1 },
    }
}

impl Extended {
    /// The nearest to `scaled` / 10^17.
    pub fn of_scaled(scaled: i128) -> Extended {
        let magnitude = scaled.unsigned_abs();
        let (mut value, mut rest, mut exponent) = (magnitude / SCALE, magnitude % SCALE, 0);
        // Two bits more than are kept: the first that is dropped, and a place for what follows.
        while rest != 0 && value >> 66 == 0 {
            rest *= 2;
            value = value << 1 | u128::from(rest >= SCALE);
            rest %= SCALE;
            exponent -= 1;
        }
        rounded(scaled < 0, value, exponent, rest != 0)
    }

    pub fn plus(self, other: Extended) -> Extended {
        let (large, small) =
            match self.exponent >= other.exponent && self.mantissa != 0 || other.mantissa == 0 {
                true => (self, other),
                false => (other, self),
            };
        if small.mantissa == 0 {
            return large;
        }
        let apart = large.exponent.abs_diff(small.exponent);
        let shift = apart.min(ALIGN_MAX);
        let below = (apart - shift).min(127);
        let lower = u128::from(small.mantissa);
        // What falls off is far below the last bit that is kept: one bit stands for it.
        let lost = u128::from(lower & ((1 << below) - 1) != 0);
        let lower = (lower >> below) | lost;
        let signed =
            |is_negative: bool, value: u128| if is_negative { -(value as i128) } else { value as i128 };
        let sum =
            signed(large.is_negative, u128::from(large.mantissa) << shift) + signed(small.is_negative, lower);
        rounded(sum < 0, sum.unsigned_abs(), large.exponent - shift as i32, false)
    }

    /// The nearest multiple of 10^-17, times 10^17. `None` if it is too large.
    pub fn to_scaled(self) -> Option<i128> {
        let scaled = match u32::try_from(self.exponent) {
            Ok(up) => u128::from(self.mantissa).checked_mul(1u128.checked_shl(up)?)?.checked_mul(SCALE)?,
            Err(_) => {
                let (product, down) = (u128::from(self.mantissa) * SCALE, self.exponent.unsigned_abs());
                match down {
                    ..128 => {
                        let (kept, dropped) = (product >> down, product & ((1 << down) - 1));
                        let half = 1u128 << (down - 1);
                        kept + u128::from(dropped > half || dropped == half && kept & 1 == 1)
                    }
                    _ => 0,
                }
            }
        };
        let scaled = i128::try_from(scaled).ok()?;
        Some(if self.is_negative { -scaled } else { scaled })
    }
}
