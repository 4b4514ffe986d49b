use super::*;

fn run(name: &str) {
    soak(TARGETS.iter().find(|t| t.name == name).unwrap());
}

#[test]
fn page_images() {
    run("page");
}
#[test]
fn redo_operations() {
    run("redo");
}
#[test]
fn objects() {
    run("object");
}
#[test]
fn object_keys() {
    run("key");
}
#[test]
fn epoch_objects() {
    run("epoch");
}
#[test]
fn map_pages() {
    run("map");
}

/// The control: a target that trusts one field must be found out.
#[test]
fn a_parser_that_trusts_a_length_is_found_out() {
    let trusting = Target {
        name: "control",
        run: |bytes| {
            let len = bytes.get(2..4).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
            assert!(len <= bytes.len());
        },
        samples: || vec![Sample { bytes: vec![0; 64], headers: (64, 8) }],
        rounds: 200,
    };
    assert!(catch_unwind(|| soak(&trusting)).is_err());
}
