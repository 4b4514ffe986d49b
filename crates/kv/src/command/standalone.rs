//! What clients ask of replication and cluster, answered as a server that stands alone.

use super::table::{Acl, Flags, Group, Keys, Row, flags};
use super::{Arg, CommandError, Ctx, Done};

const LOOK: Flags = flags(&[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::FAST]);
const CLUSTER: Flags = flags(&[Flags::LOADING, Flags::STALE, Flags::FAST]);

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
