//! LATENCY and WAIT.

use super::table::{Flags, Group, Keys, Row, flags, table};
use super::{Arg, CommandError, Ctx, Done, args, help};

const ADMIN: Flags = flags(&[Flags::ADMIN, Flags::NOSCRIPT, Flags::LOADING, Flags::STALE]);

const fn row(
    name: &'static str,
    arity: i32,
    handler: super::Handler,
    since: &'static str,
    summary: &'static str,
) -> Row {
    Row::new(name, arity, ADMIN, Keys::None, handler).doc(Group::Server, since, "O(1)", summary)
}

pub const ROWS: &[Row] = &[
    Row::new("wait", 3, Flags::NOSCRIPT, Keys::None, wait).doc(
        Group::Generic,
        "3.0.0",
        "O(1)",
        "Returns how many replicas have the client's writes: this server has none.",
    ),
    Row::new("latency", -2, Flags::NONE, Keys::None, |_, _| Err(CommandError::Syntax))
        .doc(Group::Server, "2.8.13", "O(1)", "Looks at how long commands take.")
        .with_subcommands(&[
            row("doctor", 2, doctor, "2.8.13", "Describes the slow moments."),
            row(
                "histogram",
                -2,
                histogram,
                "7.0.0",
                "Returns how the durations of commands are distributed.",
            ),
            row("history", 3, history, "2.8.13", "Returns the slow moments of an event."),
            row("latest", 2, latest, "2.8.13", "Returns the last slow moment of each event."),
            row("reset", -2, reset, "2.8.13", "Forgets the slow moments."),
            help::row(Group::Server, "2.8.13"),
        ]),
];

fn wait(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    args::int(args[1])?;
    let timeout =
        args::int(args[2]).map_err(|_| CommandError::of("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::of("ERR timeout is negative"));
    }
    ctx.reply.int(0);
    Ok(())
}

fn doctor(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let events = &ctx.server.latency.events;
    let text = if ctx.server.config.number("latency-monitor-threshold") == 0 {
        "Latency is not monitored: latency-monitor-threshold is 0.\n".to_owned()
    } else if events.is_empty() {
        "No command reached latency-monitor-threshold.\n".to_owned()
    } else {
        let line = |(name, event): (&&str, &crate::slowlog::latency::Event)| {
            let count = event.samples.len();
            let total: u64 = event.samples.iter().map(|sample| sample.millis).sum();
            let average = total / count.max(1) as u64;
            format!(
                "{name}: {count} slow seconds, on average {average} ms, at most {} ms.\n",
                event.longest_millis
            )
        };
        events.iter().map(line).collect()
    };
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn histogram(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let is_wanted = |found: &&super::table::CommandMatch| {
        args.len() == 2
            || args[2..].iter().any(|name| {
                let parent = found.parent.unwrap_or(found.row);
                args::is(name, &found.full_name()) || args::is(name, parent.name)
            })
    };
    let server = &*ctx.server;
    let used: Vec<_> = table()
        .all
        .iter()
        .filter(is_wanted)
        .filter(|found| server.command_stats[found.number].calls > 0)
        .collect();
    let reply = &mut *ctx.reply;
    reply.map(used.len());
    for found in used {
        let stats = &server.command_stats[found.number];
        let steps: Vec<(u64, u64)> = stats.durations.steps().collect();
        reply.bulk(found.full_name().as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(stats.calls as i64);
        reply.bulk(b"histogram_usec");
        reply.map(steps.len());
        for (micros, count) in steps {
            reply.int(micros as i64);
            reply.int(count as i64);
        }
    }
    Ok(())
}

fn history(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let event = ctx.server.latency.events.iter().find(|(name, _)| name.as_bytes() == args[2]);
    let reply = &mut *ctx.reply;
    let Some((_, event)) = event else {
        reply.array(0);
        return Ok(());
    };
    reply.array(event.samples.len());
    for sample in &event.samples {
        reply.array(2);
        reply.int(sample.at);
        reply.int(sample.millis as i64);
    }
    Ok(())
}

fn latest(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let events = &ctx.server.latency.events;
    let reply = &mut *ctx.reply;
    reply.array(events.len());
    for (name, event) in events {
        let (at, millis) = event.samples.back().map_or((0, 0), |last| (last.at, last.millis));
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.int(at);
        reply.int(millis as i64);
        reply.int(event.longest_millis as i64);
    }
    Ok(())
}

fn reset(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let events = &mut ctx.server.latency.events;
    let before = events.len();
    events.retain(|name, _| args.len() > 2 && !args[2..].iter().any(|arg| args::is(arg, name)));
    ctx.reply.int((before - events.len()) as i64);
    Ok(())
}
