//! SORT and SORT_RO: the elements of a list, set or sorted set in order, by themselves or by other keys.
//!
//! Strings are compared byte by byte, as in the C locale. With a storage tier the keys that patterns name are made known before the command runs,
//! once the sorted key is known ([`named_by_patterns`]).

use super::collections::store;
use super::hashes::remove_expired_fields;
use super::needs::Needs;
use super::table::CommandMatch;
use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::{Class, Databases, Keyspace};
use crate::storage::Key;
use crate::value::Value;
use crate::value::decimal::parse_double;
use crate::value::list::{End, List};
use crate::value::listpack::Element;
use std::cmp::Ordering;
use std::collections::HashMap;

const COMPLEXITY: &str = "O(N+M*log(M)) of the elements and those returned";
/// The sorted key and the destination. Keys that patterns name aren't known before the command runs.
const SORT_KEYS: Keys = Keys::Function(|args| {
    let store = (2..args.len()).rev().find(|&at| args::is(args[at], "STORE"));
    let target = store.map(|at| (at + 1, Access::Overwrite));
    std::iter::once((1, Access::Read)).chain(target).collect()
});

pub const ROWS: &[Row] = &[
    Row::new("sort", -2, flags(&[Flags::WRITE, Flags::DENYOOM, Flags::MOVABLE_KEYS]), SORT_KEYS, sort)
        .doc(
            Group::Generic,
            "1.0.0",
            COMPLEXITY,
            "Returns or stores the elements of a list, set or sorted set in order.",
        )
        .acl(super::Acl::SET.with(super::Acl::SORTEDSET).with(super::Acl::LIST).with(super::Acl::DANGEROUS)),
    Row::new("sort_ro", -2, flags(&[Flags::READONLY, Flags::MOVABLE_KEYS]), Keys::one(Access::Read), sort_ro)
        .doc(
            Group::Generic,
            "7.0.0",
            COMPLEXITY,
            "Returns the elements of a list, set or sorted set in order.",
        )
        .acl(super::Acl::SET.with(super::Acl::SORTEDSET).with(super::Acl::LIST).with(super::Acl::DANGEROUS)),
];

struct Request<'a> {
    /// A pattern for the keys that decide the order. Without a `*` the order is that of the collection.
    by: Option<Arg<'a>>,
    get: Vec<Arg<'a>>,
    offset: i64,
    count: i64,
    descending: bool,
    alpha: bool,
    target: Option<Arg<'a>>,
}

