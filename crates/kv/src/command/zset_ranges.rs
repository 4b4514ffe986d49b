//! Ranges of sorted sets: by rank, score or member, read, stored, counted or removed.
//!
//! Every range becomes a range of ranks, so reading, counting and removing are the same for all three kinds.

use super::collections::{self, index_range, read_zset, removed_from, store, write_zset};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Class;
use crate::value::decimal::parse_double_leniently;
use crate::value::listpack::Element;
use crate::value::zset::Zset;
use std::ops::Range;

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const ONE_READ: Keys = Keys::one(Access::Read);
const RANGE: &str = "O(log(N)+M) of the members returned";
const REMOVE: &str = "O(log(N)*M) of the members removed";
const INTO: Keys = Keys::Function(|_| vec![(1, Access::Overwrite), (2, Access::Read)]);

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::SortedSet, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(
        Row::new("zrange", -4, READ, ONE_READ, zrange),
        "1.2.0",
        RANGE,
        "Returns a range of members by rank, score or member.",
    ),
    row(
        Row::new("zrangestore", -5, flags(&[Flags::WRITE, Flags::DENYOOM]), INTO, zrangestore),
        "6.2.0",
        "O(log(N)+M) of the members stored",
        "Stores a range of members.",
    ),
    row(
        Row::new("zrevrange", -4, READ, ONE_READ, zrevrange),
        "1.2.0",
        RANGE,
        "Returns a range of members by descending rank.",
    ),
    row(
        Row::new("zrangebyscore", -4, READ, ONE_READ, zrangebyscore),
        "1.0.5",
        RANGE,
        "Returns the members in a range of scores.",
    ),
    row(
        Row::new("zrevrangebyscore", -4, READ, ONE_READ, zrevrangebyscore),
        "2.2.0",
        RANGE,
        "Returns the members in a range of scores, the highest first.",
    ),
    row(
        Row::new("zrangebylex", -4, READ, ONE_READ, zrangebylex),
        "2.8.9",
        RANGE,
        "Returns the members in a range of members.",
    ),
    row(
        Row::new("zrevrangebylex", -4, READ, ONE_READ, zrevrangebylex),
        "2.8.9",
        RANGE,
        "Returns the members in a range of members, the last first.",
    ),
    row(
        Row::new("zcount", 4, READ_FAST, ONE_READ, zcount),
        "2.0.0",
        "O(log(N))",
        "Returns the number of members in a range of scores.",
    ),
    row(
        Row::new("zlexcount", 4, READ_FAST, ONE_READ, zlexcount),
        "2.8.9",
        "O(log(N))",
        "Returns the number of members in a range of members.",
    ),
    row(
        Row::new("zremrangebyrank", 4, Flags::WRITE, ONE, zremrangebyrank),
        "2.0.0",
        REMOVE,
        "Removes a range of members by rank.",
    ),
    row(
        Row::new("zremrangebyscore", 4, Flags::WRITE, ONE, zremrangebyscore),
        "1.2.0",
        REMOVE,
        "Removes the members in a range of scores.",
    ),
    row(
        Row::new("zremrangebylex", 4, Flags::WRITE, ONE, zremrangebylex),
        "2.8.9",
        REMOVE,
        "Removes the members in a range of members.",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rank,
    Score,
    Lex,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

/// One end of a range of members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LexBound<'a> {
    First,
    Last,
    Inclusive(&'a [u8]),
    Exclusive(&'a [u8]),
}

/// A range that a command asks for.
enum Bounds<'a> {
    Ranks(i64, i64),
    /// A score, and whether it is itself outside of the range.
    Scores((f64, bool), (f64, bool)),
    Members(LexBound<'a>, LexBound<'a>),
}

fn score_bound(arg: Arg<'_>) -> Result<(f64, bool), CommandError> {
    let (text, excluded) = match arg.strip_prefix(b"(") {
        Some(text) => (text, true),
        None => (arg, false),
    };
    let score = parse_double_leniently(text).ok_or(CommandError::of("ERR min or max is not a float"))?;
    Ok((score, excluded))
}

fn lex_bound<'a>(arg: Arg<'a>) -> Result<LexBound<'a>, CommandError> {
    match arg {
        b"-" => Ok(LexBound::First),
        b"+" => Ok(LexBound::Last),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
        _ => Err(CommandError::of("ERR min or max not valid string range item")),
    }
}

