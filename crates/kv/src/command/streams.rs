//! Streams: entries. Consumer groups are in `streams/`.

mod claim;
mod groups;
mod info;
mod read;

pub use info::reply_help;

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Keyspace};
use crate::resp::Reply;
use crate::value::Value;
use crate::value::stream::{Entry, NodeLimits, Stream, StreamId, Trim, TrimTo, parse_number};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = flags(&[Flags::READONLY, Flags::FAST]);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = flags(&[Flags::WRITE, Flags::FAST]);
const ADD_FAST: Flags = flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST]);
const ONE_READ: Keys = Keys::one(Access::Read);
const ONE_WRITE: Keys = Keys::one(Access::ReadWrite);
const BLOCKING_READ: Flags = flags(&[Flags::READONLY, Flags::BLOCKING, Flags::MOVABLE_KEYS]);
const BLOCKING_WRITE: Flags = flags(&[Flags::WRITE, Flags::BLOCKING, Flags::MOVABLE_KEYS]);
const READ_KEYS: Keys = Keys::Function(|args| read::key_positions(args, Access::Read));
const READ_GROUP_KEYS: Keys = Keys::Function(|args| read::key_positions(args, Access::ReadWrite));

pub const ROWS: &[Row] = &[
    Row::new("xadd", -5, ADD_FAST, ONE_WRITE, xadd).doc(
        Group::Stream,
        "5.0.0",
        "O(1), and O(N) of the entries trimmed",
        "Appends an entry to a stream.",
    ),
    Row::new("xlen", 2, READ_FAST, ONE_READ, xlen).doc(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Returns the number of entries of a stream.",
    ),
    Row::new("xrange", -4, READ, ONE_READ, xrange).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries returned",
        "Returns entries of a stream in order.",
    ),
    Row::new("xrevrange", -4, READ, ONE_READ, xrevrange).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries returned",
        "Returns entries of a stream in reverse order.",
    ),
    Row::new("xdel", -3, WRITE_FAST, ONE_WRITE, xdel).doc(
        Group::Stream,
        "5.0.0",
        "O(1) for each entry",
        "Removes entries of a stream.",
    ),
    Row::new("xtrim", -4, WRITE, ONE_WRITE, xtrim).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries removed",
        "Removes entries from the start of a stream.",
    ),
    Row::new("xsetid", -3, ADD_FAST, ONE_WRITE, xsetid).doc(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Sets the last identifier and the counters of a stream.",
    ),
    Row::new("xread", -4, BLOCKING_READ, READ_KEYS, read::xread).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries returned",
        "Returns entries of several streams after given ones, waiting for them if wanted.",
    ),
    Row::new("xreadgroup", -7, BLOCKING_WRITE, READ_GROUP_KEYS, read::xreadgroup).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries returned",
        "Delivers entries to a consumer of a group, waiting for them if wanted.",
    ),
    Row::new("xack", -4, WRITE_FAST, ONE_WRITE, groups::xack).doc(
        Group::Stream,
        "5.0.0",
        "O(1) for each entry",
        "Acknowledges entries delivered to a consumer group.",
    ),
    Row::new("xclaim", -6, WRITE_FAST, ONE_WRITE, claim::xclaim).doc(
        Group::Stream,
        "5.0.0",
        "O(log N) of the pending entries",
        "Makes a consumer the owner of pending entries.",
    ),
    Row::new("xautoclaim", -6, WRITE_FAST, ONE_WRITE, claim::xautoclaim).doc(
        Group::Stream,
        "6.2.0",
        "O(1) for a small COUNT",
        "Makes a consumer the owner of entries pending for long.",
    ),
    Row::new("xpending", -3, READ, ONE_READ, groups::xpending).doc(
        Group::Stream,
        "5.0.0",
        "O(N) of the entries returned",
        "Shows the pending entries of a consumer group.",
    ),
    Row::new("xgroup", -2, Flags::NONE, Keys::None, groups::container)
        .doc(Group::Stream, "5.0.0", "Depends on the subcommand", "Manages consumer groups.")
        .with_subcommands(groups::SUBCOMMANDS),
    Row::new("xinfo", -2, Flags::NONE, Keys::None, groups::container)
        .doc(Group::Stream, "5.0.0", "Depends on the subcommand", "Describes streams and consumer groups.")
        .with_subcommands(info::SUBCOMMANDS),
];

