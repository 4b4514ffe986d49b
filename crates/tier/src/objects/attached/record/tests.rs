use super::*;

fn record() -> Record {
    let source = |kind, url: &str, endpoint: Option<&str>, lineages: &[u128]| Source {
        kind,
        url: url.into(),
        endpoint: endpoint.map(str::to_string),
        lineages: lineages.to_vec(),
    };
    Record {
        id: 0xABC,
        fill: Some(1 << 20),
        releasing: false,
        sources: vec![
            source(Kind::Repository { backup: "monday".into() }, "file:///srv/the backups", None, &[1, 2]),
            source(Kind::Instance, "s3://bucket/live", Some("http://127.0.0.1:9000"), &[3]),
        ],
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    for releasing in [false, true] {
        for fill in [None, Some(0), Some(u64::MAX)] {
            let one = Record { releasing, fill, ..record() };
            assert_eq!(Record::decode(&one.encode()), Ok(one));
        }
    }
}

#[test]
fn a_record_that_is_cut_off_or_changed_is_refused() {
    let bytes = record().encode();
    for cut in 0..bytes.len() {
        assert!(Record::decode(&bytes[..cut]).is_err(), "{cut} bytes are taken for whole");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        assert!(Record::decode(&changed).is_err(), "byte {at} may change");
    }
}

#[test]
fn a_place_that_would_be_two_lines_is_refused() {
    let mut one = record();
    one.sources[0].url = "file:///a\nlineage 7".into();
    assert!(one.check().is_err());
    one = record();
    one.sources.clear();
    assert!(one.check().is_err());
    one = record();
    one.sources[1].lineages.clear();
    assert!(one.check().is_err());
}
