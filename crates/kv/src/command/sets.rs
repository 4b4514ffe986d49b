//! Sets.

use super::collections::{
    self, Random, Scan, at_least, peek_set, read_set, removed_from, set_or_new, store, write_set,
};
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::value::limits::CollectionLimits;
use crate::value::listpack::Element;
use crate::value::set::Set;

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const ADD: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
const ADD_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const TAKE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const ONE: Keys = Keys::one(Access::ReadWrite);
const ONE_READ: Keys = Keys::one(Access::Read);
const INTO: Keys = Keys::Function(|args| {
    let keys = (1..args.len()).map(|at| (at, if at == 1 { Access::Overwrite } else { Access::Read }));
    keys.collect()
});

const fn row(row: Row, since: &'static str, complexity: &'static str, summary: &'static str) -> Row {
    row.doc(Group::Set, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row(Row::new("sadd", -3, ADD_FAST, ONE, sadd), "1.0.0", "O(1) for each member", "Adds members to a set."),
    row(
        Row::new("srem", -3, TAKE_FAST, ONE, srem),
        "1.0.0",
        "O(N) of the members given",
        "Removes members from a set.",
    ),
    row(
        Row::new(
            "smove",
            4,
            TAKE_FAST,
            Keys::At { first: 1, last: 2, step: 1, access: Access::ReadWrite },
            smove,
        ),
        "1.0.0",
        "O(1)",
        "Moves a member to another set.",
    ),
    row(
        Row::new("sismember", 3, READ_FAST, ONE_READ, sismember),
        "1.0.0",
        "O(1)",
        "Returns whether a set has a member.",
    ),
    row(
        Row::new("smismember", -3, READ_FAST, ONE_READ, smismember),
        "6.2.0",
        "O(N) of the members given",
        "Returns for each of several members whether a set has it.",
    ),
    row(Row::new("scard", 2, READ_FAST, ONE_READ, scard), "1.0.0", "O(1)", "Returns the number of members."),
    row(
        Row::new("spop", -2, TAKE_FAST, ONE, spop),
        "1.0.0",
        "O(N) of the members returned",
        "Removes random members and returns them.",
    ),
    row(
        Row::new("srandmember", -2, READ, ONE_READ, srandmember),
        "1.0.0",
        "O(N) of the members returned",
        "Returns random members.",
    ),
    row(
        Row::new("smembers", 2, READ, ONE_READ, smembers),
        "1.0.0",
        "O(N) of the size of the set",
        "Returns all members.",
    ),
    row(
        Row::new("sinter", -2, READ, Keys::all(Access::Read), sinter),
        "1.0.0",
        "O(N*M) of the smallest set and the number of sets",
        "Returns the intersection of sets.",
    ),
    row(
        Row::new("sintercard", -3, READ, Keys::Counted { number: 1, access: Access::Read }, sintercard),
        "7.0.0",
        "O(N*M) of the smallest set and the number of sets",
        "Returns the size of the intersection of sets.",
    ),
    row(
        Row::new("sinterstore", -3, ADD, INTO, sinterstore),
        "1.0.0",
        "O(N*M) of the smallest set and the number of sets",
        "Stores the intersection of sets.",
    ),
    row(
        Row::new("sunion", -2, READ, Keys::all(Access::Read), sunion),
        "1.0.0",
        "O(N) of all members",
        "Returns the union of sets.",
    ),
    row(
        Row::new("sunionstore", -3, ADD, INTO, sunionstore),
        "1.0.0",
        "O(N) of all members",
        "Stores the union of sets.",
    ),
    row(
        Row::new("sdiff", -2, READ, Keys::all(Access::Read), sdiff),
        "1.0.0",
        "O(N) of all members",
        "Returns the members of the first set that no other set has.",
    ),
    row(
        Row::new("sdiffstore", -3, ADD, INTO, sdiffstore),
        "1.0.0",
        "O(N) of all members",
        "Stores the members of the first set that no other set has.",
    ),
    row(
        Row::new("sscan", -3, READ, ONE_READ, sscan),
        "2.8.0",
        "O(1) for each call",
        "Iterates over the members of a set.",
    ),
];

fn sadd(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let set = set_or_new(db, args[1])?;
    let added = args[2..].iter().filter(|member| set.insert(member, &limits)).count();
    if added > 0 {
        db.changed(args[1], Class::Set, "sadd");
    }
    reply.int(added as i64);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(set) = write_set(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let removed = args[2..].iter().filter(|member| set.remove(member)).count();
    let is_empty = set.is_empty();
    if removed > 0 {
        removed_from(db, args[1], Class::Set, "srem", is_empty);
    }
    reply.int(removed as i64);
    Ok(())
}

fn smove(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (source, target, member) = (args[1], args[2], args[3]);
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    if write_set(db, source)?.is_none() {
        reply.int(0);
        return Ok(());
    }
    write_set(db, target)?;
    let Some(set) = write_set(db, source)? else { return Ok(()) };
    if source == target {
        reply.int(i64::from(set.contains(member)));
        return Ok(());
    }
    if !set.remove(member) {
        reply.int(0);
        return Ok(());
    }
    let is_empty = set.is_empty();
    removed_from(db, source, Class::Set, "srem", is_empty);
    if set_or_new(db, target)?.insert(member, &limits) {
        db.changed(target, Class::Set, "sadd");
    }
    reply.int(1);
    Ok(())
}

fn sismember(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(read_set(db, args[1])?.map_or(0, |set| i64::from(set.contains(args[2]))));
    Ok(())
}

fn smismember(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let set = read_set(db, args[1])?;
    reply.array(args.len() - 2);
    for member in &args[2..] {
        reply.int(set.map_or(0, |set| i64::from(set.contains(member))));
    }
    Ok(())
}

fn scard(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(read_set(db, args[1])?.map_or(0, |set| set.len() as i64));
    Ok(())
}

fn spop(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = args.get(2).map(|arg| at_least(arg, 0, collections::NOT_POSITIVE)).transpose()?;
    let (db, reply) = ctx.split();
    let mut random = Random::of(db);
    let Some(set) = write_set(db, args[1])? else {
        match count {
            Some(_) => reply.set(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        let index = random.below(set.len());
        if let Some(member) = set.nth(index).map(Element::to_box) {
            set.remove(&member);
            reply.bulk(&member);
        }
        let is_empty = set.is_empty();
        removed_from(db, args[1], Class::Set, "spop", is_empty);
        return Ok(());
    };
    if count == 0 {
        reply.set(0);
        return Ok(());
    }
    let count = count.min(set.len());
    reply.set(count);
    if count == set.len() {
        set.iter().for_each(|member| collections::bulk(reply, member));
        removed_from(db, args[1], Class::Set, "spop", true);
        return Ok(());
    }
    for _ in 0..count {
        let index = random.below(set.len());
        if let Some(member) = set.nth(index).map(Element::to_box) {
            set.remove(&member);
            reply.bulk(&member);
        }
    }
    db.changed(args[1], Class::Set, "spop");
    Ok(())
}

fn srandmember(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = args.get(2).map(|arg| collections::signed_count(arg)).transpose()?;
    let (db, reply) = ctx.split();
    let mut random = Random::of(db);
    let Some(set) = read_set(db, args[1])? else {
        match count {
            Some(_) => reply.array(0),
            None => reply.null(),
        }
        return Ok(());
    };
    match count {
        None => collections::bulk_or_null(reply, set.nth(random.below(set.len()))),
        Some(count) if count < 0 => {
            let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            reply.array(count);
            for _ in 0..count {
                collections::bulk_or_null(reply, set.nth(random.below(set.len())));
            }
        }
        Some(count) => {
            let chosen = random.distinct(usize::try_from(count).unwrap_or(usize::MAX), set.len());
            reply.array(chosen.len());
            if chosen.len() == set.len() {
                set.iter().for_each(|member| collections::bulk(reply, member));
            } else {
                chosen.iter().for_each(|&index| collections::bulk_or_null(reply, set.nth(index)));
            }
        }
    }
    Ok(())
}

fn smembers(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let Some(set) = read_set(db, args[1])? else {
        reply.set(0);
        return Ok(());
    };
    reply.set(set.len());
    set.iter().for_each(|member| collections::bulk(reply, member));
    Ok(())
}

/// The sets of several keys; `None` for a key that isn't there.
fn sets<'d>(db: &'d mut Keyspace, keys: &[Arg<'_>]) -> Result<Vec<Option<&'d Set>>, CommandError> {
    for key in keys {
        read_set(db, key)?;
    }
    let db = &*db;
    Ok(keys.iter().map(|key| peek_set(db, key)).collect())
}

/// Visits the members that all sets have, until `visit` returns false.
fn intersect(sets: &[Option<&Set>], mut visit: impl FnMut(Element<'_>) -> bool) {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<&Set>>>() else { return };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    for member in smallest.iter() {
        let mut buffer = itoa::Buffer::new();
        let bytes = member.bytes(&mut buffer);
        if others.iter().all(|set| std::ptr::eq(*set, *smallest) || set.contains(bytes)) && !visit(member) {
            return;
        }
    }
}

fn add(result: &mut Set, member: Element<'_>, limits: &CollectionLimits) {
    result.insert(member.bytes(&mut itoa::Buffer::new()), limits);
}

fn intersection(sets: &[Option<&Set>], limits: &CollectionLimits) -> Set {
    let mut result = Set::new();
    intersect(sets, |member| {
        add(&mut result, member, limits);
        true
    });
    result
}

fn union(sets: &[Option<&Set>], limits: &CollectionLimits) -> Set {
    let mut result = Set::new();
    for set in sets.iter().flatten() {
        set.iter().for_each(|member| add(&mut result, member, limits));
    }
    result
}

fn difference(sets: &[Option<&Set>], limits: &CollectionLimits) -> Set {
    let mut result = Set::new();
    if let Some((Some(first), others)) = sets.split_first() {
        for member in first.iter() {
            let mut buffer = itoa::Buffer::new();
            let bytes = member.bytes(&mut buffer);
            if !others.iter().flatten().any(|set| set.contains(bytes)) {
                result.insert(bytes, limits);
            }
        }
    }
    result
}

type Combine = fn(&[Option<&Set>], &CollectionLimits) -> Set;

fn combine(ctx: &mut Ctx<'_>, keys: &[Arg<'_>], combine: Combine) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let result = combine(&sets(db, keys)?, &limits);
    reply.set(result.len());
    result.iter().for_each(|member| collections::bulk(reply, member));
    Ok(())
}

fn combine_into(ctx: &mut Ctx<'_>, args: &[Arg<'_>], combine: Combine, event: &'static str) -> Done {
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let result = combine(&sets(db, &args[2..])?, &limits);
    reply.int(result.len() as i64);
    let result = (!result.is_empty()).then(|| result.into());
    store(db, args[1], result, Class::Set, event);
    Ok(())
}

fn sinter(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, &args[1..], intersection)
}

fn sinterstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, intersection, "sinterstore")
}