impl<'a> Bounds<'a> {
    /// Parses a lower and an upper bound.
    fn parse(kind: Kind, min: Arg<'a>, max: Arg<'a>) -> Result<Bounds<'a>, CommandError> {
        Ok(match kind {
            Kind::Rank => Bounds::Ranks(args::int(min)?, args::int(max)?),
            Kind::Score => Bounds::Scores(score_bound(min)?, score_bound(max)?),
            Kind::Lex => Bounds::Members(lex_bound(min)?, lex_bound(max)?),
        })
    }

    /// The ranks of the range. Ranks that a client gave for a descending range count from the end.
    fn ranks(&self, zset: &Zset, direction: Direction) -> Range<usize> {
        let (start, end) = match *self {
            Bounds::Ranks(start, stop) => {
                let range = index_range(start, stop, zset.len());
                return match direction {
                    Direction::Ascending => range,
                    Direction::Descending => zset.len() - range.end..zset.len() - range.start,
                };
            }
            Bounds::Scores((min, min_excluded), (max, max_excluded)) => (
                zset.partition(|score, _| if min_excluded { score <= min } else { score < min }),
                zset.partition(|score, _| if max_excluded { score < max } else { score <= max }),
            ),
            Bounds::Members(min, max) => (
                zset.partition(|_, member| match min {
                    LexBound::First => false,
                    LexBound::Last => true,
                    LexBound::Inclusive(bound) => member < bound,
                    LexBound::Exclusive(bound) => member <= bound,
                }),
                zset.partition(|_, member| match max {
                    LexBound::First => false,
                    LexBound::Last => true,
                    LexBound::Inclusive(bound) => member <= bound,
                    LexBound::Exclusive(bound) => member < bound,
                }),
            ),
        };
        start..end.max(start)
    }
}

/// A request for a range, as ZRANGE and its relatives take it.
struct Request<'a> {
    key: Arg<'a>,
    bounds: Bounds<'a>,
    direction: Direction,
    offset: i64,
    /// Negative: no limit.
    limit: i64,
    with_scores: bool,
}

