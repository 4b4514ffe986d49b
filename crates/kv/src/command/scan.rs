//! Walking over keys, moving and copying them, looking at how they are kept.

use super::server::database;
use super::table::{Access, Acl, Flags, Group, Keys, Row, flags};
use super::walk::walked;
use super::{Arg, CommandError, Ctx, Done, args, help};
use crate::keyspace::{Class, Key};
use crate::tiering::evict::Mark;
use crate::value::glob;

const READ: Flags = Flags::READONLY;
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const TWO: Keys = Keys::At { first: 1, last: 2, step: 1, access: Access::ReadWrite };
const OBJECT_KEY: Keys = Keys::At { first: 2, last: 2, step: 1, access: Access::Read };

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    handler: super::Handler,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, flags, keys, handler).doc(Group::Generic, since, complexity, summary)
}

pub const ROWS: &[Row] = &[
    row("scan", -2, READ, Keys::None, scan, "2.8.0", "O(1) a call", "Walks over the keys of the database."),
    row(
        "keys",
        2,
        READ,
        Keys::None,
        keys,
        "1.0.0",
        "O(N) of all keys",
        "Returns the keys that match a pattern.",
    )
    .acl(Acl::DANGEROUS),
    row("randomkey", 1, READ, Keys::None, randomkey, "1.0.0", "O(1)", "Returns a random key."),
    row(
        "rename",
        3,
        WRITE,
        TWO,
        |ctx, args| rename(ctx, args, true),
        "1.0.0",
        "O(1)",
        "Renames a key, replacing another.",
    ),
    row(
        "renamenx",
        3,
        WRITE_FAST,
        TWO,
        |ctx, args| rename(ctx, args, false),
        "1.0.0",
        "O(1)",
        "Renames a key if the new name is free.",
    ),
    row(
        "copy",
        -3,
        flags(&[Flags::WRITE, Flags::DENYOOM, Flags::ALL_DATABASES]),
        TWO,
        copy,
        "6.2.0",
        "O(N) of the value",
        "Copies a key.",
    ),
    row(
        "move",
        3,
        flags(&[WRITE_FAST, Flags::ALL_DATABASES]),
        Keys::one(Access::ReadWrite),
        move_key,
        "1.0.0",
        "O(1)",
        "Moves a key to another database.",
    ),
    row(
        "object",
        -2,
        READ,
        Keys::None,
        |_, _| Err(CommandError::Syntax),
        "2.2.3",
        "O(1)",
        "Looks at how a key is kept.",
    )
    .with_subcommands(&[
        row("encoding", 3, READ, OBJECT_KEY, encoding, "2.2.3", "O(1)", "Returns the encoding of a value."),
        row(
            "refcount",
            3,
            READ,
            OBJECT_KEY,
            refcount,
            "2.2.3",
            "O(1)",
            "Returns how often a value is shared: always once.",
        ),
        row(
            "idletime",
            3,
            READ,
            OBJECT_KEY,
            idletime,
            "2.2.3",
            "O(1)",
            "Returns the seconds since the last access.",
        ),
        row(
            "tier",
            3,
            READ,
            OBJECT_KEY,
            tier,
            "7.0.0",
            "O(1)",
            "Says whether a value was found in memory or in storage.",
        ),
        row("freq", 3, READ, OBJECT_KEY, freq, "4.0.0", "O(1)", "Returns how often a key was accessed."),
        help::row(Group::Generic, "6.2.0"),
    ]),
];

/// The pattern that everything matches is not compared.
fn filter(pattern: Option<Arg<'_>>) -> impl Fn(&[u8]) -> bool {
    let pattern = pattern.filter(|pattern| *pattern != b"*").map(<[u8]>::to_vec);
    move |name| pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
}

