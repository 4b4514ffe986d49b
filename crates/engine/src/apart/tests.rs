use super::*;

fn large(serial: u64, len: u32) -> Large {
    Large { page: serial as u32 + 10, len, serial }
}

fn span(at: u32, len: u32) -> Span {
    Span { at, len, name: at as u16 }
}

fn chosen(row: &[u8], spans: &[Span], room: usize) -> Option<Vec<u32>> {
    choose(Row { bytes: row, spans }, room).unwrap().map(|chosen| chosen.iter().map(|span| span.at).collect())
}

#[test]
fn the_longest_go_and_no_more_than_have_to() {
    let row = vec![0; 30_000];
    let spans = [span(10, 2000), span(3000, 20_000), span(25_000, 3000), span(29_000, 900)];
    assert_eq!(chosen(&row, &spans, 29_000), Some(vec![3000]));
    // In the order of the row, not of their lengths.
    assert_eq!(chosen(&row, &spans, 7100), Some(vec![3000, 25_000]));
    // Three pages for a row that takes two.
    assert_eq!(chosen(&row, &spans, 10_500), Some(vec![3000]));
    // All of them are not enough.
    assert_eq!(chosen(&row, &spans, 4000), None);
    assert_eq!(chosen(&row, &[], 4000), None);
}

#[test]
fn many_short_ones_stay_together_in_pages_of_the_whole_row() {
    let row = vec![0; 9000];
    let spans: Vec<Span> = (0..30).map(|n| span(n * 300, 290)).collect();
    assert_eq!(chosen(&row, &spans, 3900), None);
    assert_eq!(chosen(&row, &spans, 8500), Some(vec![0, 300]));
    let tiny: Vec<Span> = (0..80).map(|n| span(n * 100, SPAN_MIN - 200)).collect();
    assert_eq!(chosen(&row, &tiny, 8990), None);
}

#[test]
fn spans_that_are_not_in_the_row_are_refused() {
    let row = vec![0; 9000];
    for spans in [&[span(8000, 1001)][..], &[span(10, 500), span(510, 500)], &[span(700, 500), span(10, 300)]]
    {
        assert!(choose(Row { bytes: &row, spans }, 4000).is_err(), "{spans:?}");
    }
}

#[test]
fn what_is_encoded_is_read_again_and_nothing_else_is() {
    let row: Vec<u8> = (0..9000u32).map(|i| (i / 7) as u8).collect();
    let spans = [span(0, 300), span(500, 4000), span(8999, 1)];
    let larges = [large(1, 300), large(2, 4000), large(3, 1)];
    let bytes = encode(&row, &spans, &larges);
    let (parts, body) = decode(&bytes).unwrap();
    assert_eq!(parts.iter().map(|part| part.at).collect::<Vec<_>>(), [0, 200, 4699]);
    assert_eq!(parts.iter().map(|part| part.name).collect::<Vec<_>>(), [0, 500, 8999]);
    assert_eq!(body, [&row[300..500], &row[4500..8999]].concat());
    for len in 0..67 {
        assert!(decode(&bytes[..len]).is_none(), "{len}");
    }
    for (at, byte) in [(0, 0), (0, 65), (0, 255), (1, 201), (4, 1)] {
        let mut wrong = bytes.clone();
        wrong[at] = byte;
        assert!(decode(&wrong).is_none_or(|(parts, _)| parts.len() != 3 || at > 1), "{at} {byte}");
    }
}

#[test]
fn a_change_keeps_what_both_versions_name() {
    let row = vec![1; 9000];
    let spans = [span(0, 300), span(500, 300), span(1000, 300)];
    let old = encode(&row, &spans, &[large(1, 300), large(2, 300), large(3, 300)]);
    let new = encode(&row, &spans[..2], &[large(3, 300), large(4, 300)]);
    assert_eq!(kept(&old, &new), 0b100);
    assert_eq!(kept(&new, &old), 0b01);
    assert_eq!(kept(&old, &old), 0b111);
    assert_eq!(kept(&old, b""), 0);
    // The same place with another serial number is another value.
    let again = encode(&row, &spans[..1], &[Large { serial: 9, ..large(1, 300) }]);
    assert_eq!(kept(&old, &again), 0);
}