const BAD_ID: CommandError = CommandError::of("ERR Invalid stream ID specified as stream command argument");

/// A complete identifier, or one whose sequence number is `missing_seq`.
fn id(arg: Arg<'_>, missing_seq: u64) -> Result<StreamId, CommandError> {
    StreamId::parse(arg, missing_seq).ok_or(BAD_ID)
}

/// An end of a range: `-`, `+`, an identifier, or `(` and an identifier that is not included.
struct Bound {
    id: StreamId,
    excluded: bool,
}

fn bound(arg: Arg<'_>, missing_seq: u64) -> Result<Bound, CommandError> {
    match arg {
        b"-" => Ok(Bound { id: StreamId::MIN, excluded: false }),
        b"+" => Ok(Bound { id: StreamId::MAX, excluded: false }),
        [b'(', rest @ ..] if !rest.is_empty() => Ok(Bound { id: id(rest, missing_seq)?, excluded: true }),
        _ => Ok(Bound { id: id(arg, missing_seq)?, excluded: false }),
    }
}

fn range_start(arg: Arg<'_>) -> Result<StreamId, CommandError> {
    let Bound { id, excluded } = bound(arg, 0)?;
    let start = if excluded { id.successor() } else { Some(id) };
    start.ok_or(CommandError::of("ERR invalid start ID for the interval"))
}

fn range_end(arg: Arg<'_>) -> Result<StreamId, CommandError> {
    let Bound { id, excluded } = bound(arg, u64::MAX)?;
    let end = if excluded { id.predecessor() } else { Some(id) };
    end.ok_or(CommandError::of("ERR invalid end ID for the interval"))
}

fn read_stream<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d Stream>, CommandError> {
    Ok(db.read(key).map(Value::as_stream).transpose()?)
}

fn write_stream<'d>(db: &'d mut Keyspace, key: &[u8]) -> Result<Option<&'d mut Stream>, CommandError> {
    Ok(db.write(key).map(Value::as_stream_mut).transpose()?)
}

fn no_group(key: Arg<'_>, group: Arg<'_>) -> CommandError {
    CommandError::Text(
        format!("NOGROUP No such key '{}' or consumer group '{}'", args::text(key), args::text(group)).into(),
    )
}

fn no_such_group(key: Arg<'_>, group: Arg<'_>) -> CommandError {
    CommandError::Text(
        format!("NOGROUP No such consumer group '{}' for key name '{}'", args::text(group), args::text(key))
            .into(),
    )
}

fn reply_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(id.to_string().as_bytes());
}

fn reply_entry(reply: &mut Reply, entry: &Entry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(entry.fields() * 2);
    for (name, value) in entry.pairs() {
        reply.element(name);
        reply.element(value);
    }
}

/// How a new entry gets its identifier.
enum NewId {
    Auto,
    /// The next sequence number of this millisecond.
    AutoSequence(u64),
    Given(StreamId),
}

#[derive(Default)]
struct AddOptions {
    trim: Option<Trim>,
    no_create: bool,
    id: Option<NewId>,
    /// Arguments read.
    consumed: usize,
}

