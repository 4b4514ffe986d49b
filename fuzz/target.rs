//! One fuzz target for each binary of this package: the binary's name is the target's.
#![no_main]

mod kv;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_tier::fuzz::Target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let all = terrace_tier::fuzz::TARGETS.iter().chain(terrace_engine::fuzz::TARGETS).chain(&kv::TARGETS);
    let name = env!("CARGO_BIN_NAME");
    all.into_iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
