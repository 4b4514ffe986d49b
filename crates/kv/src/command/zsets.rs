//! Sorted sets: members, scores, ranks, and taking from either end. Ranges are in `zset_ranges`, unions and the
//! like in `zset_combine`.

use super::collections::{
    self, Random, Scan, at_least, counted_keys, read_zset, removed_from, write_zset, zset_or_new,
};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::storage::StorageError;
use crate::value::decimal::{format_g17, format_score, parse_double};
use crate::value::large;
use crate::value::limits::CollectionLimits;
use crate::value::listpack::Element;
use crate::value::zset::Zset;

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ADD_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE: Flags = Flags::WRITE;
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const WAIT_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST, Flags::NOSCRIPT, Flags::BLOCKING]);
const WAIT: Flags = flags(&[Flags::WRITE, Flags::NOSCRIPT, Flags::BLOCKING]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const ONE_READ: Keys = Keys::one(Access::Read);
const ALL_BUT_LAST: Keys = Keys::At { first: 1, last: -2, step: 1, access: Access::ReadWrite };

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::SortedSet, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(
        Row::new("zadd", -4, ADD_FAST, ONE, zadd),
        "1.2.0",
        "O(log(N)) for each member",
        "Adds members or changes their scores.",
    ),
    row(
        Row::new("zincrby", 4, ADD_FAST, ONE, zincrby),
        "1.2.0",
        "O(log(N))",
        "Adds a number to a member's score.",
    ),
    row(
        Row::new("zrem", -3, TAKE_FAST, ONE, zrem),
        "1.2.0",
        "O(M*log(N)) of the members given",
        "Removes members.",
    ),
    row(Row::new("zcard", 2, READ_FAST, ONE_READ, zcard), "1.2.0", "O(1)", "Returns the number of members."),
    row(
        Row::new("zscore", 3, READ_FAST, ONE_READ, zscore),
        "1.2.0",
        "O(1)",
        "Returns the score of a member.",
    ),
    row(
        Row::new("zmscore", -3, READ_FAST, ONE_READ, zmscore),
        "6.2.0",
        "O(N) of the members given",
        "Returns the scores of several members.",
    ),
    row(
        Row::new("zrank", 3, READ_FAST, ONE_READ, zrank),
        "2.0.0",
        "O(log(N))",
        "Returns the index of a member by ascending scores.",
    ),
    row(
        Row::new("zrevrank", 3, READ_FAST, ONE_READ, zrevrank),
        "2.0.0",
        "O(log(N))",
        "Returns the index of a member by descending scores.",
    ),
    row(
        Row::new("zpopmin", -2, TAKE_FAST, ONE, zpopmin),
        "5.0.0",
        "O(log(N)*M) of the members returned",
        "Removes the members with the lowest scores and returns them.",
    ),
    row(
        Row::new("zpopmax", -2, TAKE_FAST, ONE, zpopmax),
        "5.0.0",
        "O(log(N)*M) of the members returned",
        "Removes the members with the highest scores and returns them.",
    ),
    row(
        Row::new("bzpopmin", -3, WAIT_FAST, ALL_BUT_LAST, bzpopmin),
        "5.0.0",
        "O(log(N))",
        "Removes the member with the lowest score from the first sorted set that has any, or waits for one.",
    ),
    row(
        Row::new("bzpopmax", -3, WAIT_FAST, ALL_BUT_LAST, bzpopmax),
        "5.0.0",
        "O(log(N))",
        "Removes the member with the highest score from the first sorted set that has any, or waits for one.",
    ),
    row(
        Row::new("zmpop", -4, TAKE, Keys::Counted { number: 1, access: Access::ReadWrite }, zmpop),
        "7.0.0",
        "O(K)+O(M*log(N)) of the keys and the members returned",
        "Removes members from the first sorted set that has any.",
    ),
    row(
        Row::new("bzmpop", -5, WAIT, Keys::Counted { number: 2, access: Access::ReadWrite }, bzmpop),
        "7.0.0",
        "O(K)+O(M*log(N)) of the keys and the members returned",
        "Removes members from the first sorted set that has any, or waits for one.",
    ),
    row(
        Row::new("zrandmember", -2, READ, ONE_READ, zrandmember),
        "6.2.0",
        "O(N) of the members returned",
        "Returns random members.",
    ),
    row(
        Row::new("zscan", -3, READ, ONE_READ, zscan),
        "2.8.0",
        "O(1) for each call",
        "Iterates over members and scores.",
    ),
];

