//! Lists, blocking commands included.

use super::collections::{
    self, at_least, counted_keys, index_range, list_or_new, read_list, removed_from, write_list,
};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::list::{End, Side};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ADD: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const ADD_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE: Flags = Flags::WRITE;
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const WAIT: Flags = flags(&[Flags::WRITE, Flags::NOSCRIPT, Flags::BLOCKING]);
const WAIT_ADD: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::NOSCRIPT, Flags::BLOCKING]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const TWO: Keys = Keys::At { first: 1, last: 2, step: 1, access: Access::ReadWrite };
const ALL_BUT_LAST: Keys = Keys::At { first: 1, last: -2, step: 1, access: Access::ReadWrite };

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::List, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(
        Row::new("lpush", -3, ADD_FAST, ONE, lpush),
        "1.0.0",
        "O(1) for each element",
        "Adds elements at the left end of a list.",
    ),
    row(
        Row::new("rpush", -3, ADD_FAST, ONE, rpush),
        "1.0.0",
        "O(1) for each element",
        "Adds elements at the right end of a list.",
    ),
    row(
        Row::new("lpushx", -3, ADD_FAST, ONE, lpushx),
        "2.2.0",
        "O(1) for each element",
        "Adds elements at the left end of a list that exists.",
    ),
    row(
        Row::new("rpushx", -3, ADD_FAST, ONE, rpushx),
        "2.2.0",
        "O(1) for each element",
        "Adds elements at the right end of a list that exists.",
    ),
    row(
        Row::new("linsert", 5, ADD, ONE, linsert),
        "2.2.0",
        "O(N) of the elements before the pivot",
        "Inserts an element before or after another.",
    ),
    row(
        Row::new("llen", 2, READ_FAST, Keys::one(Access::Read), llen),
        "1.0.0",
        "O(1)",
        "Returns the length of a list.",
    ),
    row(
        Row::new("lindex", 3, READ, Keys::one(Access::Read), lindex),
        "1.0.0",
        "O(N) of the elements before the index",
        "Returns the element at an index.",
    ),
    row(
        Row::new("lset", 4, ADD, ONE, lset),
        "1.0.0",
        "O(N) of the length of the list",
        "Replaces the element at an index.",
    ),
    row(
        Row::new("lpop", -2, TAKE_FAST, ONE, lpop),
        "1.0.0",
        "O(N) of the elements returned",
        "Removes elements at the left end and returns them.",
    ),
    row(
        Row::new("rpop", -2, TAKE_FAST, ONE, rpop),
        "1.0.0",
        "O(N) of the elements returned",
        "Removes elements at the right end and returns them.",
    ),
    row(
        Row::new("lrange", 4, READ, Keys::one(Access::Read), lrange),
        "1.0.0",
        "O(S+N) of the start and the elements returned",
        "Returns a range of elements.",
    ),
    row(
        Row::new("ltrim", 4, TAKE, ONE, ltrim),
        "1.0.0",
        "O(N) of the elements removed",
        "Removes the elements outside of a range.",
    ),
    row(
        Row::new("lrem", 4, TAKE, ONE, lrem),
        "1.0.0",
        "O(N) of the length of the list",
        "Removes elements that equal a value.",
    ),
    row(
        Row::new("lpos", -3, READ, Keys::one(Access::Read), lpos),
        "6.0.6",
        "O(N) of the length of the list",
        "Returns the indices of elements that equal a value.",
    ),
    row(
        Row::new("rpoplpush", 3, ADD, TWO, rpoplpush),
        "1.2.0",
        "O(1)",
        "Moves the rightmost element to the left end of another list.",
    ),
    row(
        Row::new("lmove", 5, ADD, TWO, lmove),
        "6.2.0",
        "O(1)",
        "Moves an element from an end of a list to an end of another.",
    ),
    row(
        Row::new("lmpop", -4, TAKE, Keys::Counted { number: 1, access: Access::ReadWrite }, lmpop),
        "7.0.0",
        "O(N+M) of the keys and the elements returned",
        "Removes elements from the first list that has any.",
    ),
    row(
        Row::new("blpop", -3, WAIT, ALL_BUT_LAST, blpop),
        "2.0.0",
        "O(N) of the keys",
        "Removes the leftmost element of the first list that has any, or waits for one.",
    ),
    row(
        Row::new("brpop", -3, WAIT, ALL_BUT_LAST, brpop),
        "2.0.0",
        "O(N) of the keys",
        "Removes the rightmost element of the first list that has any, or waits for one.",
    ),
    row(
        Row::new("brpoplpush", 4, WAIT_ADD, TWO, brpoplpush),
        "2.2.0",
        "O(1)",
        "Moves the rightmost element to the left end of another list, or waits for one.",
    ),
    row(
        Row::new("blmove", 6, WAIT_ADD, TWO, blmove),
        "6.2.0",
        "O(1)",
        "Moves an element to an end of another list, or waits for one.",
    ),
    row(
        Row::new("blmpop", -5, WAIT, Keys::Counted { number: 2, access: Access::ReadWrite }, blmpop),
        "7.0.0",
        "O(N+M) of the keys and the elements returned",
        "Removes elements from the first list that has any, or waits for one.",
    ),
];

