use super::Series;

#[test]
fn values_of_a_series_are_those_of_offset_and_increment() {
    let take =
        |offset, increment, limit, next, wanted| Series { offset, increment, limit }.take(next, wanted);
    assert_eq!(take(1, 1, 100, 1, 3), Some((1, 3)));
    assert_eq!(take(1, 1, 100, 7, 1), Some((7, 1)));
    assert_eq!(take(5, 10, 100, 1, 2), Some((5, 2)));
    assert_eq!(take(5, 10, 100, 6, 2), Some((15, 2)));
    assert_eq!(take(5, 10, 100, 15, 1), Some((15, 1)));
    assert_eq!(take(5, 10, 100, 90, 5), Some((95, 1)), "only what the limit leaves");
    assert_eq!(take(7, 3, 100, 1, 1), Some((3, 1)), "an offset larger than the increment is ignored");
    assert_eq!(take(1, 1, 100, 101, 1), None);
    assert_eq!(take(1, 1, u64::MAX, u64::MAX, 4), Some((u64::MAX, 1)));
    assert_eq!(take(3, 10, u64::MAX, u64::MAX, 1), None, "no overflow");
}