/// A score that a client sent.
pub fn parse_score(arg: Arg<'_>) -> Result<f64, CommandError> {
    parse_double(arg).ok_or(CommandError::NotFloat)
}

#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

/// What became of one member.
enum Added {
    /// An option forbade it.
    Refused,
    New(f64),
    Changed(f64),
    Same(f64),
}

fn add_member(
    zset: &mut Zset,
    member: Arg<'_>,
    score: f64,
    options: &AddOptions,
    limits: &CollectionLimits,
) -> Result<Added, CommandError> {
    let Some(old) = zset.score(member) else {
        if options.only_existing {
            return Ok(Added::Refused);
        }
        zset.insert(member, score, limits);
        return Ok(Added::New(score));
    };
    if options.only_new {
        return Ok(Added::Refused);
    }
    let score = if options.increments { old + score } else { score };
    if score.is_nan() {
        return Err(CommandError::of("ERR resulting score is not a number (NaN)"));
    }
    if (options.only_less && score >= old) || (options.only_greater && score <= old) {
        return Ok(Added::Refused);
    }
    if score == old {
        return Ok(Added::Same(score));
    }
    zset.insert(member, score, limits);
    Ok(Added::Changed(score))
}

pub fn zadd(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut options = AddOptions::default();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        match word {
            word if args::is(word, "NX") => options.only_new = true,
            word if args::is(word, "XX") => options.only_existing = true,
            word if args::is(word, "GT") => options.only_greater = true,
            word if args::is(word, "LT") => options.only_less = true,
            word if args::is(word, "CH") => options.counts_changed = true,
            word if args::is(word, "INCR") => options.increments = true,
            _ => break,
        }
        at += 1;
    }
    add(ctx, args[1], &args[at..], &options)
}

fn zincrby(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    add(ctx, args[1], &args[2..], &AddOptions { increments: true, ..AddOptions::default() })
}

