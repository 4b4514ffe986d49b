//! Prices, in dollars: for a GB and month in each tier, and for requests to the store. CloudJump III, Table 1; what a
//! request costs is Amazon's price for S3 Standard.

/// Hours of a month, as providers count them.
pub const MONTH_HOURS: f64 = 730.0;
pub const MONTH_SECONDS: f64 = MONTH_HOURS * 3600.0;
/// Bytes of a GB, as providers count them.
pub const GB: f64 = (1u64 << 30) as f64;
/// No price is higher, in dollars.
pub const DOLLARS_MAX: f64 = 1e6;

/// An amount in billionths of a dollar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Default)]
pub struct Price(pub u64);

impl Price {
    /// None: negative, not a number, or more than [`DOLLARS_MAX`].
    pub fn of_dollars(dollars: f64) -> Option<Price> {
        (0.0..=DOLLARS_MAX).contains(&dollars).then(|| Price((dollars * 1e9).round() as u64))
    }
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl std::fmt::Display for Price {
    /// With all its digits, and a point: TOML reads it as a number with a fraction.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fraction = format!("{:09}", self.0 % 1_000_000_000);
        let digits = fraction.trim_end_matches('0');
        write!(f, "{}.{}", self.0 / 1_000_000_000, if digits.is_empty() { "0" } else { digits })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// For a GB (2³⁰ bytes) and month.
    pub memory: Price,
    pub flash: Price,
    pub volume: Price,
    pub object: Price,
    /// For a thousand requests.
    pub puts: Price,
    pub gets: Price,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices {
            memory: Price(1_600_000_000),
            flash: Price(50_000_000),
            volume: Price(152_000_000),
            object: Price(16_000_000),
            puts: Price(5_000_000),
            gets: Price(400_000),
        }
    }
}

/// What `bytes` bytes cost a month, in dollars.
pub fn storage(bytes: u64, price: Price) -> f64 {
    bytes as f64 / GB * price.dollars()
}

/// What `count` requests in `seconds` seconds cost, in dollars, if a month goes on like this.
pub fn requests(count: u64, price: Price, seconds: f64) -> f64 {
    if seconds <= 0.0 { 0.0 } else { count as f64 / 1000.0 * price.dollars() * MONTH_SECONDS / seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_as_they_are_shown() {
        for dollars in [0.0, 0.0004, 0.016, 1.6, 42.0, 1e6] {
            let price = Price::of_dollars(dollars).unwrap();
            assert_eq!(price.dollars(), dollars);
            assert_eq!(price.to_string().parse::<f64>().unwrap(), dollars, "{price}");
        }
        for dollars in [-0.01, f64::NAN, f64::INFINITY, 1.1e6] {
            assert_eq!(Price::of_dollars(dollars), None, "{dollars}");
        }
    }

    #[test]
    fn a_month_of_storage_and_of_requests() {
        let prices = Prices::default();
        assert!((storage(100 << 30, prices.object) - 1.6).abs() < 1e-9);
        assert!((storage(1 << 29, prices.memory) - 0.8).abs() < 1e-9);
        // A request a second is 2 628 000 a month.
        assert!((requests(10, prices.puts, 10.0) - 13.14).abs() < 1e-9);
        assert!((requests(2_628_000, prices.gets, MONTH_SECONDS) - 1.0512).abs() < 1e-9);
        assert_eq!(requests(5, prices.gets, 0.0), 0.0);
    }
}
