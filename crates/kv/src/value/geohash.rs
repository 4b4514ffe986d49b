//! Positions on Earth as scores: 52 bits, longitude and latitude interleaved, and the areas that cover a
//! search.
//!
//! A hash of `step` bits a coordinate names a cell; cells of one step tile the map. A search takes the cell of
//! its centre and the eight around it at a step at which nine cells cover the searched box, then tests every
//! position in their score ranges.
//!
//! The range of latitudes is that of the web Mercator projection, so the poles are out of reach.

pub const LONGITUDE_MAX: f64 = 180.0;
pub const LATITUDE_MAX: f64 = 85.05112878;
/// Bits a coordinate in a score.
pub const STEP_MAX: u32 = 26;

const EARTH_RADIUS_METERS: f64 = 6372797.560856;
/// Half the circumference of the Earth in the Mercator projection, in meters.
const MERCATOR_MAX: f64 = 20037726.37;

/// A position in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }
}

/// A cell of the map: `step` bits a coordinate, interleaved; longitude has the odd bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    bits: u64,
    step: u32,
}

/// What a search looks for around a centre. Lengths in meters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    Radius(f64),
    Box { width: f64, height: f64 },
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    longitude: (f64, f64),
    latitude: (f64, f64),
}

/// Spreads the low 32 bits to the even bits.
fn spread(bits: u32) -> u64 {
    let mut wide = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555u64),
    ] {
        wide = (wide | wide << shift) & mask;
    }
    wide
}

/// Collects the even bits.
fn squeeze(bits: u64) -> u32 {
    let mut narrow = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFFu64),
    ] {
        narrow = (narrow | narrow >> shift) & mask;
    }
    narrow as u32
}

fn encode_within(position: Position, step: u32, latitude_max: f64) -> Cell {
    let scale = (1u64 << step) as f64;
    let offset = |value: f64, max: f64| ((value + max) / (2.0 * max) * scale) as u32;
    let latitude = offset(position.latitude, latitude_max);
    let longitude = offset(position.longitude, LONGITUDE_MAX);
    Cell { bits: spread(latitude) | spread(longitude) << 1, step }
}

impl Cell {
    pub fn of(position: Position, step: u32) -> Cell {
        encode_within(position, step, LATITUDE_MAX)
    }

    fn bounds_within(self, latitude_max: f64) -> Bounds {
        let scale = (1u64 << self.step) as f64;
        let (latitude, longitude) = (f64::from(squeeze(self.bits)), f64::from(squeeze(self.bits >> 1)));
        let edge = |cell: f64, max: f64| -max + cell / scale * (2.0 * max);
        Bounds {
            longitude: (edge(longitude, LONGITUDE_MAX), edge(longitude + 1.0, LONGITUDE_MAX)),
            latitude: (edge(latitude, latitude_max), edge(latitude + 1.0, latitude_max)),
        }
    }

    /// The cell `east` and `north` steps away. The map wraps around.
    fn moved(self, east: i32, north: i32) -> Cell {
        let mask = (1u64 << self.step) as u32 - 1;
        let latitude = squeeze(self.bits).wrapping_add_signed(north) & mask;
        let longitude = squeeze(self.bits >> 1).wrapping_add_signed(east) & mask;
        Cell { bits: spread(latitude) | spread(longitude) << 1, step: self.step }
    }

    /// The scores of the positions inside the cell: from the first, up to and without the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// The score of a position in a sorted set.
pub fn score_of(position: Position) -> f64 {
    Cell::of(position, STEP_MAX).bits as f64
}

/// The position that a score stands for: the middle of its cell.
pub fn position_of(score: f64) -> Position {
    let bounds = Cell { bits: score as u64, step: STEP_MAX }.bounds_within(LATITUDE_MAX);
    let middle = |(low, high): (f64, f64), max: f64| ((low + high) / 2.0).clamp(-max, max);
    Position {
        longitude: middle(bounds.longitude, LONGITUDE_MAX),
        latitude: middle(bounds.latitude, LATITUDE_MAX),
    }
}

/// The eleven characters of the standard geohash of a score's position.
pub fn text_of(score: f64) -> [u8; 11] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    // The standard hash has the whole range of latitudes.
    let bits = encode_within(position_of(score), STEP_MAX, 90.0).bits;
    let mut text = [b'0'; 11];
    // 52 bits are ten characters and two bits; the last character says nothing.
    for (at, character) in text.iter_mut().enumerate().take(10) {
        *character = ALPHABET[(bits >> (52 - 5 * (at + 1)) & 31) as usize];
    }
    text
}

fn latitude_distance(first: f64, second: f64) -> f64 {
    EARTH_RADIUS_METERS * (second.to_radians() - first.to_radians()).abs()
}

/// The great-circle distance in meters, by the haversine formula.
pub fn distance(first: Position, second: Position) -> f64 {
    let half_longitude = ((second.longitude.to_radians() - first.longitude.to_radians()) / 2.0).sin();
    if half_longitude == 0.0 {
        return latitude_distance(first.latitude, second.latitude);
    }
    let (first_latitude, second_latitude) = (first.latitude.to_radians(), second.latitude.to_radians());
    let half_latitude = ((second_latitude - first_latitude) / 2.0).sin();
    let chord = half_latitude * half_latitude
        + first_latitude.cos() * second_latitude.cos() * half_longitude * half_longitude;
    2.0 * EARTH_RADIUS_METERS * chord.sqrt().asin()
}