fn add(ctx: &mut Ctx<'_>, key: Arg<'_>, pairs: &[Arg<'_>], options: &AddOptions) -> Done {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    if options.only_new && options.only_existing {
        return Err(CommandError::of("ERR XX and NX options at the same time are not compatible"));
    }
    let exclusive = [options.only_greater, options.only_less, options.only_new];
    if exclusive.iter().filter(|&&is_set| is_set).count() > 1 {
        return Err(CommandError::of("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if options.increments && pairs.len() > 2 {
        return Err(CommandError::of("ERR INCR option supports a single increment-element pair"));
    }
    let scores = pairs.iter().step_by(2).map(|arg| parse_score(arg)).collect::<Result<Vec<f64>, _>>()?;
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    if options.only_existing && write_zset(db, key)?.is_none() {
        if options.increments {
            reply.null();
        } else {
            reply.int(0);
        }
        return Ok(());
    }
    let zset = zset_or_new(db, key)?;
    let (mut new, mut changed, mut result) = (0, 0, None);
    let mut failure = None;
    for (score, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
        match add_member(zset, pair[1], score, options, &limits) {
            Ok(Added::Refused) => {}
            Ok(Added::New(score)) => {
                new += 1;
                result = Some(score);
            }
            Ok(Added::Changed(score)) => {
                changed += 1;
                result = Some(score);
            }
            Ok(Added::Same(score)) => result = Some(score),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if new + changed > 0 {
        db.changed(key, Class::Zset, if options.increments { "zincr" } else { "zadd" });
    }
    if let Some(error) = failure {
        return Err(error);
    }
    match result {
        Some(score) if options.increments => collections::score(reply, score),
        None if options.increments => reply.null(),
        _ => reply.int(if options.counts_changed { new + changed } else { new }),
    }
    Ok(())
}

fn zrem(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(zset) = write_zset(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let removed = args[2..].iter().filter(|member| zset.remove(member).is_some()).count();
    let is_empty = zset.is_empty();
    if removed > 0 {
        removed_from(db, args[1], Class::Zset, "zrem", is_empty);
    }
    reply.int(removed as i64);
    Ok(())
}

fn zcard(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(read_zset(db, args[1])?.map_or(0, |zset| zset.len() as i64));
    Ok(())
}

fn zscore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match read_zset(db, args[1])?.and_then(|zset| zset.score(args[2])) {
        Some(score) => collections::score(reply, score),
        None => reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let zset = read_zset(db, args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => collections::score(reply, score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn zrank(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match read_zset(db, args[1])?.and_then(|zset| zset.rank(args[2])) {
        Some((rank, _)) => reply.int(rank as i64),
        None => reply.null(),
    }
    Ok(())
}

fn zrevrank(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match read_zset(db, args[1])?.and_then(|zset| Some(zset.len() - 1 - zset.rank(args[2])?.0)) {
        Some(rank) => reply.int(rank as i64),
        None => reply.null(),
    }
    Ok(())
}

/// The end that a command takes members from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }
}

/// The sorted set of a key that a command waits for. A command that waited goes on waiting if the key got a value of
/// another type.
fn zset_to_pop<'d>(
    db: &'d mut Keyspace,
    key: &[u8],
    is_resumed: bool,
) -> Result<Option<&'d mut Zset>, CommandError> {
    match write_zset(db, key) {
        Err(CommandError::WrongType) if is_resumed => Ok(None),
        found => found,
    }
}

/// Takes `count` members from an end.
fn take(db: &mut Keyspace, key: &[u8], end: End, count: usize) -> Result<Vec<(Vec<u8>, f64)>, CommandError> {
    let Some(zset) = write_zset(db, key)? else { return Ok(Vec::new()) };
    let len = zset.len();
    let count = count.min(len);
    if count == 0 {
        return Ok(Vec::new());
    }
    let entries = match end {
        End::Min => zset.iter_from(0),
        End::Max => zset.iter_back_from(len - 1),
    };
    let taken = entries.take(count).map(|(member, score)| (member.to_vec(), score)).collect();
    zset.remove_ranks(match end {
        End::Min => 0..count,
        End::Max => len - count..len,
    });
    removed_from(db, key, Class::Zset, end.event(), count == len);
    Ok(taken)
}

fn zpopmin(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    pop(ctx, args, End::Min)
}

fn zpopmax(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    pop(ctx, args, End::Max)
}

fn pop(ctx: &mut Ctx<'_>, args: &[Arg<'_>], end: End) -> Done {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = args.get(2).map(|arg| at_least(arg, 0, collections::NOT_POSITIVE)).transpose()?;
    let (db, reply) = ctx.split();
    let taken = take(db, args[1], end, count.unwrap_or(1))?;
    let nested = count.is_some() && reply.resp3;
    reply.array(if nested { taken.len() } else { 2 * taken.len() });
    for (member, score) in &taken {
        if nested {
            reply.array(2);
        }
        reply.bulk(member);
        collections::score(reply, *score);
    }
    Ok(())
}

fn bzpopmin(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    blocking_pop(ctx, args, End::Min)
}

fn bzpopmax(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    blocking_pop(ctx, args, End::Max)
}

fn blocking_pop(ctx: &mut Ctx<'_>, args: &[Arg<'_>], end: End) -> Done {
    let deadline_ms = args::timeout(args[args.len() - 1], ctx.now_ms())?;
    let keys = &args[1..args.len() - 1];
    let is_resumed = ctx.is_resumed;
    let (db, reply) = ctx.split();
    for key in keys {
        if zset_to_pop(db, key, is_resumed)?.is_none() {
            continue;
        }
        for (member, score) in take(db, key, end, 1)? {
            reply.array(3);
            reply.bulk(key);
            reply.bulk(&member);
            collections::score(reply, score);
        }
        return Ok(());
    }
    ctx.block(keys, deadline_ms, None)
}

/// Options of ZMPOP after the keys: an end, and a count.
fn pop_options(options: &[Arg<'_>]) -> Result<(End, usize), CommandError> {
    let end = match options.first() {
        Some(word) if args::is(word, "MIN") => End::Min,
        Some(word) if args::is(word, "MAX") => End::Max,
        _ => return Err(CommandError::Syntax),
    };
    match &options[1..] {
        [] => Ok((end, 1)),
        [name, count] if args::is(name, "COUNT") => Ok((end, at_least(count, 1, collections::COUNT)?)),
        _ => Err(CommandError::Syntax),
    }
}

/// Takes members from the first sorted set that has any, as ZMPOP replies them. Returns whether one has.
fn pop_from_first(ctx: &mut Ctx<'_>, keys: &[Arg<'_>], end: End, count: usize) -> Result<bool, CommandError> {
    let is_resumed = ctx.is_resumed;
    let (db, reply) = ctx.split();
    for key in keys {
        if zset_to_pop(db, key, is_resumed)?.is_none() {
            continue;
        }
        let taken = take(db, key, end, count)?;
        reply.array(2);
        reply.bulk(key);
        reply.array(taken.len());
        for (member, score) in &taken {
            reply.array(2);
            reply.bulk(member);
            collections::score(reply, *score);
        }
        return Ok(true);
    }
    Ok(false)
}

fn zmpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (keys, options) = counted_keys(args, 1)?;
    let (end, count) = pop_options(options)?;
    if !pop_from_first(ctx, keys, end, count)? {
        ctx.reply.null_array();
    }
    Ok(())
}

fn bzmpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let deadline_ms = args::timeout(args[1], ctx.now_ms())?;
    let (keys, options) = counted_keys(args, 2)?;
    let (end, count) = pop_options(options)?;
    if pop_from_first(ctx, keys, end, count)? {
        return Ok(());
    }
    ctx.block(keys, deadline_ms, None)
}

fn zrandmember(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (count, with_scores) = collections::random_options(args, "WITHSCORES")?;
    let (db, reply) = ctx.split();
    let mut random = Random::of(db);
    let Some(zset) = read_zset(db, args[1])? else {
        match count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        collections::bulk_or_null(reply, zset.get(random.below(zset.len())).map(|(member, _)| member));
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let chosen = if count < 0 { Vec::new() } else { random.distinct(wanted, zset.len()) };
    let len = if count < 0 { wanted } else { chosen.len() };
    reply.array(if with_scores && !reply.resp3 { 2 * len } else { len });
    for at in 0..len {
        let rank = if count < 0 { random.below(zset.len()) } else { chosen[at] };
        let Some((member, score)) = zset.get(rank) else { continue };
        if with_scores && reply.resp3 {
            reply.array(2);
        }
        collections::bulk(reply, member);
        if with_scores {
            collections::score(reply, score);
        }
    }
    Ok(())
}

fn zscan(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    Scan::cursor(args)?;
    let walked = collections::walked(ctx);
    let (db, reply) = ctx.split();
    let Some(zset) = read_zset(db, args[1])? else {
        Scan::reply(reply, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(args)?;
    let mut elements = Vec::new();
    // Redis prints what a listpack holds as it is.
    let format = if zset.pack().is_some() { format_score } else { format_g17 };
    let mut add = |member: Element<'_>, score: f64| {
        if scan.matches(member) {
            elements.push(member.to_vec());
            elements.push(format(score).into_bytes());
        }
    };
    let cursor = match walked {
        Some(walked) => {
            // What memory knows of a member is newer.
            for found in &walked.found {
                if !zset.has_element(&found.name) && !zset.is_known_absent(&found.name) {
                    let score = large::parse_score(&found.value.rdb).map_err(StorageError::from);
                    let score = score.map_err(|error| CommandError::err(format_args!("storage: {error}")))?;
                    add(Element::Bytes(&found.name), score);
                }
            }
            for name in walked.names(|name, _| zset.has_element(name)) {
                zset.score(name).into_iter().for_each(|score| add(Element::Bytes(name), score));
            }
            walked.cursor
        }
        None => zset.scan(scan.cursor, scan.count, add),
    };
    Scan::reply(reply, cursor, &elements);
    Ok(())
}
