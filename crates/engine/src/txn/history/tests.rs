use super::*;

fn at(page: u32, end: usize) -> Mark {
    Mark { page, end }
}

fn past(csn: u64, stream: usize) -> Past {
    Past { csn, stream, begin: at(stream as u32, csn as usize), end: at(stream as u32, csn as usize + 1) }
}

#[test]
fn the_oldest_stream_is_known_and_its_next_record_is_prefetched() {
    let mut history = History::default();
    for (csn, stream) in [(10, 1), (12, 2), (14, 1), (16, 1), (18, 2)] {
        history.push(past(csn, stream), 3);
    }
    assert_eq!((history.len(), history.records, history.first_csn()), (5, 15, Some(10)));
    let first = history.first().unwrap();
    assert_eq!(first, Past { end: at(1, 17), ..past(10, 1) });
    assert!(!history.purged(&first, at(1, 11), None, 3));
    // It is not known whether stream 1 goes on before 12.
    assert_eq!(
        (history.first(), history.first_csn(), history.unread()),
        (None, Some(0), Some((1, at(1, 11))))
    );
    history.read(1, at(1, 14), 14);
    assert_eq!(history.first_csn(), Some(12));
    let mut seen = Vec::new();
    while let Some(first) = history.first() {
        seen.push(first.csn);
        let csn = [(12, 18), (14, 16)].iter().find(|(csn, _)| *csn == first.csn).map(|(_, next)| *next);
        assert_eq!(history.purged(&first, first.end, csn, 3), csn.is_none());
    }
    assert_eq!((seen, history.len(), history.records), (vec![12, 14, 16, 18], 0, 0));
}

#[test]
fn history_held_by_a_reader_is_no_lag() {
    let mut history = History::default();
    assert_eq!(history.lag(100, 100), 0);
    (0..100).for_each(|n| history.push(past(101 + 2 * n, 1), 10));
    let newest = 299;
    assert_eq!(history.lag(100, newest), 0);
    assert_eq!(history.lag(newest, newest), 1000);
    assert!((450..=550).contains(&history.lag(200, newest)));
}
