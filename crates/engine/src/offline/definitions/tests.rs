use super::*;

fn part(path: &str, number: u32, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    ([path.as_bytes(), &[0], &number.to_be_bytes()].concat(), bytes.to_vec())
}

fn first(of: &[u8], bytes: &[u8]) -> Vec<u8> {
    [&[VERSION][..], &(of.len() as u32).to_le_bytes(), &crc32c::crc32c(of).to_le_bytes(), bytes].concat()
}

#[test]
fn a_file_is_put_together_of_its_parts_and_a_damaged_one_is_refused() {
    let (whole, short) = (b"0123456789".to_vec(), b"x".to_vec());
    let parts = BTreeMap::from([
        part("d/t.frm", 0, &first(&whole, b"01234")),
        part("d/t.frm", 1, b"567"),
        part("d/t.frm", 2, b"89"),
        part("d/db.opt", 0, &first(&short, &short)),
    ]);
    let found = join(parts.clone()).unwrap();
    assert_eq!(found, BTreeMap::from([("d/t.frm".into(), whole), ("d/db.opt".into(), short)]));
    for key in parts.keys().take(4) {
        let mut less = parts.clone();
        less.remove(key);
        let is_small = key.starts_with(b"d/db.opt");
        assert_eq!(join(less).is_ok(), is_small, "{}", String::from_utf8_lossy(key));
    }
    let mut other = parts;
    other.insert(part("d/t.frm", 1, b"").0, b"5x7".to_vec());
    assert!(matches!(join(other), Err(Error::Corrupt(_))));
}

#[test]
fn a_path_that_leads_out_of_the_data_directory_is_refused() {
    for path in [
        "../t.frm",
        "d/../t.frm",
        "/etc/t.frm",
        "d/t",
        "d/t.so",
        "t.frm",
        "d/.frm",
        "d/e/t.frm",
        "./t.frm",
        "",
    ] {
        assert_eq!(split_key(&part(path, 0, b"").0), None, "{path}");
    }
    assert_eq!(split_key(&part("d/t@0023.frm", 7, b"").0), Some(("d/t@0023.frm".into(), 7)));
    assert_eq!(split_key(b"d/t.frm"), None);
}

#[test]
fn a_table_without_its_definition_is_named() {
    let properties = |version: &[u8]| [&[2, 0, version.len() as u8, 0][..], version, b"layouts"].concat();
    let frm = |version: &[u8]| {
        [&[0xfe, 1][..], &[0; 62], &[0, version.len() as u8], version, b"and so on"].concat()
    };
    let mut kept = Definitions::default();
    kept.files.insert("d/t.frm".into(), frm(b"one"));
    kept.files.insert("d/p.frm".into(), frm(b"three"));
    kept.files.insert("d/p.par".into(), vec![]);
    kept.files.insert("d/q.frm".into(), frm(b"four"));
    kept.compare("d/t", &properties(b"one"));
    kept.compare("d/p#P#p0", &properties(b"two"));
    kept.compare("#statistics", &properties(b""));
    kept.compare("d/#sql-1", &properties(b"one"));
    kept.compare("#dropped/7/d/t", &properties(b"one"));
    kept.compare("d/gone", &[2, 1, 0, 0]); // a temporary table
    assert_eq!(kept.troubles, Vec::<String>::new());
    kept.compare("d/t", &properties(b"two"));
    kept.compare("d/u", &properties(b"one"));
    kept.compare("d/q#P#p0", &properties(b"four"));
    assert_eq!(kept.troubles.len(), 3, "{:?}", kept.troubles);
    for (trouble, said) in
        kept.troubles.iter().zip(["changed at about", "d/u has rows", "list of its partitions"])
    {
        assert!(trouble.contains(said), "{trouble}");
    }
}