fn scan(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let cursor = std::str::from_utf8(args[1]).ok().and_then(|text| text.parse::<u64>().ok());
    let mut cursor = cursor.ok_or(CommandError::of("ERR invalid cursor"))?;
    let (mut pattern, mut count, mut kind) = (None, 10, None);
    let options = args[2..].chunks(2);
    for option in options {
        let [word, value] = option else { return Err(CommandError::Syntax) };
        if args::is(word, "MATCH") {
            pattern = Some(*value);
        } else if args::is(word, "COUNT") {
            count = args::int(value)?;
            if count < 1 {
                return Err(CommandError::Syntax);
            }
        } else if args::is(word, "TYPE") {
            kind = Some(*value);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let matches = filter(pattern);
    if let Some(walked) = walked(ctx) {
        let is_wanted =
            |(name, of): &&(Box<[u8]>, &str)| matches(name) && kind.is_none_or(|kind| args::is(kind, of));
        let found: Vec<_> = walked.keys.iter().filter(is_wanted).collect();
        ctx.reply.array(2);
        ctx.reply.bulk(walked.cursor.to_string().as_bytes());
        ctx.reply.array(found.len());
        found.iter().for_each(|(name, _)| ctx.reply.bulk(name));
        return Ok(());
    }
    let (db, reply) = ctx.split();
    let mut found: Vec<Key> = Vec::new();
    let mut visited = 0;
    let mut steps = count.saturating_mul(10);
    loop {
        cursor = db.scan(cursor, |entry| {
            visited += 1;
            if matches(&entry.key) && kind.is_none_or(|kind| args::is(kind, entry.value.type_name())) {
                found.push(entry.key.clone());
            }
        });
        steps -= 1;
        if cursor == 0 || visited >= count || steps == 0 {
            break;
        }
    }
    found.retain(|key| db.contains(key));
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    for key in &found {
        reply.bulk(key);
    }
    Ok(())
}

fn keys(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let matches = filter(Some(args[1]));
    if let Some(walked) = walked(ctx) {
        let found: Vec<_> = walked.keys.iter().filter(|(name, _)| matches(name)).collect();
        ctx.reply.array(found.len());
        found.iter().for_each(|(name, _)| ctx.reply.bulk(name));
        return Ok(());
    }
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms;
    let mut found: Vec<Key> = Vec::new();
    db.for_each(|entry, expiry| {
        if expiry.is_none_or(|at_ms| at_ms > now_ms) && matches(&entry.key) {
            found.push(entry.key.clone());
        }
    });
    reply.array(found.len());
    for key in &found {
        reply.bulk(key);
    }
    Ok(())
}

fn randomkey(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    if let Some((name, _)) = walked(ctx).and_then(|walked| walked.keys.into_iter().next()) {
        ctx.reply.bulk(&name);
        return Ok(());
    }
    // What memory alone has.
    let (db, reply) = ctx.split();
    reply.bulk_or_null(db.random_key().as_deref());
    Ok(())
}

fn rename(ctx: &mut Ctx<'_>, args: &[Arg<'_>], replaces: bool) -> Done {
    let (from, to) = (args[1], args[2]);
    let (db, reply) = ctx.split();
    if !db.contains(from) {
        return Err(CommandError::NoSuchKey);
    }
    let taken = db.contains(to);
    if from == to || (taken && !replaces) {
        match replaces {
            true => reply.ok(),
            false => reply.int(0),
        }
        return Ok(());
    }
    let expiry = db.expiry(from);
    let Some(value) = db.remove(from) else { return Err(CommandError::NoSuchKey) };
    db.insert(to, value);
    db.set_expiry(to, expiry);
    db.changed(from, Class::Generic, "rename_from");
    db.changed(to, Class::Generic, "rename_to");
    match replaces {
        true => reply.ok(),
        false => reply.int(1),
    }
    Ok(())
}

fn copy(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (from, to) = (args[1], args[2]);
    let (mut target, mut replaces) = (ctx.client.db, false);
    let mut at = 3;
    while at < args.len() {
        if args::is(args[at], "REPLACE") {
            replaces = true;
        } else if args::is(args[at], "DB") && at + 1 < args.len() {
            target = database(ctx, args[at + 1], "ERR value is not an integer or out of range")?;
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    if target == ctx.client.db && from == to {
        return Err(CommandError::of("ERR source and destination objects are the same"));
    }
    let db = ctx.db();
    let expiry = db.expiry(from);
    let Some(value) = db.read(from).cloned() else {
        ctx.reply.int(0);
        return Ok(());
    };
    let target = &mut ctx.dbs.all[usize::from(target)];
    if target.contains(to) && !replaces {
        ctx.reply.int(0);
        return Ok(());
    }
    target.insert(to, value);
    target.set_expiry(to, expiry);
    target.changed(to, Class::Generic, "copy_to");
    ctx.reply.int(1);
    Ok(())
}

fn move_key(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let key = args[1];
    let target = database(ctx, args[2], "ERR value is not an integer or out of range")?;
    if target == ctx.client.db {
        return Err(CommandError::of("ERR source and destination objects are the same"));
    }
    let source = usize::from(ctx.client.db);
    let is_taken = ctx.dbs.all[usize::from(target)].contains(key);
    let expiry = ctx.dbs.all[source].expiry(key);
    let value = if is_taken { None } else { ctx.dbs.all[source].remove(key) };
    let Some(mut value) = value else {
        ctx.reply.int(0);
        return Ok(());
    };
    // Elements are stored by the database of their collection: the other one gets a collection of its own.
    value.end_large();
    ctx.dbs.all[source].changed(key, Class::Generic, "move_from");
    let target = &mut ctx.dbs.all[usize::from(target)];
    target.insert(key, value);
    target.set_expiry(key, expiry);
    target.changed(key, Class::Generic, "move_to");
    ctx.reply.int(1);
    Ok(())
}

fn encoding(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match db.peek(args[2]) {
        Some(value) => reply.bulk(value.encoding().as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

fn refcount(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match db.contains(args[2]) {
        true => reply.int(1),
        false => reply.null(),
    }
    Ok(())
}

/// No policy keeps frequencies yet, and Redis answers so under a policy that keeps none.
/// A value that was in storage alone stays there alone.
fn tier(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (was_cold, is_nested) = (ctx.client.was_cold, ctx.is_nested);
    let (db, reply) = ctx.split();
    match (db.contains(args[2]), was_cold) {
        (false, _) => reply.null(),
        (true, false) => reply.bulk(b"memory"),
        (true, true) => {
            reply.bulk(b"storage");
            // In a transaction or script, later commands were promised the key.
            if !is_nested {
                db.forget(args[2]);
            }
        }
    }
    Ok(())
}

fn freq(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    if let Some(mark) = db.entry(args[2]).map(|entry| Mark(entry.access)) {
        if let Some(frequency) = db.policy().and_then(|policy| policy.frequency(mark)) {
            reply.int(i64::from(frequency));
            return Ok(());
        }
        return Err(CommandError::of(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    reply.null();
    Ok(())
}

fn idletime(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    let now = db.now_ms / 1000;
    if db.policy().is_some() && db.contains(args[2]) {
        return Err(CommandError::of(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    match db.entry(args[2]) {
        Some(entry) => reply.int((now - i64::from(entry.access)).max(0)),
        None => reply.null(),
    }
    Ok(())
}
