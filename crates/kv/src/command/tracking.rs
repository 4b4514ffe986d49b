//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR.

use super::{Arg, CommandError, Ctx, Done, args};
use crate::client::tracking::Options;

pub fn tracking(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let mut options = Options::default();
    let mut rest = &args[3..];
    loop {
        rest = match rest {
            [] => break,
            [word, id, after @ ..] if args::is(word, "REDIRECT") => {
                if options.redirect.is_some() {
                    return Err(CommandError::of("ERR A client can only redirect to a single other client"));
                }
                let id = args::int_within(id, 0, i64::MAX, "ERR Invalid client ID")? as u64;
                if ctx.server.clients.get(id).is_none() && id != ctx.client.id {
                    return Err(CommandError::of("ERR The client ID you want redirect to does not exist"));
                }
                options.redirect = Some(id);
                after
            }
            [word, after @ ..] if args::is(word, "BCAST") => {
                options.broadcasts = true;
                after
            }
            [word, after @ ..] if args::is(word, "OPTIN") => {
                options.opts_in = true;
                after
            }
            [word, after @ ..] if args::is(word, "OPTOUT") => {
                options.opts_out = true;
                after
            }
            [word, after @ ..] if args::is(word, "NOLOOP") => {
                options.skips_own = true;
                after
            }
            [word, prefix, after @ ..] if args::is(word, "PREFIX") => {
                options.prefixes.push(prefix.to_vec());
                after
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    if args::is(args[2], "ON") {
        begin(ctx, options)?;
    } else if args::is(args[2], "OFF") {
        ctx.server.tracking.end(ctx.client);
    } else {
        return Err(CommandError::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

fn begin(ctx: &mut Ctx<'_>, options: Options) -> Done {
    if !options.broadcasts && !options.prefixes.is_empty() {
        return Err(CommandError::of("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if let Some(old) = &ctx.client.tracking {
        if old.broadcasts != options.broadcasts {
            return Err(CommandError::of(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
            ));
        }
        if (old.opts_in && options.opts_out) || (old.opts_out && options.opts_in) {
            return Err(CommandError::of(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
            ));
        }
    }
    if options.broadcasts && (options.opts_in || options.opts_out) {
        return Err(CommandError::of("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if options.opts_in && options.opts_out {
        return Err(CommandError::of("ERR You can't use both OPTIN and OPTOUT"));
    }
    let known = ctx.client.tracking.as_ref().map_or(&[][..], |old| &old.prefixes);
    for (at, prefix) in options.prefixes.iter().enumerate() {
        // The same prefix again is no overlap with what the client has.
        let overlaps = |other: &&Vec<u8>| prefix.starts_with(other) || other.starts_with(prefix);
        if let Some(other) = known.iter().filter(|other| *other != prefix).find(overlaps) {
            return Err(CommandError::err(format_args!(
                "Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                args::text(prefix),
                args::text(other)
            )));
        }
        if let Some(other) = options.prefixes[at + 1..].iter().find(overlaps) {
            return Err(CommandError::err(format_args!(
                "Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single client must not overlap.",
                args::text(prefix),
                args::text(other)
            )));
        }
    }
    ctx.server.tracking.begin(ctx.client, options);
    ctx.dbs.record_changes(true);
    Ok(())
}

pub fn caching(ctx: &mut Ctx<'_>, args: &[Arg<'_>]) -> Done {
    let Some(options) = &mut ctx.client.tracking else {
        return Err(CommandError::of(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let says = match () {
        () if args::is(args[2], "YES") => true,
        () if args::is(args[2], "NO") => false,
        () => return Err(CommandError::Syntax),
    };
    if says && !options.opts_in {
        return Err(CommandError::of(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ));
    }
    if !says && !options.opts_out {
        return Err(CommandError::of(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ));
    }
    options.caches_next = Some(says);
    ctx.reply.ok();
    Ok(())
}

/// What `CLIENT GETREDIR` and `TRACKINGINFO` say: -1 without tracking, 0 without another client.
pub fn redirection(options: Option<&Options>) -> i64 {
    options.map_or(-1, |options| options.redirect.map_or(0, |id| id as i64))
}

pub fn getredir(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    ctx.reply.int(redirection(ctx.client.tracking.as_deref()));
    Ok(())
}

pub fn trackinginfo(ctx: &mut Ctx<'_>, _: &[Arg<'_>]) -> Done {
    let own = ctx.client.tracking.as_deref();
    let mut words = vec![if own.is_some() { "on" } else { "off" }];
    if let Some(own) = own {
        let all = [
            (own.broadcasts, "bcast"),
            (own.opts_in, "optin"),
            (own.opts_in && own.caches_next == Some(true), "caching-yes"),
            (own.opts_out, "optout"),
            (own.opts_out && own.caches_next == Some(false), "caching-no"),
            (own.skips_own, "noloop"),
            (own.is_broken, "broken_redirect"),
        ];
        words.extend(all.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word));
    }
    let reply = &mut *ctx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(words.len());
    words.iter().for_each(|word| reply.bulk(word.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirection(own));
    reply.bulk(b"prefixes");
    let prefixes = own.map_or(&[][..], |own| &own.prefixes);
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
