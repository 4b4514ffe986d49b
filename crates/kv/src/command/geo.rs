//! Positions in sorted sets: adding, reading, distances. Searches are in `geo_search`.

use super::collections::read_zset;
use super::geo_search;
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::resp::Reply;
use crate::value::decimal::{format_g17, parse_double};
use crate::value::geohash::{self, Position};

const READ: Flags = Flags::READONLY;
const ADD: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const STORE: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::MOVABLE_KEYS]);
const ONE_READ: Keys = Keys::one(Access::Read);
const INTO: Keys = Keys::Function(|_| vec![(1, Access::Overwrite), (2, Access::Read)]);
/// The key of the positions, and the one after STORE or STOREDIST.
const MAYBE_INTO: Keys = Keys::Function(|args| {
    let is_store = |arg: &&[u8]| args::is(arg, "STORE") || args::is(arg, "STOREDIST");
    let mut stores = (5..args.len()).filter(|&at| is_store(&args[at])).map(|at| (at + 1, Access::Overwrite));
    std::iter::once((1, Access::Read)).chain(stores.next_back()).collect()
});
const SEARCH: &str = "O(N+log(M)) of the positions in the searched box and inside the shape";

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::Geo, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(
        Row::new("geoadd", -5, ADD, Keys::one(Access::ReadWrite), geoadd),
        "3.2.0",
        "O(log(N)) for each member",
        "Adds positions.",
    ),
    row(
        Row::new("geopos", -2, READ, ONE_READ, geopos),
        "3.2.0",
        "O(1) for each member",
        "Returns the positions of members.",
    ),
    row(
        Row::new("geohash", -2, READ, ONE_READ, geohash),
        "3.2.0",
        "O(1) for each member",
        "Returns the geohashes of members.",
    ),
    row(
        Row::new("geodist", -4, READ, ONE_READ, geodist),
        "3.2.0",
        "O(1)",
        "Returns the distance between two members.",
    ),
    row(
        Row::new("geosearch", -7, READ, ONE_READ, geo_search::geosearch),
        "6.2.0",
        SEARCH,
        "Returns the members inside a circle or a box.",
    ),
    row(
        Row::new("geosearchstore", -8, ADD, INTO, geo_search::geosearchstore),
        "6.2.0",
        SEARCH,
        "Stores the members inside a circle or a box.",
    ),
    row(
        Row::new("georadius", -6, STORE, MAYBE_INTO, geo_search::georadius),
        "3.2.0",
        SEARCH,
        "Returns or stores the members inside a circle around a position.",
    ),
    row(
        Row::new("georadius_ro", -6, READ, ONE_READ, geo_search::georadius_ro),
        "3.2.10",
        SEARCH,
        "Returns the members inside a circle around a position.",
    ),
    row(
        Row::new("georadiusbymember", -5, STORE, MAYBE_INTO, geo_search::georadiusbymember),
        "3.2.0",
        SEARCH,
        "Returns or stores the members inside a circle around a member.",
    ),
    row(
        Row::new("georadiusbymember_ro", -5, READ, ONE_READ, geo_search::georadiusbymember_ro),
        "3.2.10",
        SEARCH,
        "Returns the members inside a circle around a member.",
    ),
];

/// Meters in a unit.
pub fn unit(arg: Arg<'_>) -> Result<f64, CommandError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.iter().find(|(name, _)| args::is(arg, name));
    found
        .map(|&(_, meters)| meters)
        .ok_or(CommandError::of("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

pub fn position(longitude: Arg<'_>, latitude: Arg<'_>) -> Result<Position, CommandError> {
    let number = |arg: Arg<'_>| parse_double(arg).ok_or(CommandError::NotFloat);
    let position = Position { longitude: number(longitude)?, latitude: number(latitude)? };
    if !position.is_valid() {
        return Err(CommandError::err(format_args!(
            "invalid longitude,latitude pair {:.6},{:.6}",
            position.longitude, position.latitude
        )));
    }
    Ok(position)
}

/// A distance in the unit of the client, with four digits behind the point.
pub fn distance(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// A coordinate, with 17 digits behind the point and no trailing zeros.
fn coordinate(reply: &mut Reply, degrees: f64) {
    let text = format!("{degrees:.17}");
    reply.double_text(text.trim_end_matches('0').trim_end_matches('.').as_bytes());
}

pub fn coordinates(reply: &mut Reply, position: Position) {
    reply.array(2);
    coordinate(reply, position.longitude);
    coordinate(reply, position.latitude);
}

fn geoadd(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let options =
        args[2..].iter().take_while(|arg| ["NX", "XX", "CH"].iter().any(|word| args::is(arg, word))).count();
    let (options, triples) = args[2..].split_at(options);
    let has = |word: &str| options.iter().any(|arg| args::is(arg, word));
    if !triples.len().is_multiple_of(3) || (has("NX") && has("XX")) {
        return Err(CommandError::Syntax);
    }
    let mut pairs: Vec<(Vec<u8>, Arg<'_>)> = Vec::with_capacity(triples.len() / 3);
    for triple in triples.chunks_exact(3) {
        let score = geohash::score_of(position(triple[0], triple[1])?);
        pairs.push((format_g17(score).into_bytes(), triple[2]));
    }
    let mut zadd_args: Vec<Arg<'_>> = vec![b"zadd", args[1]];
    zadd_args.extend_from_slice(options);
    for (score, member) in &pairs {
        zadd_args.push(score);
        zadd_args.push(member);
    }
    super::zsets::zadd(ctx, &zadd_args)
}

fn geopos(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => coordinates(reply, geohash::position_of(score)),
            None => reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => reply.bulk(&geohash::text_of(score)),
            None => reply.null(),
        }
    }
    Ok(())
}

fn geodist(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let meters = match args.len() {
        4 => 1.0,
        5 => unit(args[4])?,
        _ => return Err(CommandError::Syntax),
    };
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[1])?;
    let place = |member: Arg<'_>| zset.and_then(|zset| zset.score(member)).map(geohash::position_of);
    match (place(args[2]), place(args[3])) {
        (Some(first), Some(second)) => distance(reply, geohash::distance(first, second) / meters),
        _ => reply.null(),
    }
    Ok(())
}

/// A member of the result of a search.
pub struct Hit {
    pub member: Vec<u8>,
    pub score: f64,
    pub meters: f64,
}

impl Hit {
    pub fn position(&self) -> Position {
        geohash::position_of(self.score)
    }
}
