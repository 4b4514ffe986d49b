//! Searches around a position: GEOSEARCH, GEOSEARCHSTORE and the older GEORADIUS commands.

use super::collections::{read_zset, store};
use super::geo::{self, Hit};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Class;
use crate::value::decimal::parse_double;
use crate::value::geohash::{self, Position, Shape};
use crate::value::zset::Zset;

/// How a command's arguments are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `key longitude latitude radius unit`.
    Radius,
    /// `key member radius unit`.
    RadiusByMember,
    /// `key`, and the rest are options.
    Search,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    None,
    Ascending,
    Descending,
}

struct Request<'a> {
    center: Option<Position>,
    shape: Option<Shape>,
    /// Meters in the unit of the client.
    unit: f64,
    sort: Sort,
    count: usize,
    /// Whether the first `count` that are found will do, instead of the nearest.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    target: Option<Arg<'a>>,
    stores_distance: bool,
}

fn radius(arg: Arg<'_>, unit: Arg<'_>) -> Result<(Shape, f64), CommandError> {
    let radius = parse_double(arg).ok_or(CommandError::of("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(CommandError::of("ERR radius cannot be negative"));
    }
    let unit = geo::unit(unit)?;
    Ok((Shape::Radius(radius * unit), unit))
}

fn rectangle(width: Arg<'_>, height: Arg<'_>, unit: Arg<'_>) -> Result<(Shape, f64), CommandError> {
    let width = parse_double(width).ok_or(CommandError::of("ERR need numeric width"))?;
    let height = parse_double(height).ok_or(CommandError::of("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(CommandError::of("ERR height or width cannot be negative"));
    }
    let unit = geo::unit(unit)?;
    Ok((Shape::Box { width: width * unit, height: height * unit }, unit))
}

/// The position of a member; `None` if there is no sorted set, which is an empty result and not an error.
fn member_position(zset: Option<&Zset>, member: Arg<'_>) -> Result<Option<Position>, CommandError> {
    let Some(zset) = zset else { return Ok(None) };
    let score = zset.score(member).ok_or(CommandError::of("ERR could not decode requested zset member"))?;
    Ok(Some(geohash::position_of(score)))
}

impl<'a> Request<'a> {
    /// Parses a command. `rest` is what follows the key; `target` is the key of GEOSEARCHSTORE.
    fn parse(
        zset: Option<&Zset>,
        name: Arg<'a>,
        rest: &[Arg<'a>],
        form: Form,
        may_store: bool,
        target: Option<Arg<'a>>,
    ) -> Result<Request<'a>, CommandError> {
        let mut request = Request {
            center: None,
            shape: None,
            unit: 1.0,
            sort: Sort::None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_position: false,
            target,
            stores_distance: false,
        };
        let (mut from_member, mut from_position) = (false, false);
        let options = match form {
            Form::Radius => {
                request.center = Some(geo::position(rest[0], rest[1])?);
                request.set_shape(radius(rest[2], rest[3])?);
                &rest[4..]
            }
            Form::RadiusByMember => {
                request.center = member_position(zset, rest[0])?;
                // Redis doesn't look at the radius if there is no sorted set to search.
                request.set_shape(match zset {
                    Some(_) => radius(rest[1], rest[2])?,
                    None => (Shape::Radius(0.0), 1.0),
                });
                &rest[3..]
            }
            Form::Search => rest,
        };
        let is_search = form == Form::Search;
        let is_store = target.is_some();
        let mut at = 0;
        while let Some(&word) = options.get(at) {
            let after = &options[at + 1..];
            let mut used = 0;
            match after {
                _ if args::is(word, "WITHDIST") => request.with_distance = true,
                _ if args::is(word, "WITHHASH") => request.with_hash = true,
                _ if args::is(word, "WITHCOORD") => request.with_position = true,
                _ if args::is(word, "ANY") => request.any = true,
                _ if args::is(word, "ASC") => request.sort = Sort::Ascending,
                _ if args::is(word, "DESC") => request.sort = Sort::Descending,
                [count, ..] if args::is(word, "COUNT") => {
                    let count = args::int(count)?;
                    request.count = usize::try_from(count)
                        .ok()
                        .filter(|&count| count > 0)
                        .ok_or(CommandError::of("ERR COUNT must be > 0"))?;
                    used = 1;
                }
                [key, ..] if may_store && !is_search && args::is(word, "STORE") => {
                    request.target = Some(key);
                    request.stores_distance = false;
                    used = 1;
                }
                [key, ..] if may_store && !is_search && args::is(word, "STOREDIST") => {
                    request.target = Some(key);
                    request.stores_distance = true;
                    used = 1;
                }
                [member, ..] if is_search && !from_position && args::is(word, "FROMMEMBER") => {
                    request.center = member_position(zset, member)?;
                    from_member = true;
                    used = 1;
                }
                [longitude, latitude, ..] if is_search && !from_member && args::is(word, "FROMLONLAT") => {
                    request.center = Some(geo::position(longitude, latitude)?);
                    from_position = true;
                    used = 2;
                }
                [length, unit, ..]
                    if is_search
                        && !matches!(request.shape, Some(Shape::Box { .. }))
                        && args::is(word, "BYRADIUS") =>
                {
                    request.set_shape(radius(length, unit)?);
                    used = 2;
                }
                [width, height, unit, ..]
                    if is_search
                        && !matches!(request.shape, Some(Shape::Radius(_)))
                        && args::is(word, "BYBOX") =>
                {
                    request.set_shape(rectangle(width, height, unit)?);
                    used = 3;
                }
                _ if is_search && is_store && args::is(word, "STOREDIST") => request.stores_distance = true,
                _ => return Err(CommandError::Syntax),
            }
            at += 1 + used;
        }
        request.check(form, name, from_member || from_position)?;
        Ok(request)
    }

    fn set_shape(&mut self, (shape, unit): (Shape, f64)) {
        self.shape = Some(shape);
        self.unit = unit;
    }

    fn check(&mut self, form: Form, name: Arg<'_>, has_center: bool) -> Result<(), CommandError> {
        let is_search = form == Form::Search;
        if self.target.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            return Err(CommandError::err(format_args!(
                "{} is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
                if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" }
            )));
        }
        if is_search && !has_center {
            return Err(CommandError::err(format_args!(
                "exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
                args::text(name)
            )));
        }
        if self.shape.is_none() {
            return Err(CommandError::err(format_args!(
                "exactly one of BYRADIUS and BYBOX can be specified for {}",
                args::text(name)
            )));
        }
        if self.any && self.count == 0 {
            return Err(CommandError::of("ERR the ANY argument requires COUNT argument"));
        }
        if self.count > 0 && self.sort == Sort::None && !self.any {
            self.sort = Sort::Ascending;
        }
        Ok(())
    }

    /// The hits in the order that the client asked for.
    fn hits(&self, zset: &Zset) -> Vec<Hit> {
        let (Some(center), Some(shape)) = (self.center, self.shape) else { return Vec::new() };
        let enough = if self.any { self.count } else { usize::MAX };
        let mut hits = Vec::new();
        'cells: for cell in geohash::cells_to_search(center, shape) {
            let (low, high) = cell.scores();
            let start = zset.partition(|score, _| score < low);
            for (member, score) in zset.iter_from(start).take_while(|&(_, score)| score < high) {
                let position = geohash::position_of(score);
                if let Some(meters) = shape.distance_inside(center, position) {
                    hits.push(Hit { member: member.to_vec(), score, meters });
                    if hits.len() >= enough {
                        break 'cells;
                    }
                }
            }
        }
        match self.sort {
            Sort::None => {}
            Sort::Ascending => hits.sort_by(|a, b| a.meters.total_cmp(&b.meters)),
            Sort::Descending => hits.sort_by(|a, b| b.meters.total_cmp(&a.meters)),
        }
        if self.count > 0 {
            hits.truncate(self.count);
        }
        hits
    }
}

