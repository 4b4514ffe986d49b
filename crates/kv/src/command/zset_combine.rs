//! Unions, intersections and differences of sorted sets. A plain set counts as a sorted set with scores of 1.

use super::collections::{self, at_least, store};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::Value;
use crate::value::decimal::parse_double;
use crate::value::limits::CollectionLimits;
use crate::value::set::Set;
use crate::value::zset::Zset;

const READ: Flags = Flags::READONLY;
const ADD: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const FROM: Keys = Keys::Counted { number: 1, access: Access::Read };
const INTO: Keys = Keys::CountedInto { number: 2 };
const UNION: &str = "O(N)+O(M*log(M)) of all members and those of the result";
const INTER: &str = "O(N*K)+O(M*log(M)) of the smallest set, the keys and the members of the result";

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::SortedSet, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(Row::new("zunion", -3, READ, FROM, zunion), "6.2.0", UNION, "Returns the union of sorted sets."),
    row(
        Row::new("zunionstore", -4, ADD, INTO, zunionstore),
        "2.0.0",
        UNION,
        "Stores the union of sorted sets.",
    ),
    row(
        Row::new("zinter", -3, READ, FROM, zinter),
        "6.2.0",
        INTER,
        "Returns the intersection of sorted sets.",
    ),
    row(
        Row::new("zinterstore", -4, ADD, INTO, zinterstore),
        "2.0.0",
        INTER,
        "Stores the intersection of sorted sets.",
    ),
    row(
        Row::new("zintercard", -3, READ, FROM, zintercard),
        "7.0.0",
        "O(N*K) of the smallest set and the keys",
        "Returns the size of the intersection of sorted sets.",
    ),
    row(
        Row::new("zdiff", -3, READ, FROM, zdiff),
        "6.2.0",
        UNION,
        "Returns the members of the first sorted set that no other has.",
    ),
    row(
        Row::new("zdiffstore", -4, ADD, INTO, zdiffstore),
        "6.2.0",
        UNION,
        "Stores the members of the first sorted set that no other has.",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn join(self, first: f64, second: f64) -> f64 {
        match self {
            Aggregate::Sum => not_nan(first + second),
            // A product that isn't a number never wins.
            Aggregate::Min => {
                if second < first {
                    second
                } else {
                    first
                }
            }
            Aggregate::Max => {
                if second > first {
                    second
                } else {
                    first
                }
            }
        }
    }
}

/// Infinities of both signs add up to zero, and zero times infinity is zero.
fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A source of members with scores.
#[derive(Clone, Copy)]
enum Source<'d> {
    None,
    Set(&'d Set),
    Zset(&'d Zset),
}

impl<'d> Source<'d> {
    fn len(self) -> usize {
        match self {
            Source::None => 0,
            Source::Set(set) => set.len(),
            Source::Zset(zset) => zset.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::None => None,
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::Zset(zset) => zset.score(member),
        }
    }

    /// Visits members until `visit` returns false.
    fn visit(self, mut visit: impl FnMut(&[u8], f64) -> bool) {
        match self {
            Source::None => {}
            Source::Set(set) => {
                set.iter().all(|member| visit(member.bytes(&mut itoa::Buffer::new()), 1.0));
            }
            Source::Zset(zset) => {
                zset.iter_from(0).all(|(member, score)| visit(member.bytes(&mut itoa::Buffer::new()), score));
            }
        }
    }
}

/// The keys of a command at `at`, checked for their types.
fn keys<'a, 'b>(
    db: &mut Keyspace,
    args: &'b [Arg<'a>],
    at: usize,
) -> Result<(&'b [Arg<'a>], &'b [Arg<'a>]), CommandError> {
    let count = args::int(args[at])?;
    if count < 1 {
        let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
        return Err(CommandError::err(format_args!("at least 1 input key is needed for '{name}' command")));
    }
    let rest = &args[at + 1..];
    let count =
        usize::try_from(count).ok().filter(|&count| count <= rest.len()).ok_or(CommandError::Syntax)?;
    let (keys, options) = rest.split_at(count);
    for key in keys {
        if !matches!(db.read(key), None | Some(Value::Set(_) | Value::Zset(_))) {
            return Err(CommandError::WrongType);
        }
    }
    Ok((keys, options))
}

fn sources<'d>(db: &'d Keyspace, keys: &[Arg<'_>]) -> Vec<Source<'d>> {
    let source = |key: &Arg<'_>| match db.peek_shared(key) {
        Some(Value::Set(set)) => Source::Set(set),
        Some(Value::Zset(zset)) => Source::Zset(zset),
        _ => Source::None,
    };
    keys.iter().map(source).collect()
}

struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn options(
    operation: Operation,
    keys: usize,
    mut rest: &[Arg<'_>],
    may_have_scores: bool,
) -> Result<Options, CommandError> {
    let mut options = Options { weights: vec![1.0; keys], aggregate: Aggregate::Sum, with_scores: false };
    let is_combining = operation != Operation::Diff;
    while let Some((word, after)) = rest.split_first() {
        if is_combining && args::is(word, "WEIGHTS") && after.len() >= keys {
            for (weight, arg) in options.weights.iter_mut().zip(after) {
                *weight = parse_double(arg).ok_or(CommandError::of("ERR weight value is not a float"))?;
            }
            rest = &after[keys..];
        } else if is_combining && args::is(word, "AGGREGATE") && !after.is_empty() {
            options.aggregate = match after[0] {
                word if args::is(word, "SUM") => Aggregate::Sum,
                word if args::is(word, "MIN") => Aggregate::Min,
                word if args::is(word, "MAX") => Aggregate::Max,
                _ => return Err(CommandError::Syntax),
            };
            rest = &after[1..];
        } else if may_have_scores && args::is(word, "WITHSCORES") {
            options.with_scores = true;
            rest = after;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}

fn compute(
    operation: Operation,
    sources: &[Source<'_>],
    options: &Options,
    limits: &CollectionLimits,
) -> Zset {
    let mut result = Zset::new_ordered();
    match operation {
        Operation::Union => {
            for (source, weight) in sources.iter().zip(&options.weights) {
                source.visit(|member, score| {
                    let score = not_nan(score * weight);
                    let old = result.score(member);
                    let score = old.map_or(score, |old| options.aggregate.join(old, score));
                    // A score that is equal would keep the sign of its zero.
                    if score == 0.0 && old.is_some() {
                        result.remove(member);
                    }
                    result.insert(member, score, limits);
                    true
                });
            }
        }
        Operation::Inter => {
            let mut ordered: Vec<(Source<'_>, f64)> =
                sources.iter().copied().zip(options.weights.iter().copied()).collect();
            ordered.sort_by_key(|(source, _)| source.len());
            let Some(((smallest, weight), others)) = ordered.split_first() else { return result };
            smallest.visit(|member, score| {
                let mut sum = not_nan(score * weight);
                for (other, weight) in others {
                    let Some(score) = other.score(member) else { return true };
                    // Only the first product counts as zero if it isn't a number; Redis joins the others as they are.
                    sum = options.aggregate.join(sum, score * weight);
                }
                result.insert(member, sum, limits);
                true
            });
        }
        Operation::Diff => {
            let Some((first, others)) = sources.split_first() else { return result };
            first.visit(|member, score| {
                if !others.iter().any(|other| other.score(member).is_some()) {
                    result.insert(member, score, limits);
                }
                true
            });
        }
    }
    result
}

fn combine(ctx: &mut Ctx<'_>, args: &[Arg<'_>], operation: Operation) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let (keys, rest) = keys(db, args, 1)?;
    let options = options(operation, keys.len(), rest, true)?;
    let result = compute(operation, &sources(db, keys), &options, &limits);
    let nested = options.with_scores && reply.resp3;
    reply.array(if options.with_scores && !nested { 2 * result.len() } else { result.len() });
    for (member, score) in result.iter_from(0) {
        if nested {
            reply.array(2);
        }
        collections::bulk(reply, member);
        if options.with_scores {
            collections::score(reply, score);
        }
    }
    Ok(())
}

fn combine_into(ctx: &mut Ctx<'_>, args: &[Arg<'_>], operation: Operation, event: &'static str) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let (keys, rest) = keys(db, args, 2)?;
    let options = options(operation, keys.len(), rest, false)?;
    let mut result = compute(operation, &sources(db, keys), &options, &limits);
    result.compact(&limits);
    reply.int(result.len() as i64);
    let result = (!result.is_empty()).then(|| result.into());
    store(db, args[1], result, Class::Zset, event);
    Ok(())
}

fn zunion(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, args, Operation::Union)
}

fn zunionstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, Operation::Union, "zunionstore")
}

fn zinter(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, args, Operation::Inter)
}

fn zinterstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, Operation::Inter, "zinterstore")
}

fn zdiff(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, args, Operation::Diff)
}

fn zdiffstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, Operation::Diff, "zdiffstore")
}

fn zintercard(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let (keys, rest) = keys(db, args, 1)?;
    let mut limit = usize::MAX;
    for option in rest.chunks(2) {
        match option {
            [name, value] if args::is(name, "LIMIT") => {
                limit = at_least(value, 0, "ERR LIMIT can't be negative")?;
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    let mut sources = sources(db, keys);
    sources.sort_by_key(|source| source.len());
    let mut count = 0;
    if let Some((smallest, others)) = sources.split_first() {
        smallest.visit(|member, _| {
            count += usize::from(others.iter().all(|other| other.score(member).is_some()));
            count < limit
        });
    }
    reply.int(count as i64);
    Ok(())
}
