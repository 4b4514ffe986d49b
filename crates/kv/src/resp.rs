//! The protocol: requests in, replies out. Nothing here knows a command.
//!
//! | file | holds |
//! | --- | --- |
//! | `parse` | requests, multi-bulk and inline, from a buffer that fills as bytes arrive |
//! | `reply` | replies of RESP2 and RESP3 |

pub mod parse;
pub mod reply;

pub use parse::{ProtocolError, Requests};
pub use reply::Reply;