fn push_event(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

fn pop_event(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}

fn end_of(arg: Arg<'_>) -> Result<End, CommandError> {
    if args::is(arg, "LEFT") {
        Ok(End::Left)
    } else if args::is(arg, "RIGHT") {
        Ok(End::Right)
    } else {
        Err(CommandError::Syntax)
    }
}

fn lpush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    push(ctx, args, End::Left, false)
}

fn rpush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    push(ctx, args, End::Right, false)
}

fn lpushx(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    push(ctx, args, End::Left, true)
}

fn rpushx(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    push(ctx, args, End::Right, true)
}

fn push(ctx: &mut Ctx<'_>, args: &[Arg<'_>], end: End, only_existing: bool) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    if only_existing && write_list(db, args[1])?.is_none() {
        reply.int(0);
        return Ok(());
    }
    let list = list_or_new(db, args[1])?;
    for element in &args[2..] {
        list.push(end, element, &limits);
    }
    reply.int(list.len() as i64);
    db.changed(args[1], Class::List, push_event(end));
    Ok(())
}

fn linsert(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let side = if args::is(args[2], "BEFORE") {
        Side::Before
    } else if args::is(args[2], "AFTER") {
        Side::After
    } else {
        return Err(CommandError::Syntax);
    };
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let Some(list) = write_list(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    if list.insert(args[3], side, args[4], &limits) {
        reply.int(list.len() as i64);
        db.changed(args[1], Class::List, "linsert");
    } else {
        reply.int(-1);
    }
    Ok(())
}

fn llen(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(read_list(db, args[1])?.map_or(0, |list| list.len() as i64));
    Ok(())
}

/// An index that may be negative, as one inside `0..len`.
fn index_of(arg: Arg<'_>, len: usize) -> Result<Option<usize>, CommandError> {
    let index = args::int(arg)?;
    let index = if index < 0 { index.saturating_add(len as i64) } else { index };
    Ok(usize::try_from(index).ok().filter(|&index| index < len))
}

fn lindex(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(list) = read_list(db, args[1])? else {
        reply.null();
        return Ok(());
    };
    let index = index_of(args[2], list.len())?;
    collections::bulk_or_null(reply, index.and_then(|index| list.get(index)));
    Ok(())
}

fn lset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let list = write_list(db, args[1])?.ok_or(CommandError::NoSuchKey)?;
    let index = index_of(args[2], list.len())?.ok_or(CommandError::OutOfRange)?;
    list.set(index, args[3], &limits);
    reply.ok();
    db.changed(args[1], Class::List, "lset");
    Ok(())
}

fn lpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    pop(ctx, args, End::Left)
}

fn rpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    pop(ctx, args, End::Right)
}

fn pop(ctx: &mut Ctx<'_>, args: &[Arg<'_>], end: End) -> Done {
    if args.len() > 3 {
        return Err(CommandError::arity(pop_event(end)));
    }
    let count = args.get(2).map(|arg| at_least(arg, 0, collections::NOT_POSITIVE)).transpose()?;
    let (db, reply) = ctx.split();
    let Some(list) = write_list(db, args[1])? else {
        match count {
            Some(_) => reply.null_array(),
            None => reply.null(),
        }
        return Ok(());
    };
    match count {
        Some(0) => {
            reply.array(0);
            return Ok(());
        }
        Some(count) => {
            let count = count.min(list.len());
            reply.array(count);
            for _ in 0..count {
                if let Some(element) = list.pop(end) {
                    reply.bulk(&element);
                }
            }
        }
        None => reply.bulk_or_null(list.pop(end).as_deref()),
    }
    let is_empty = list.is_empty();
    removed_from(db, args[1], Class::List, pop_event(end), is_empty);
    Ok(())
}