impl Shape {
    /// The distance of `position` from the centre if it's inside the shape.
    pub fn distance_inside(self, center: Position, position: Position) -> Option<f64> {
        match self {
            Shape::Radius(radius) => Some(distance(center, position)).filter(|&meters| meters <= radius),
            Shape::Box { width, height } => {
                if latitude_distance(position.latitude, center.latitude) > height / 2.0 {
                    return None;
                }
                let along = Position { longitude: center.longitude, latitude: position.latitude };
                (distance(position, along) <= width / 2.0).then(|| distance(center, position))
            }
        }
    }

    /// Half the sides of the box that the shape fits in.
    fn half_sides(self) -> (f64, f64) {
        match self {
            Shape::Radius(radius) => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        }
    }

    /// The radius of the circle around the shape.
    fn radius(self) -> f64 {
        match self {
            Shape::Radius(radius) => radius,
            Shape::Box { width, height } => (width / 2.0).hypot(height / 2.0),
        }
    }
}

/// The step at which a cell's neighbours still cover a circle of `radius` meters.
fn step_for(radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEP_MAX;
    }
    let mut step = 1;
    let mut reach = radius;
    while reach < MERCATOR_MAX {
        reach *= 2.0;
        step += 1;
    }
    // One or two steps less, so that the nine cells surely cover the circle; cells near the poles are narrow.
    let narrow = if latitude.abs() > 80.0 { 2 } else { i32::from(latitude.abs() > 66.0) };
    (step - 2 - narrow).clamp(1, STEP_MAX as i32) as u32
}

/// The cells that a search of `shape` around `center` must look at, without duplicates.
pub fn cells_to_search(center: Position, shape: Shape) -> Vec<Cell> {
    let (half_width, half_height) = shape.half_sides();
    let latitude_reach = (half_height / EARTH_RADIUS_METERS).to_degrees();
    // The widest circle of latitude that the shape touches needs the fewest degrees; the one nearest to a pole the most.
    let polar = (center.latitude.abs() + latitude_reach).min(89.9).to_radians();
    let longitude_reach = (half_width / EARTH_RADIUS_METERS / polar.cos()).to_degrees();
    let (west, east) = (center.longitude - longitude_reach, center.longitude + longitude_reach);
    let (south, north) = (center.latitude - latitude_reach, center.latitude + latitude_reach);

    let mut step = step_for(shape.radius(), center.latitude);
    // Near the edge of a cell its neighbours may end inside the shape.
    while step > 1 {
        let cell = Cell::of(center, step);
        let own = cell.bounds_within(LATITUDE_MAX);
        let (width, height) = (own.longitude.1 - own.longitude.0, own.latitude.1 - own.latitude.0);
        let covered = own.longitude.0 - width <= west
            && own.longitude.1 + width >= east
            && own.latitude.0 - height <= south.max(-LATITUDE_MAX)
            && own.latitude.1 + height >= north.min(LATITUDE_MAX);
        if covered {
            break;
        }
        step -= 1;
    }
    let cell = Cell::of(center, step);
    let own = cell.bounds_within(LATITUDE_MAX);
    let mut cells = Vec::with_capacity(9);
    for (east_step, north_step) in
        [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)]
    {
        // From the second step on, a neighbour that the shape doesn't reach is left out.
        let out_of_reach = step >= 2
            && ((north_step < 0 && own.latitude.0 < south)
                || (north_step > 0 && own.latitude.1 > north)
                || (east_step < 0 && own.longitude.0 < west)
                || (east_step > 0 && own.longitude.1 > east));
        let neighbour = cell.moved(east_step, north_step);
        if !out_of_reach && !cells.contains(&neighbour) {
            cells.push(neighbour);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_hashes_and_distances_are_those_of_redis() {
        assert_eq!(score_of(PALERMO), 3479099956230698.0);
        assert_eq!(score_of(CATANIA), 3479447370796909.0);
        assert_eq!(&text_of(score_of(PALERMO)), b"sqc8b49rny0");
        assert_eq!(&text_of(score_of(CATANIA)), b"sqdtr74hyu0");
        let meters = distance(position_of(score_of(PALERMO)), position_of(score_of(CATANIA)));
        assert_eq!(format!("{meters:.4}"), "166274.1516");
    }

    fn position() -> impl Strategy<Value = Position> {
        (-180.0..180.0f64, -85.0..85.0f64).prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    proptest! {
        #[test]
        fn a_position_survives_its_score_within_a_meter(position in position()) {
            prop_assert!(distance(position_of(score_of(position)), position) < 1.0);
        }

        #[test]
        fn cells_cover_every_position_of_the_shape(center in position(), radius_log in 0.0..7.0f64, box_ratio in 0.1..10.0f64, is_box: bool, east in -1.0..1.0f64, north in -1.0..1.0f64) {
            let radius = 10f64.powf(radius_log);
            let shape = if is_box { Shape::Box { width: radius * box_ratio, height: radius } } else { Shape::Radius(radius) };
            let reach = (radius * box_ratio.max(1.0) / EARTH_RADIUS_METERS).to_degrees();
            let near = Position {
                longitude: (center.longitude + east * reach / center.latitude.to_radians().cos()).clamp(-180.0, 179.999),
                latitude: (center.latitude + north * reach).clamp(-85.0, 85.0),
            };
            // Redis, too, misses shapes that reach across a pole or beyond half the map.
            prop_assume!(center.latitude.abs() + reach < 85.0 && reach < 40.0);
            if shape.distance_inside(center, near).is_some() {
                let score = score_of(near);
                let is_covered = cells_to_search(center, shape).into_iter().map(Cell::scores).any(|(low, high)| (low..high).contains(&score));
                prop_assert!(is_covered);
            }
        }
    }
}
