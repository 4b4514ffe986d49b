use super::*;

fn large(serial: u64, len: u32) -> Large {
    Large { page: serial as u32 + 10, len, serial }
}

fn unknown(large: Large) -> Placed {
    Placed { large, pages: Vec::new() }
}

fn span(at: u32, len: u32) -> Span {
    Span { at, len, name: at as u16 }
}

fn chosen(row: &[u8], spans: &[Span], room: usize) -> Option<Vec<u32>> {
    choose(Row { bytes: row, spans }, room).unwrap().map(|chosen| chosen.iter().map(|span| span.at).collect())
}

#[test]
fn the_longest_values_move_off_page_and_no_more_than_necessary() {
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
fn many_short_values_share_overflow_pages_of_the_whole_row() {
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
fn only_valid_encodings_are_decoded() {
    let row: Vec<u8> = (0..9000u32).map(|i| (i / 7) as u8).collect();
    let spans = [span(0, 300), span(500, 4000), span(8999, 1)];
    let larges = [large(1, 300), large(2, 4000), large(3, 1)];
    let bytes = encode(&row, &spans, &larges.map(unknown), usize::MAX);
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
fn a_change_keeps_values_that_both_versions_reference() {
    let row = vec![1; 9000];
    let spans = [span(0, 300), span(500, 300), span(1000, 300)];
    let larges = [large(1, 300), large(2, 300), large(3, 300)];
    let old = encode(&row, &spans, &larges.map(unknown), usize::MAX);
    let new = encode(&row, &spans[..2], &[large(3, 300), large(4, 300)].map(unknown), usize::MAX);
    assert_eq!(kept(&old, &new), 0b100);
    assert_eq!(kept(&new, &old), 0b01);
    assert_eq!(kept(&old, &old), 0b111);
    assert_eq!(kept(&old, b""), 0);
    // The same place with another serial number is another value.
    let again = unknown(Large { serial: 9, ..large(1, 300) });
    let again = encode(&row, &spans[..1], &[again], usize::MAX);
    assert_eq!(kept(&old, &again), 0);
}

#[test]
fn a_row_names_the_pages_of_its_large_values_if_there_is_room() {
    let row: Vec<u8> = (0..9000u32).map(|i| (i / 7) as u8).collect();
    let spans = [span(0, 300), span(500, 4000)];
    let one = |serial: u32, len, pages: &[u32]| Placed {
        large: Large { page: serial + 10, len, serial: serial.into() },
        pages: pages.to_vec(),
    };
    let parts = [one(1, 30_000, &[11, 12]), one(2, 60_000, &[12, 90, 91, 7])];
    let head = |flags| Head { flags, txn: 5, roll: crate::row::RollPtr::NONE };
    let apart = head(crate::row::APART);
    let without = encode(&row, &spans, &parts.clone().map(|part| unknown(part.large)), usize::MAX);
    let whole = encode(&row, &spans, &parts, usize::MAX);
    assert!(whole.len() <= without.len() + 14, "{} {}", whole.len(), without.len());
    let mut seen = [0; 3];
    for room in 0..whole.len() + 2 {
        let bytes = encode(&row, &spans, &parts, room);
        assert!(bytes.len() <= room.max(without.len()), "{room}");
        let placed = placed(apart, &bytes).unwrap();
        let known = placed.iter().filter(|part| !part.pages.is_empty()).count();
        assert!(placed.iter().zip(&parts).all(|(a, b)| a.large == b.large && (a.pages.is_empty() || a == b)));
        assert_eq!(known == 0, bytes == without, "{room}");
        assert_eq!(decode(&bytes).map(|(_, body)| body), decode(&without).map(|(_, body)| body));
        assert_eq!(kept(&bytes, &without), 0b11);
        seen[known] += 1;
    }
    assert!(seen.iter().all(|count| *count > 1), "{seen:?}");
    // Cut off, or with more than the list has, it makes no sense.
    for len in 0..1 + 2 * REFERENCE + whole[1 + 2 * REFERENCE] as usize {
        assert!(super::placed(apart, &whole[..len]).is_none(), "{len}");
    }
    // All of a row.
    let whole = encode_whole(&parts[1]);
    assert_eq!(super::placed(head(crate::row::LARGE), &whole), Some(vec![parts[1].clone()]));
    assert_eq!(
        super::placed(head(crate::row::LARGE), &whole[..Large::ENCODED]),
        Some(vec![unknown(parts[1].large)])
    );
    assert_eq!(super::placed(head(0), &row), Some(vec![]));
    let scattered: Vec<u32> = (0..200).map(|n| 11 + 2 * n).collect();
    assert_eq!(encode_whole(&one(1, 200 * 16_320, &scattered)).len(), Large::ENCODED);
}