fn lrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (start, stop) = (args::int(args[2])?, args::int(args[3])?);
    let (db, reply) = ctx.split();
    let Some(list) = read_list(db, args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let range = index_range(start, stop, list.len());
    reply.array(range.len());
    // Nothing was read for an empty range.
    if range.is_empty() {
        return Ok(());
    }
    for element in list.iter_from(range.start).take(range.len()) {
        collections::bulk(reply, element);
    }
    Ok(())
}

fn ltrim(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (start, stop) = (args::int(args[2])?, args::int(args[3])?);
    let (db, reply) = ctx.split();
    let Some(list) = write_list(db, args[1])? else {
        reply.ok();
        return Ok(());
    };
    let range = index_range(start, stop, list.len());
    list.remove_range(range.end, usize::MAX);
    list.remove_range(0, range.start);
    let is_empty = list.is_empty();
    reply.ok();
    removed_from(db, args[1], Class::List, "ltrim", is_empty);
    Ok(())
}

fn lrem(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let count = args::int(args[2])?;
    let (db, reply) = ctx.split();
    let Some(list) = write_list(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let from = if count < 0 { End::Right } else { End::Left };
    let removed =
        list.remove_equal(args[3], from, usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
    reply.int(removed as i64);
    let is_empty = list.is_empty();
    if removed > 0 {
        removed_from(db, args[1], Class::List, "lrem", is_empty);
    }
    Ok(())
}

fn lpos(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (mut rank, mut count, mut compared_max) = (1i64, None, 0);
    for option in args[3..].chunks(2) {
        let [name, value] = option else { return Err(CommandError::Syntax) };
        if args::is(name, "RANK") {
            rank = collections::signed_count(value)?;
            if rank == 0 {
                return Err(CommandError::of(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                     or use negative to start from the end of the list",
                ));
            }
        } else if args::is(name, "COUNT") {
            count = Some(at_least(value, 0, "ERR COUNT can't be negative")?);
        } else if args::is(name, "MAXLEN") {
            compared_max = at_least(value, 0, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let (db, reply) = ctx.split();
    let Some(list) = read_list(db, args[1])? else {
        match count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let compared_max = if compared_max == 0 { usize::MAX } else { compared_max };
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let found: Vec<usize> = if rank > 0 {
        let equal = list.iter().enumerate().take(compared_max).filter(|(_, element)| element.is(args[2]));
        equal.map(|(index, _)| index).skip(skipped).take(wanted).collect()
    } else {
        let last = list.len() - 1;
        let equal =
            list.iter().rev().enumerate().take(compared_max).filter(|(_, element)| element.is(args[2]));
        equal.map(|(index, _)| last - index).skip(skipped).take(wanted).collect()
    };
    match count {
        Some(_) => {
            reply.array(found.len());
            found.iter().for_each(|&index| reply.int(index as i64));
        }
        None => match found.first() {
            Some(&index) => reply.int(index as i64),
            None => reply.null(),
        },
    }
    Ok(())
}

fn rpoplpush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    move_or_null(ctx, args[1], args[2], End::Right, End::Left)
}

fn lmove(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (from, to) = (end_of(args[3])?, end_of(args[4])?);
    move_or_null(ctx, args[1], args[2], from, to)
}

fn move_or_null(ctx: &mut Ctx<'_>, source: Arg<'_>, target: Arg<'_>, from: End, to: End) -> Done {
    if !move_element(ctx, source, target, from, to)? {
        ctx.reply.null();
    }
    Ok(())
}

/// Moves an element and replies it. Returns whether the source has one.
fn move_element(
    ctx: &mut Ctx<'_>,
    source: Arg<'_>,
    target: Arg<'_>,
    from: End,
    to: End,
) -> Result<bool, CommandError> {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    if write_list(db, source)?.is_none() {
        return Ok(false);
    }
    write_list(db, target)?;
    let Some(list) = write_list(db, source)? else { return Ok(false) };
    let Some(element) = list.pop(from) else { return Ok(false) };
    let mut is_removed = list.is_empty();
    if source == target {
        list.push(to, &element, &limits);
        is_removed = false;
    } else {
        list_or_new(db, target)?.push(to, &element, &limits);
    }
    reply.bulk(&element);
    db.changed(target, Class::List, push_event(to));
    removed_from(db, source, Class::List, pop_event(from), is_removed);
    Ok(true)
}

/// Options of LMPOP after the keys: an end, and a count.
fn pop_options(options: &[Arg<'_>]) -> Result<(End, usize), CommandError> {
    let end = end_of(options.first().ok_or(CommandError::Syntax)?)?;
    match &options[1..] {
        [] => Ok((end, 1)),
        [name, count] if args::is(name, "COUNT") => Ok((end, at_least(count, 1, collections::COUNT)?)),
        _ => Err(CommandError::Syntax),
    }
}

/// Pops from the first list that has an element, as LMPOP replies it. Returns whether one has.
fn pop_from_first(ctx: &mut Ctx<'_>, keys: &[Arg<'_>], end: End, count: usize) -> Result<bool, CommandError> {
    let is_resumed = ctx.is_resumed;
    let (db, reply) = ctx.split();
    for key in keys {
        let Some(list) = list_to_pop(db, key, is_resumed)? else { continue };
        let count = count.min(list.len());
        reply.array(2);
        reply.bulk(key);
        reply.array(count);
        for _ in 0..count {
            if let Some(element) = list.pop(end) {
                reply.bulk(&element);
            }
        }
        let is_empty = list.is_empty();
        removed_from(db, key, Class::List, pop_event(end), is_empty);
        return Ok(true);
    }
    Ok(false)
}

/// The list of a key that a command waits for. A command that waited doesn't fail if the key got a value of another
/// type: it goes on waiting.
fn list_to_pop<'d>(
    db: &'d mut Keyspace,
    key: &[u8],
    is_resumed: bool,
) -> Result<Option<&'d mut crate::value::list::List>, CommandError> {
    match write_list(db, key) {
        Err(CommandError::WrongType) if is_resumed => Ok(None),
        found => found,
    }
}

fn lmpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (keys, options) = counted_keys(args, 1)?;
    let (end, count) = pop_options(options)?;
    if !pop_from_first(ctx, keys, end, count)? {
        ctx.reply.null_array();
    }
    Ok(())
}

fn blmpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let deadline_ms = args::timeout(args[1], ctx.now_ms())?;
    let (keys, options) = counted_keys(args, 2)?;
    let (end, count) = pop_options(options)?;
    if pop_from_first(ctx, keys, end, count)? {
        return Ok(());
    }
    ctx.block(keys, deadline_ms, None)
}

fn blpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    blocking_pop(ctx, args, End::Left)
}

