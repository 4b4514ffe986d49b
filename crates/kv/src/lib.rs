//! `terrace kv`: a Redis-compatible server whose data is larger and cheaper than memory.