fn search(
    ctx: &mut Ctx<'_>,
    args: &[Arg<'_>],
    key_at: usize,
    form: Form,
    may_store: bool,
    target: Option<Arg<'_>>,
) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[key_at])?;
    let request = Request::parse(zset, args[0], &args[key_at + 1..], form, may_store, target)?;
    let hits = zset.map(|zset| request.hits(zset)).unwrap_or_default();
    if let Some(target) = request.target {
        let mut result = Zset::new();
        for hit in &hits {
            let score = if request.stores_distance { hit.meters / request.unit } else { hit.score };
            result.insert(&hit.member, score, &limits);
        }
        reply.int(result.len() as i64);
        let result = (!result.is_empty()).then(|| result.into());
        let event = if form == Form::Search { "geosearchstore" } else { "georadiusstore" };
        store(db, target, result, Class::Zset, event);
        return Ok(());
    }
    let extras = usize::from(request.with_distance)
        + usize::from(request.with_hash)
        + usize::from(request.with_position);
    reply.array(hits.len());
    for hit in &hits {
        if extras > 0 {
            reply.array(1 + extras);
        }
        reply.bulk(&hit.member);
        if request.with_distance {
            geo::distance(reply, hit.meters / request.unit);
        }
        if request.with_hash {
            reply.int(hit.score as i64);
        }
        if request.with_position {
            geo::coordinates(reply, hit.position());
        }
    }
    Ok(())
}

pub fn geosearch(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 1, Form::Search, false, None)
}

pub fn geosearchstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 2, Form::Search, false, Some(args[1]))
}

pub fn georadius(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 1, Form::Radius, true, None)
}

pub fn georadius_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 1, Form::Radius, false, None)
}

pub fn georadiusbymember(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 1, Form::RadiusByMember, true, None)
}

pub fn georadiusbymember_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    search(ctx, args, 1, Form::RadiusByMember, false, None)
}
