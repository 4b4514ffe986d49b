use super::*;

#[test]
fn a_mark_is_true_whatever_is_merged_into_it() {
    let mut hold = Hold::new(vec![0]);
    let mut appended = Vec::new();
    let mut ms = 1000;
    for n in 0..3 * MARKS_MAX as u64 {
        // The clock stands still, goes on, or is put back.
        ms = if n % 7 == 3 { ms - 5 } else { ms + n % 3 };
        hold.note(ms, 100 + n);
        appended.push((ms, 100 + n));
    }
    assert!(hold.marks.len() <= MARKS_MAX);
    let ascends = |a: &Mark, b: &Mark| a.ms < b.ms && a.end < b.end;
    assert!(hold.marks.iter().zip(hold.marks.iter().skip(1)).all(|(a, b)| ascends(a, b)));
    for mark in &hold.marks {
        let later = appended.iter().find(|(ms, end)| *end <= mark.end && *ms > mark.ms);
        assert_eq!(later, None, "{mark:?}");
    }
    assert_eq!(hold.marks.back().map(|mark| mark.end), Some(99 + 3 * MARKS_MAX as u64));
}