/// The options of XADD, up to and with the identifier, or all of XTRIM's.
fn parse_options(args: &[Arg<'_>], is_add: bool, entries_max: usize) -> Result<AddOptions, CommandError> {
    const TWICE: CommandError =
        CommandError::of("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
    let mut options = AddOptions::default();
    let mut limit = None;
    let mut at = 2;
    while at < args.len() {
        let (arg, more) = (args[at], args.len() - 1 - at);
        let by_length = args::is(arg, "MAXLEN");
        if is_add && arg == b"*" {
            options.id = Some(NewId::Auto);
            at += 1;
            break;
        } else if (by_length || args::is(arg, "MINID")) && more > 0 {
            if options.trim.is_some() {
                return Err(TWICE);
            }
            let marked = more >= 2 && matches!(args[at + 1], b"~" | b"=");
            let approximate = marked && args[at + 1] == b"~";
            at += 1 + usize::from(marked);
            let to = if by_length {
                let max = args::int(args[at])?;
                TrimTo::MaxLength(
                    u64::try_from(max)
                        .map_err(|_| CommandError::of("ERR The MAXLEN argument must be >= 0."))?,
                )
            } else {
                TrimTo::MinId(id(args[at], 0)?)
            };
            options.trim = Some(Trim { to, approximate, limit: 0 });
        } else if args::is(arg, "LIMIT") && more > 0 {
            at += 1;
            let most = args::int(args[at])?;
            limit = Some(
                u64::try_from(most).map_err(|_| CommandError::of("ERR The LIMIT argument must be >= 0."))?,
            );
        } else if is_add && args::is(arg, "NOMKSTREAM") {
            options.no_create = true;
        } else if is_add {
            options.id = Some(match arg.strip_suffix(b"-*") {
                Some(ms) => NewId::AutoSequence(parse_number(ms).ok_or(BAD_ID)?),
                None => NewId::Given(id(arg, 0)?),
            });
            at += 1;
            break;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    options.consumed = at;
    match &mut options.trim {
        None if limit.is_some_and(|limit| limit > 0) => {
            return Err(CommandError::of(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        None if !is_add => {
            return Err(CommandError::of("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        None => {}
        Some(trim) if !trim.approximate && limit.is_some() => {
            return Err(CommandError::of(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        Some(trim) => {
            // An approximate trim without a limit removes at most a hundred nodes, so that it is short.
            let default = match entries_max as u64 * 100 {
                0 => 10_000,
                entries => entries.min(1_000_000),
            };
            trim.limit = if trim.approximate { limit.unwrap_or(default) } else { 0 };
        }
    }
    Ok(options)
}

/// The identifier that a new entry gets. Nothing if it is not larger than the last one.
fn new_id(wanted: &NewId, last: StreamId, now_ms: u64) -> Option<StreamId> {
    match *wanted {
        NewId::Auto if now_ms > last.ms => Some(StreamId::new(now_ms, 0)),
        NewId::Auto => last.successor(),
        NewId::AutoSequence(ms) if ms == last.ms => Some(StreamId::new(ms, last.seq.checked_add(1)?)),
        NewId::AutoSequence(ms) => Some(StreamId::new(ms, 0)).filter(|id| *id > last),
        NewId::Given(id) => Some(id).filter(|id| *id > last),
    }
}

fn xadd(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let limits = ctx.server.stream_node_limits();
    let options = parse_options(args, true, limits.entries_max)?;
    let fields = &args[options.consumed.min(args.len())..];
    let (Some(wanted), false) = (options.id, fields.is_empty() || fields.len() % 2 == 1) else {
        return Err(CommandError::arity("xadd"));
    };
    if matches!(wanted, NewId::Given(StreamId::MIN)) {
        return Err(CommandError::of("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = args[1];
    let (db, reply) = ctx.split();
    let now_ms = db.now_ms.max(0) as u64;
    let last = match read_stream(db, key)? {
        Some(stream) => stream.last_id,
        None if options.no_create => {
            reply.null();
            return Ok(());
        }
        None => StreamId::MIN,
    };
    if last == StreamId::MAX {
        return Err(CommandError::of(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = new_id(&wanted, last, now_ms).ok_or(CommandError::of(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))?;
    if fields.iter().map(|field| field.len()).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err(CommandError::of("ERR Elements are too large to be stored"));
    }
    if !db.contains(key) {
        db.insert(key, Value::Stream(Box::default()));
    }
    let Some(stream) = write_stream(db, key)? else { return Err(CommandError::NoSuchKey) };
    stream.append(id, fields, limits);
    let trimmed = options.trim.map_or(0, |trim| stream.trim(trim));
    db.changed(key, Class::Stream, "xadd");
    if trimmed > 0 {
        db.changed(key, Class::Stream, "xtrim");
    }
    reply_id(reply, id);
    Ok(())
}

const ENTRY_BYTES_MAX: usize = 1 << 30;

fn xlen(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    reply.int(read_stream(db, args[1])?.map_or(0, Stream::len) as i64);
    Ok(())
}

fn xrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (start, end) = (range_start(args[2])?, range_end(args[3])?);
    reply_range(ctx, args, |stream, count, reply| write_entries(reply, stream.range(start, end), count))
}

fn xrevrange(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (start, end) = (range_start(args[3])?, range_end(args[2])?);
    reply_range(ctx, args, |stream, count, reply| write_entries(reply, stream.range_back(start, end), count))
}

fn reply_range(ctx: &mut Ctx<'_>, args: &[Arg<'_>], write: impl FnOnce(&Stream, usize, &mut Reply)) -> Done {
    let mut count = usize::MAX;
    let mut rest = &args[4..];
    while !rest.is_empty() {
        let [name, number, after @ ..] = rest else { return Err(CommandError::Syntax) };
        if !args::is(name, "COUNT") {
            return Err(CommandError::Syntax);
        }
        count = usize::try_from(args::int(number)?).unwrap_or(0);
        rest = after;
    }
    let (db, reply) = ctx.split();
    match read_stream(db, args[1])? {
        None => reply.array(0),
        Some(_) if count == 0 => reply.null_array(),
        Some(stream) => write(stream, count, reply),
    }
    Ok(())
}

fn write_entries<'s>(reply: &mut Reply, entries: impl Iterator<Item = Entry<'s>>, count: usize) {
    reply.counted_array(|reply| entries.take(count).inspect(|entry| reply_entry(reply, entry)).count());
}

fn xdel(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let ids = args[2..].iter().map(|arg| id(arg, 0)).collect::<Result<Vec<_>, _>>();
    let (db, reply) = ctx.split();
    let Some(stream) = write_stream(db, args[1])? else {
        reply.int(0);
        return Ok(());
    };
    let deleted = ids?.into_iter().filter(|id| stream.delete(*id)).count();
    if deleted > 0 {
        db.changed(args[1], Class::Stream, "xdel");
    }
    reply.int(deleted as i64);
    Ok(())
}

fn xtrim(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let limits: NodeLimits = ctx.server.stream_node_limits();
    let options = parse_options(args, false, limits.entries_max)?;
    let (db, reply) = ctx.split();
    let removed = match (write_stream(db, args[1])?, options.trim) {
        (Some(stream), Some(trim)) => stream.trim(trim),
        _ => 0,
    };
    if removed > 0 {
        db.changed(args[1], Class::Stream, "xtrim");
    }
    reply.int(removed as i64);
    Ok(())
}

fn xsetid(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let last = id(args[2], 0)?;
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    let mut rest = &args[3..];
    while let [name, value, after @ ..] = rest {
        if args::is(name, "ENTRIESADDED") {
            let number = args::int(value)?;
            added = Some(
                u64::try_from(number).map_err(|_| CommandError::of("ERR entries_added must be positive"))?,
            );
        } else if args::is(name, "MAXDELETEDID") {
            max_deleted = id(value, 0)?;
            if last < max_deleted {
                return Err(CommandError::of(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(CommandError::Syntax);
        }
        rest = after;
    }
    if !rest.is_empty() {
        return Err(CommandError::Syntax);
    }
    let (db, reply) = ctx.split();
    let stream = write_stream(db, args[1])?.ok_or(CommandError::NoSuchKey)?;
    if stream.last_live().is_some_and(|top| last < top) {
        return Err(CommandError::of(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if !stream.is_empty() && added.is_some_and(|added| added < stream.len()) {
        return Err(CommandError::of(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.last_id = last;
    if let Some(added) = added {
        stream.entries_added = added;
    }
    if max_deleted != StreamId::MIN {
        stream.max_deleted_id = max_deleted;
    }
    db.changed(args[1], Class::Stream, "xsetid");
    reply.ok();
    Ok(())
}
