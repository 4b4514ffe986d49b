//! The fuzz targets of the server, on samples that are changed by seed. See `fuzz/kv.rs`.

#[path = "../../../fuzz/kv.rs"]
mod targets;

use terrace_tier::fuzz::soak_alone;

fn run(name: &str) {
    let target = targets::TARGETS.iter().find(|target| target.name == name);
    soak_alone(target.expect("a target"));
}

#[test]
fn bytes_of_a_connection_are_the_same_commands_however_they_arrive() {
    run("resp");
}

#[test]
fn a_payload_is_refused_or_restored_to_a_value_that_keeps() {
    run("restore");
}

#[test]
fn any_commands_leave_values_that_keep() {
    run("commands");
}