impl<'a> Request<'a> {
    fn parse(options: &[Arg<'a>], may_store: bool) -> Result<Request<'a>, CommandError> {
        let mut request = Request {
            by: None,
            get: Vec::new(),
            offset: 0,
            count: -1,
            descending: false,
            alpha: false,
            target: None,
        };
        let mut at = 0;
        while let Some(&word) = options.get(at) {
            match &options[at + 1..] {
                _ if args::is(word, "ASC") => request.descending = false,
                _ if args::is(word, "DESC") => request.descending = true,
                _ if args::is(word, "ALPHA") => request.alpha = true,
                [offset, count, ..] if args::is(word, "LIMIT") => {
                    request.offset = args::int(offset)?;
                    request.count = args::int(count)?;
                    at += 2;
                }
                [key, ..] if may_store && args::is(word, "STORE") => {
                    request.target = Some(key);
                    at += 1;
                }
                [pattern, ..] if args::is(word, "BY") => {
                    request.by = Some(pattern);
                    at += 1;
                }
                [pattern, ..] if args::is(word, "GET") => {
                    request.get.push(pattern);
                    at += 1;
                }
                _ => return Err(CommandError::Syntax),
            }
            at += 1;
        }
        Ok(request)
    }
}

/// What an element is ordered by.
enum Weight {
    Number(f64),
    /// `None` if the key of the pattern isn't there: before all others.
    Text(Option<Vec<u8>>),
}

fn sort(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run(ctx, args, true)
}

fn sort_ro(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    run(ctx, args, false)
}

/// Keys that patterns name may be any: the user must be allowed to read all.
fn check_rights(ctx: &Ctx<'_>, request: &Request<'_>) -> Result<(), CommandError> {
    if ctx.client.user.reads_all_keys() {
        return Ok(());
    }
    if request.by.is_some_and(|by| by.contains(&b'*')) {
        return Err(CommandError::of("ERR BY option of SORT denied due to insufficient ACL permissions."));
    }
    if request.get.iter().any(|pattern| *pattern != b"#") {
        return Err(CommandError::of("ERR GET option of SORT denied due to insufficient ACL permissions."));
    }
    Ok(())
}

fn run(ctx: &mut Ctx<'_>, args: &[Arg<'_>], may_store: bool) -> Done {
    let request = Request::parse(&args[2..], may_store)?;
    check_rights(ctx, &request)?;
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    let (elements, is_set) = elements(db, args[1])?;
    let elements = order(db, elements, &request, is_set)?;
    let range = slice(request.offset, request.count, elements.len());
    let chosen = &elements[range];
    let mut results: Vec<Option<Vec<u8>>> = Vec::with_capacity(chosen.len() * request.get.len().max(1));
    for element in chosen {
        if request.get.is_empty() {
            results.push(Some(element.clone()));
        }
        for pattern in &request.get {
            results.push(look_up(db, pattern, element));
        }
    }
    let Some(target) = request.target else {
        reply.array(results.len());
        for result in &results {
            reply.bulk_or_null(result.as_deref());
        }
        return Ok(());
    };
    let mut list = List::new();
    for result in &results {
        list.push(End::Right, result.as_deref().unwrap_or_default(), &limits);
    }
    reply.int(list.len() as i64);
    let list = (!list.is_empty()).then(|| list.into());
    store(db, target, list, Class::List, "sortstore");
    Ok(())
}

/// Whether the command sorts by keys, or gets some, that the elements name.
pub fn has_patterns(found: CommandMatch, args: &[Arg<'_>]) -> bool {
    let names_keys =
        |pair: &[Arg<'_>]| (args::is(pair[0], "BY") || args::is(pair[0], "GET")) && pair[1].contains(&b'*');
    is_sort(found) && args.len() > 2 && args[2..].windows(2).any(names_keys)
}

fn is_sort(found: CommandMatch) -> bool {
    found.parent.is_none() && matches!(found.row.name, "sort" | "sort_ro")
}

/// The keys that the patterns name, and what is needed of each. None are named as long as the sorted key is not in memory, all of it.
pub fn named_by_patterns(
    dbs: &Databases,
    db: u16,
    found: CommandMatch,
    args: &[Arg<'_>],
) -> Vec<(Key, Needs)> {
    if !has_patterns(found, args) {
        return Vec::new();
    }
    let Ok(request) = Request::parse(&args[2..], found.row.name == "sort") else { return Vec::new() };
    let sorted = dbs.all.get(usize::from(db)).and_then(|db| db.resident(args[1]));
    let Some((value, _)) = sorted else { return Vec::new() };
    if value.large().is_some_and(|large| !large.is_complete()) {
        return Vec::new();
    }
    let mut named: HashMap<Vec<u8>, Vec<Box<[u8]>>> = HashMap::new();
    let mut names: Vec<Vec<u8>> = Vec::new();
    for element in elements_of(value).unwrap_or_default() {
        for pattern in request.by.iter().chain(&request.get) {
            let Some((name, field)) = named_by(pattern, &element) else { continue };
            if !named.contains_key(&name) {
                names.push(name.clone());
            }
            named.entry(name).or_default().extend(field.map(Box::from));
        }
    }
    let needs = |name: Vec<u8>| {
        let fields = named.remove(&name).unwrap_or_default();
        (Key::new(db, &name), if fields.is_empty() { Needs::Head } else { Needs::Elements(fields) })
    };
    names.into_iter().map(needs).collect()
}

/// The elements of the sorted key, and whether it's a set, whose elements have no order.
fn elements(db: &mut Keyspace, key: &[u8]) -> Result<(Vec<Vec<u8>>, bool), CommandError> {
    let Some(value) = db.read(key) else { return Ok((Vec::new(), false)) };
    let elements = elements_of(value).ok_or(CommandError::WrongType)?;
    Ok((elements, matches!(value, Value::Set(_))))
}

/// None: the value's type has no elements to sort.
fn elements_of(value: &Value) -> Option<Vec<Vec<u8>>> {
    match value {
        Value::List(list) => Some(list.iter().map(Element::to_vec).collect()),
        Value::Set(set) => Some(set.iter().map(Element::to_vec).collect()),
        Value::Zset(zset) => Some(zset.iter_from(0).map(|(member, _)| member.to_vec()).collect()),
        _ => None,
    }
}

fn order(
    db: &mut Keyspace,
    mut elements: Vec<Vec<u8>>,
    request: &Request<'_>,
    is_set: bool,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let (mut by, mut alpha) = (request.by, request.alpha);
    if by.is_some_and(|pattern| !pattern.contains(&b'*')) {
        // A stored set is always ordered, so that its result doesn't depend on the order in memory.
        if !(is_set && request.target.is_some()) {
            if !is_set && request.descending {
                elements.reverse();
            }
            return Ok(elements);
        }
        (by, alpha) = (None, true);
    }
    let mut weighted = Vec::with_capacity(elements.len());
    for element in elements {
        let text = match by {
            Some(pattern) => look_up(db, pattern, &element),
            None => Some(element.clone()),
        };
        let weight = match text {
            text if alpha => Weight::Text(text),
            None => Weight::Number(0.0),
            Some(text) => Weight::Number(number(&text)?),
        };
        weighted.push((weight, element));
    }
    weighted.sort_by(|first, second| {
        let order = match (&first.0, &second.0) {
            (Weight::Number(a), Weight::Number(b)) => {
                a.partial_cmp(b).unwrap_or(Ordering::Equal).then_with(|| first.1.cmp(&second.1))
            }
            (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        };
        if request.descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

/// A weight; a number out of a double's range isn't one.
fn number(text: &[u8]) -> Result<f64, CommandError> {
    let number = if text.is_empty() { Some(0.0) } else { parse_double(text.trim_ascii_start()) };
    number.ok_or(CommandError::of("ERR One or more scores can't be converted into double"))
}

/// The part of the result that LIMIT asks for.
fn slice(offset: i64, count: i64, len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(offset.max(0)).unwrap_or(usize::MAX).min(len);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    start..start.saturating_add(count).min(len)
}

/// The key that a pattern with a `*` names for an element, which stands in its place, and the field of a hash after `->`.
fn named_by<'a>(pattern: &'a [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'a [u8]>)> {
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|pair| pair == b"->").filter(|arrow| arrow + 2 < after.len());
    let (after, field) = match arrow {
        Some(arrow) => (&after[..arrow], Some(&after[arrow + 2..])),
        None => (after, None),
    };
    Some(([before, element, after].concat(), field))
}

/// The string that a pattern means for an element: `#` is the element.
fn look_up(db: &mut Keyspace, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let (key, field) = named_by(pattern, element)?;
    if field.is_some() {
        remove_expired_fields(db, &key);
    }
    match (db.read(&key)?, field) {
        (Value::Hash(hash), Some(field)) => hash.get(field).map(Element::to_vec),
        (Value::Str(text), None) => Some(text.to_vec()),
        _ => None,
    }
}
