//! What clients ask of replication and cluster, answered as a server that stands alone.

use super::table::{Acl, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done, args, help};

const LOOK: Flags = flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::FAST]);
const CLUSTER: Flags = flags(&[Flags::LOADING, Flags::STALE, Flags::FAST]);

const CLUSTER_LOOK: Flags = flags(&[Flags::LOADING, Flags::STALE]);
const REPLICATION: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT, Flags::STALE]);
const MODULES: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT]);

const fn of_cluster(name: &'static str, arity: i32) -> Row {
    Row::new(name, arity, CLUSTER_LOOK, Keys::None, no_cluster).doc(
        Group::Cluster,
        "3.0.0",
        "O(1)",
        "Is refused: there is no cluster.",
    )
}

const fn row(
    name: &'static str,
    flags: Flags,
    group: Group,
    handler: super::Handler,
    summary: &'static str,
) -> Row {
    Row::new(name, 1, flags, Keys::None, handler).doc(group, "3.0.0", "O(1)", summary)
}

pub const ROWS: &[Row] = &[
    row("role", LOOK, Group::Server, role, "Says that the server is a primary without replicas.")
        .acl(Acl::ADMIN.with(Acl::DANGEROUS)),
    row("readonly", CLUSTER, Group::Cluster, no_cluster, "Is refused: there is no cluster.")
        .acl(Acl::CONNECTION),
    row("readwrite", CLUSTER, Group::Cluster, no_cluster, "Is refused: there is no cluster.")
        .acl(Acl::CONNECTION),
    row("asking", CLUSTER, Group::Cluster, no_cluster, "Is refused: there is no cluster.")
        .acl(Acl::CONNECTION),
    Row::new("cluster", -2, CLUSTER_LOOK, Keys::None, no_cluster)
        .doc(Group::Cluster, "3.0.0", "O(1)", "Is refused: there is no cluster.")
        .with_subcommands(&[
            of_cluster("info", 2),
            of_cluster("nodes", 2),
            of_cluster("slots", 2),
            of_cluster("shards", 2),
            of_cluster("links", 2),
            of_cluster("myid", 2),
            of_cluster("keyslot", 3),
            of_cluster("countkeysinslot", 3),
            of_cluster("getkeysinslot", 4),
            of_cluster("replicas", 3),
            of_cluster("reset", -2),
            help::row(Group::Cluster, "5.0.0"),
        ]),
    Row::new("replicaof", 3, REPLICATION, Keys::None, replicaof).doc(
        Group::Server,
        "5.0.0",
        "O(1)",
        "NO ONE is taken: the server is a primary. Is refused with a server: it follows none.",
    ),
    Row::new("slaveof", 3, REPLICATION, Keys::None, replicaof).doc(
        Group::Server,
        "1.0.0",
        "O(1)",
        "As REPLICAOF.",
    ),
    Row::new("failover", -1, REPLICATION, Keys::None, failover).doc(
        Group::Server,
        "6.2.0",
        "O(1)",
        "Is refused: there are no replicas.",
    ),
    Row::new("module", -2, Flags::NONE, Keys::None, |_, _| Err(CommandError::Syntax))
        .doc(Group::Server, "4.0.0", "O(1)", "Lists modules: there are none.")
        .with_subcommands(&[
            Row::new("list", 2, MODULES, Keys::None, modules).doc(
                Group::Server,
                "4.0.0",
                "O(1)",
                "Returns the modules: none.",
            ),
            Row::new("load", -3, MODULES, Keys::None, no_modules).doc(
                Group::Server,
                "4.0.0",
                "O(1)",
                "Is refused: there are no modules.",
            ),
            help::row(Group::Server, "5.0.0"),
        ]),
    Row::new("debug", -2, MODULES, Keys::None, no_debug).doc(
        Group::Server,
        "1.0.0",
        "O(1)",
        "Is refused: it is for a server's own tests.",
    ),
    Row::new("lolwut", -1, flags(&[Flags::READONLY, Flags::FAST]), Keys::None, lolwut).doc(
        Group::Server,
        "5.0.0",
        "O(1)",
        "Tells the version.",
    ),
];

fn role(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(0);
    ctx.reply.array(0);
    Ok(())
}

fn no_cluster(_: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    Err(CommandError::of("ERR This instance has cluster support disabled"))
}

fn replicaof(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    if args::is(args[1], "NO") && args::is(args[2], "ONE") {
        ctx.reply.ok();
        return Ok(());
    }
    args::int_within(args[2], 0, 65535, "ERR Invalid master port")?;
    Err(CommandError::of(
        "ERR this server follows no other one. `terrace kv copy` copies a running Redis and follows it until it is stopped",
    ))
}

fn failover(_: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    Err(CommandError::of("ERR FAILOVER requires connected replicas."))
}

fn modules(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.array(0);
    Ok(())
}

fn no_modules(_: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    Err(CommandError::of("ERR this server loads no modules"))
}

fn no_debug(_: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    Err(CommandError::of("ERR DEBUG command not allowed."))
}

fn lolwut(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let text =
        format!("Terrace {}, Redis ver. {}\n", env!("CARGO_PKG_VERSION"), crate::server::REDIS_VERSION);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}