impl<'a> Request<'a> {
    /// Parses `key min max options`. `kind` and `direction` are those that the command's name says, if it does.
    fn parse(
        args: &[Arg<'a>],
        kind: Option<Kind>,
        direction: Option<Direction>,
        may_have_scores: bool,
    ) -> Result<Request<'a>, CommandError> {
        let [key, first, second, options @ ..] = args else { return Err(CommandError::Syntax) };
        let (mut found_kind, mut found_direction) = (kind, direction);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut at = 0;
        while let Some(word) = options.get(at) {
            if may_have_scores && args::is(word, "WITHSCORES") {
                with_scores = true;
            } else if args::is(word, "LIMIT") && at + 2 < options.len() {
                offset = args::int(options[at + 1])?;
                limit = args::int(options[at + 2])?;
                at += 2;
            } else if direction.is_none() && args::is(word, "REV") {
                found_direction = Some(Direction::Descending);
            } else if kind.is_none() && args::is(word, "BYLEX") {
                found_kind = Some(Kind::Lex);
            } else if kind.is_none() && args::is(word, "BYSCORE") {
                found_kind = Some(Kind::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let kind = found_kind.unwrap_or(Kind::Rank);
        let direction = found_direction.unwrap_or(Direction::Ascending);
        if limit != -1 && kind == Kind::Rank {
            return Err(CommandError::of(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && kind == Kind::Lex {
            return Err(CommandError::of(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let is_swapped = direction == Direction::Descending && kind != Kind::Rank;
        let (min, max) = if is_swapped { (second, first) } else { (first, second) };
        // A range of ranks takes no offset: `LIMIT 5 -1` is the whole range.
        let offset = if kind == Kind::Rank { 0 } else { offset };
        Ok(Request { key, bounds: Bounds::parse(kind, min, max)?, direction, offset, limit, with_scores })
    }

    /// The entries of the range in their order, and how many they are.
    fn entries<'z>(&self, zset: &'z Zset) -> (usize, Box<dyn Iterator<Item = (Element<'z>, f64)> + 'z>) {
        let ranks = self.bounds.ranks(zset, self.direction);
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let len = (ranks.len() - skipped).min(limit);
        if len == 0 {
            return (0, Box::new(std::iter::empty()));
        }
        let entries = match self.direction {
            Direction::Ascending => zset.iter_from(ranks.start + skipped),
            Direction::Descending => zset.iter_back_from(ranks.end - 1 - skipped),
        };
        (len, Box::new(entries.take(len)))
    }
}

fn range(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Option<Kind>, direction: Option<Direction>) -> Done {
    let request = Request::parse(&args[1..], kind, direction, true)?;
    let (db, reply) = ctx.split();
    let Some(zset) = read_zset(db, request.key)? else {
        reply.array(0);
        return Ok(());
    };
    let (len, entries) = request.entries(zset);
    reply.array(if request.with_scores && !reply.resp3 { 2 * len } else { len });
    for (member, score) in entries {
        if request.with_scores && reply.resp3 {
            reply.array(2);
        }
        collections::bulk(reply, member);
        if request.with_scores {
            collections::score(reply, score);
        }
    }
    Ok(())
}

fn zrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, None, None)
}

fn zrevrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, Some(Kind::Rank), Some(Direction::Descending))
}

fn zrangebyscore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, Some(Kind::Score), Some(Direction::Ascending))
}

fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, Some(Kind::Score), Some(Direction::Descending))
}

fn zrangebylex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, Some(Kind::Lex), Some(Direction::Ascending))
}

fn zrevrangebylex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    range(ctx, args, Some(Kind::Lex), Some(Direction::Descending))
}

fn zrangestore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let request = Request::parse(&args[2..], None, None, false)?;
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let mut result = Zset::new();
    if let Some(zset) = read_zset(db, request.key)? {
        for (member, score) in request.entries(zset).1 {
            result.insert(member.bytes(&mut itoa::Buffer::new()), score, &limits);
        }
    }
    reply.int(result.len() as i64);
    let result = (!result.is_empty()).then(|| result.into());
    store(db, args[1], result, Class::Zset, "zrangestore");
    Ok(())
}

fn count(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind) -> Done {
    let bounds = Bounds::parse(kind, args[2], args[3])?;
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[1])?;
    reply.int(zset.map_or(0, |zset| bounds.ranks(zset, Direction::Ascending).len() as i64));
    Ok(())
}

fn zcount(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    count(ctx, args, Kind::Score)
}

fn zlexcount(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    count(ctx, args, Kind::Lex)
}

fn remove(ctx: &mut Ctx<'_>, args: &[Arg<'_>], kind: Kind, event: &'static str) -> Done {
    let bounds = Bounds::parse(kind, args[2], args[3])?;
    let (db, reply) = ctx.split();
    let Some(zset) = write_zset(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let ranks = bounds.ranks(zset, Direction::Ascending);
    let removed = zset.remove_ranks(ranks);
    let is_empty = zset.is_empty();
    if removed > 0 {
        removed_from(db, args[1], Class::Zset, event, is_empty);
    }
    reply.int(removed as i64);
    Ok(())
}

fn zremrangebyrank(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    remove(ctx, args, Kind::Rank, "zremrangebyrank")
}

fn zremrangebyscore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    remove(ctx, args, Kind::Score, "zremrangebyscore")
}

fn zremrangebylex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    remove(ctx, args, Kind::Lex, "zremrangebylex")
}