fn brpop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    blocking_pop(ctx, args, End::Right)
}

fn blocking_pop(ctx: &mut Ctx<'_>, args: &[Arg<'_>], end: End) -> Done {
    let deadline_ms = args::timeout(args[args.len() - 1], ctx.now_ms())?;
    let keys = &args[1..args.len() - 1];
    let is_resumed = ctx.is_resumed;
    let (db, reply) = ctx.split();
    for key in keys {
        let Some(list) = list_to_pop(db, key, is_resumed)? else { continue };
        let Some(element) = list.pop(end) else { continue };
        reply.array(2);
        reply.bulk(key);
        reply.bulk(&element);
        let is_empty = list.is_empty();
        removed_from(db, key, Class::List, pop_event(end), is_empty);
        return Ok(());
    }
    ctx.block(keys, deadline_ms, None)
}

fn brpoplpush(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let deadline_ms = args::timeout(args[3], ctx.now_ms())?;
    move_or_block(ctx, args[1], args[2], End::Right, End::Left, deadline_ms)
}

fn blmove(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (from, to) = (end_of(args[3])?, end_of(args[4])?);
    let deadline_ms = args::timeout(args[5], ctx.now_ms())?;
    move_or_block(ctx, args[1], args[2], from, to, deadline_ms)
}

fn move_or_block(
    ctx: &mut Ctx<'_>,
    source: Arg<'_>,
    target: Arg<'_>,
    from: End,
    to: End,
    deadline_ms: Option<i64>,
) -> Done {
    let is_resumed = ctx.is_resumed;
    let is_ready = list_to_pop(ctx.db(), source, is_resumed)?.is_some();
    if is_ready && move_element(ctx, source, target, from, to)? {
        return Ok(());
    }
    if ctx.is_nested || ctx.client.denies_blocking {
        ctx.reply.null();
        return Ok(());
    }
    ctx.block(&[source], deadline_ms, None)
}
