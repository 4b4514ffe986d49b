use super::Series;

#[test]
fn values_of_a_series_are_those_of_offset_and_increment() {
    let first = |offset, increment, limit, next| Series { offset, increment, limit }.first(next);
    assert_eq!(first(1, 1, 100, 1), 1);
    assert_eq!(first(1, 1, 100, 7), 7);
    assert_eq!(first(5, 10, 100, 1), 5);
    assert_eq!(first(5, 10, 100, 6), 15);
    assert_eq!(first(5, 10, 100, 15), 15);
    assert_eq!(first(9, 10, 99, 90), 90, "the limit itself is left to the server");
    assert_eq!(first(1, 1, 100, 101), 101);
    assert_eq!(first(3, 10, u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(first(1, 10, u64::MAX, u64::MAX - 9), u64::MAX - 9, "no overflow");
    assert_eq!(first(9, 3, 100, 1), 2, "as the server counts with such an offset");
}

#[test]
fn the_counter_goes_to_the_next_value_of_the_series() {
    let after =
        |offset, increment, limit, value, count| Series { offset, increment, limit }.after(value, count);
    assert_eq!(after(0, 1, 100, 12, 1), 13);
    assert_eq!(after(1, 5, 100, 12, 1), 16);
    assert_eq!(after(3, 5, 100, 12, 1), 13);
    assert_eq!(after(3, 5, 100, 13, 2), 23);
    assert_eq!(after(9, 5, 100, 12, 1), 15, "an offset larger than the increment is ignored");
    assert_eq!(after(0, 1, 100, 100, 1), 101);
    assert_eq!(after(0, 1, 100, 101, 1), u64::MAX);
    assert_eq!(after(0, 1, u64::MAX, u64::MAX, 1), u64::MAX);
    assert_eq!(after(1, 10, u64::MAX, u64::MAX - 4, 1), u64::MAX, "no overflow");
    assert_eq!(after(1, 10, u64::MAX, 1, u64::MAX), u64::MAX, "no overflow");
}
