use super::*;

#[test]
fn a_goal_reads_back_and_a_part_of_one_does_not() {
    let goal = Goal { backup: "monday".into(), lineage: 1 << 99, base: 4096, upto: 1 << 40 };
    let mut bytes = goal.encode();
    let length = bytes.len();
    bytes.resize(4096, 0);
    assert_eq!(Goal::decode(&bytes), Ok(goal));
    for at in 0..length {
        assert!(Goal::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
}
