//! What a failed attempt means: one table from what the crate and the wire say to what the caller
//! gets, and whether another attempt makes sense.
//!
//! A request that changes objects is *in doubt* once it may have reached the server without an
//! answer that excludes an effect. It may still be sent again, for it is conditional; but then a
//! refused condition may be its own doing, and a failure is [`StoreError::Unknown`].

use crate::object::wire::Wire;
use crate::store::StoreError;
use object_store::Error;
use std::time::Duration;

/// What kind of request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    /// A conditional put.
    Put,
    /// The beginning of an upload, or one of its parts: nothing is visible of it, and it may be repeated.
    Part,
    /// The completion of an upload.
    Complete,
    /// A copy within the service of an object that does not change: it may be repeated.
    Copy,
    /// The request is about an object or an upload.
    Delete,
}

impl Kind {
    /// An attempt without an answer may have changed what others see.
    fn may_take_effect(self) -> bool {
        matches!(self, Kind::Put | Kind::Complete | Kind::Delete)
    }
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Final(StoreError),
    /// Another attempt may help, not before the given time.
    Again {
        error: StoreError,
        after: Option<Duration>,
        in_doubt: bool,
    },
}

/// Longest piece of a server's text that is passed on.
const CAUSE_MAX: usize = 400;
/// What is told when the server asks to slow down and names no time.
const RETRY_AFTER: Duration = Duration::from_millis(500);

pub(crate) fn judge(key: &str, kind: Kind, error: &Error, wire: &Wire) -> Verdict {
    let text = cause(error);
    let whole = whole_text(error);
    let again = |error, in_doubt| Verdict::Again { error, after: wire.retry_after, in_doubt };
    let unavailable = || StoreError::Unavailable { key: key.into(), cause: text.clone() };
    let unknown = || StoreError::Unknown { key: key.into(), cause: text.clone() };
    let refused = |why: &str| {
        let cause = if why.is_empty() { text.clone() } else { format!("{why}: {text}") };
        Verdict::Final(StoreError::Refused { key: key.into(), cause })
    };
    let has = |needles: &[&str]| needles.iter().any(|needle| whole.contains(needle));

    if wire.asked_metadata {
        return match wire.status {
            Some(429 | 500..) => again(unavailable(), false),
            _ => refused(
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the provider's own",
            ),
        };
    }
    if let Some(status) = wire.status {
        let slow_down = has(&["SlowDown", "ServerBusy", "TooManyRequests"]);
        let is_condition = matches!(
            error,
            Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }
        );
        return match status {
            // The parts have to be sent anew.
            409 if kind == Kind::Complete && has(&["ConditionalRequestConflict"]) => {
                Verdict::Final(unavailable())
            }
            // S3 refuses a conditional put beside another one of the same key, before any effect.
            409 if has(&["ConditionalRequestConflict", "OperationAborted"]) => again(unavailable(), false),
            409 | 412 | 304 if matches!(kind, Kind::Put | Kind::Complete) && is_condition => {
                Verdict::Final(StoreError::Conflict { key: key.into() })
            }
            404 if matches!(kind, Kind::Part | Kind::Complete) && has(&["NoSuchUpload"]) => {
                refused("no such upload")
            }
            404 if matches!(kind, Kind::Put | Kind::Part | Kind::Complete)
                || has(&["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]) =>
            {
                refused("no such bucket or container")
            }
            404 if matches!(error, Error::NotFound { .. }) => {
                Verdict::Final(StoreError::Absent { key: key.into() })
            }
            416 => refused("the range lies past the object"),
            429 => again(throttled(key, wire), false),
            503 => again(throttled(key, wire), kind.may_take_effect() && !slow_down),
            408 => again(unavailable(), kind.may_take_effect()),
            400 if has(&["RequestTimeout"]) => again(unavailable(), false),
            500.. => again(unavailable(), kind.may_take_effect()),
            // Azure deletes in batches: the batch is accepted, and says of each whether it was there.
            200..300 if kind == Kind::Delete && matches!(error, Error::NotFound { .. }) => {
                Verdict::Final(StoreError::Absent { key: key.into() })
            }
            // An answer that came and was then cut off or not understood.
            200..300 if matches!(kind, Kind::Read | Kind::Part | Kind::Copy) => again(unavailable(), false),
            200..300 => Verdict::Final(unknown()),
            300..400 => refused("the store is elsewhere (wrong region or endpoint?)"),
            401 | 403 => refused("access denied"),
            _ => refused(""),
        };
    }
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => {
            Verdict::Final(StoreError::Conflict { key: key.into() })
        }
        Error::NotFound { .. } => Verdict::Final(StoreError::Absent { key: key.into() }),
        _ if wire.requests > 0 && wire.wrote && wire.timed_out && kind.may_take_effect() => {
            Verdict::Final(unknown())
        }
        _ if wire.requests > 0 => again(unavailable(), wire.wrote && kind.may_take_effect()),
        // Nothing was sent: the call, the configuration or the credentials are wrong.
        _ => refused(""),
    }
}

fn throttled(key: &str, wire: &Wire) -> StoreError {
    let wait = wire.retry_after.unwrap_or(RETRY_AFTER);
    StoreError::Throttled { key: key.into(), retry_after_ms: wait.as_millis().try_into().unwrap_or(u64::MAX) }
}

/// The error's text without anything that could be a secret: queries of URLs are cut (they may be
/// signatures), and a server's answer is kept short.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let words: Vec<String> = whole_text(error).split_whitespace().map(without_query).collect();
    let text = words.join(" ").replace(char::is_control, " ");
    match text.char_indices().nth(CAUSE_MAX) {
        Some((end, _)) => text[..end].to_string(),
        None => text,
    }
}

/// All that the error and its sources say, each once. Not to be shown: see [`cause`].
fn whole_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}

fn without_query(word: &str) -> String {
    match (word.find("://"), word.split_once('?')) {
        (Some(scheme), Some((url, _))) if scheme < url.len() => url.to_string(),
        _ => word.to_string(),
    }
}

#[cfg(test)]
mod tests;
