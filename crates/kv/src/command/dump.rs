//! DUMP and RESTORE: a value as bytes, in RDB form.

use super::table::{Access, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args};
use crate::keyspace::Class;
use crate::rdb::payload;
use crate::value::Value;

const RESTORE: Flags = flags(&[Flags::WRITE, Flags::DENYOOM]);
/// RESTORE reads the key only to see whether it is there.
const RESTORE_KEY: Keys = Keys::Function(|args| {
    let replaces = args.iter().skip(4).any(|arg| args::is(arg, "REPLACE"));
    vec![(1, if replaces { Access::Overwrite } else { Access::ReadWrite })]
});

pub const ROWS: &[Row] = &[
    Row::new("dump", 2, Flags::READONLY, Keys::one(Access::Read), dump).doc(
        Group::Generic,
        "2.6.0",
        "O(N) of the value's size",
        "Returns the value of a key in serialised form.",
    ),
    Row::new("restore", -4, RESTORE, RESTORE_KEY, restore)
        .doc(Group::Generic, "2.6.0", "O(N) of the value's size", "Creates a key from a serialised value.")
        .acl(super::Acl::DANGEROUS),
    Row::new("restore-asking", -4, RESTORE, RESTORE_KEY, restore)
        .doc(
            Group::Generic,
            "3.0.0",
            "O(N) of the value's size",
            "As RESTORE, for the migration of keys in a cluster.",
        )
        .acl(super::Acl::DANGEROUS),
];

fn dump(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (db, reply) = ctx.split();
    match db.read(args[1]).map(Value::to_rdb) {
        Some(value) => reply.bulk(&payload::seal(value)),
        None => reply.null(),
    }
    Ok(())
}

fn restore(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let (mut replace, mut absolute) = (false, false);
    let mut rest = &args[4..];
    loop {
        rest = match rest {
            [] => break,
            [name, after @ ..] if args::is(name, "REPLACE") => {
                replace = true;
                after
            }
            [name, after @ ..] if args::is(name, "ABSTTL") => {
                absolute = true;
                after
            }
            [name, value, after @ ..] if args::is(name, "IDLETIME") => {
                if args::int(value)? < 0 {
                    return Err(CommandError::of("ERR Invalid IDLETIME value, must be >= 0"));
                }
                after
            }
            [name, value, after @ ..] if args::is(name, "FREQ") => {
                if !(0..=255).contains(&args::int(value)?) {
                    return Err(CommandError::of("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                after
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    let key = args[1];
    let limits = ctx.limits();
    let (db, reply) = ctx.split();
    if !replace && db.contains(key) {
        return Err(CommandError::of("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = args::int(args[2])?;
    if ttl_ms < 0 {
        return Err(CommandError::of("ERR Invalid TTL value, must be >= 0"));
    }
    let value =
        payload::open(args[3]).ok_or(CommandError::of("ERR DUMP payload version or checksum are wrong"))?;
    let value = payload::decode(value).map_err(|_| CommandError::of("ERR Bad data format"))?;
    let value = Value::from_rdb(value, &limits);
    let expires_ms = match ttl_ms {
        0 => None,
        ms if absolute => Some(ms),
        ms => Some(db.now_ms.saturating_add(ms)),
    };
    let existed = replace && db.remove(key).is_some();
    if expires_ms.is_some_and(|at_ms| at_ms <= db.now_ms) {
        if existed {
            db.changed(key, Class::Generic, "del");
        }
        reply.ok();
        return Ok(());
    }
    db.insert(key, value);
    db.set_expiry(key, expires_ms);
    db.changed(key, Class::Generic, "restore");
    reply.ok();
    Ok(())
}