fn sunion(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, &args[1..], union)
}

fn sunionstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, union, "sunionstore")
}

fn sdiff(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine(ctx, &args[1..], difference)
}

fn sdiffstore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    combine_into(ctx, args, difference, "sdiffstore")
}

/// Keys and the limit of SINTERCARD and ZINTERCARD.
pub fn card_options<'a, 'b>(args: &'b [Arg<'a>]) -> Result<(&'b [Arg<'a>], usize), CommandError> {
    let count = at_least(args[1], 1, collections::NUMKEYS)?;
    if count > args.len() - 2 {
        return Err(CommandError::of("ERR Number of keys can't be greater than number of args"));
    }
    let (keys, options) = args[2..].split_at(count);
    let mut limit = 0;
    for option in options.chunks(2) {
        match option {
            [name, value] if args::is(name, "LIMIT") => {
                limit = at_least(value, 0, "ERR LIMIT can't be negative")?
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok((keys, if limit == 0 { usize::MAX } else { limit }))
}

fn sintercard(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (keys, limit) = card_options(args)?;
    let (db, reply) = ctx.split();
    let mut count = 0;
    intersect(&sets(db, keys)?, |_| {
        count += 1;
        count < limit
    });
    reply.int(count as i64);
    Ok(())
}

fn sscan(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    Scan::cursor(args)?;
    let walked = collections::walked(ctx);
    let (db, reply) = ctx.split();
    let Some(set) = read_set(db, args[1])? else {
        Scan::reply(reply, 0, &[]);
        return Ok(());
    };
    let scan = Scan::parse(args)?;
    let mut members = Vec::new();
    let add = |member: Element<'_>| {
        if scan.matches(member) {
            members.push(member.to_vec());
        }
    };
    let cursor = match walked {
        Some(walked) => {
            let is_there =
                |name: &[u8], is_stored| set.has_element(name) || (is_stored && !set.is_known_absent(name));
            walked.names(is_there).into_iter().map(Element::Bytes).for_each(add);
            walked.cursor
        }
        None => set.scan(scan.cursor, scan.count, add),
    };
    Scan::reply(reply, cursor, &members);
    Ok(())
}
