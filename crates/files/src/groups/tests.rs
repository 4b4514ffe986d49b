use super::*;

fn kept(text: &str) -> Kept {
    Kept::Whole(Bytes::copy_from_slice(text.as_bytes()))
}

fn content(groups: &Groups, name: Name, member: &Member) -> String {
    match groups.content(name, member).unwrap() {
        Kept::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Kept::Upload(upload, parts) => format!("{} {}", upload.id, parts.len()),
    }
}

#[test]
fn a_group_is_found_again_with_the_last_content_of_each_file_and_belongs_to_one_client() {
    let dir = tempfile::tempdir().unwrap();
    let open = |now| Groups::open(dir.path(), 1 << 20, 100, now);
    let groups = open(0);
    groups.begin(7, 1).unwrap();
    let part = |number, bytes| UploadPart { number, offset: number as u64 * 8, bytes, tag: "t".into() };
    let upload = Kept::Upload(Upload { key: "c".into(), id: "u1".into() }, vec![part(0, 8), part(1, 3)]);
    for (path, kept) in [("a", kept("one")), ("b", kept("")), ("a", kept("two")), ("c", upload)] {
        groups.keep(7, &path.into(), path == "b", kept).unwrap();
    }
    drop(groups);
    let groups = open(1000);
    assert!(groups.overdue(1099).is_empty());
    assert_eq!(groups.overdue(1100), [7]);
    assert_eq!(groups.resume(7, 2), Ok(3));
    assert!(groups.overdue(9999).is_empty());
    assert!(matches!(groups.resume(7, 3), Err(Fault::Busy(_))));
    assert!(groups.check(7, 3).is_err() && groups.check(7, 2).is_ok());
    groups.keep(7, &"d".into(), false, kept("four")).unwrap();
    assert!(groups.end(7, Some(3)).is_err());
    let (members, record) = groups.end(7, Some(2)).unwrap();
    let mut found: Vec<(String, String, bool)> = members
        .iter()
        .map(|member| (member.path.to_string(), content(&groups, 7, member), member.creates))
        .collect();
    found.sort();
    let expected = [("a", "two", false), ("b", "", true), ("c", "u1 2", false), ("d", "four", false)];
    assert_eq!(found, expected.map(|(path, content, creates)| (path.into(), content.into(), creates)));
    assert!(record.is_none() && groups.end(7, Some(2)).is_err());
    assert!(groups.keep(7, &"e".into(), false, kept("late")).is_err());
    groups.ended(7);
    assert_eq!(groups.sizes(), (0, 0));
    assert!(open(0).resume(7, 1).is_err());
}

#[test]
fn what_a_commit_replaces_is_found_again_until_the_group_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Groups::open(dir.path(), 1 << 20, 100, 5);
    let groups = open();
    groups.begin(1, 1).unwrap();
    groups.keep(1, &"a".into(), false, kept("new")).unwrap();
    let (members, _) = groups.end(1, Some(1)).unwrap();
    groups.keep_old(1, &members[0], Bytes::from_static(b"old")).unwrap();
    groups.record(1, [(members[0].number, Before::There)].into_iter().collect()).unwrap();
    drop(groups);
    let groups = open();
    let (members, record) = groups.end(1, None).unwrap();
    assert_eq!(record.unwrap()[&members[0].number], Before::There);
    assert_eq!(groups.old(1, &members[0]).unwrap(), Bytes::from_static(b"old"));
    groups.not_ended(1, 50);
    assert_eq!((groups.overdue(149), groups.overdue(150)), (vec![], vec![1]));
    groups.end(1, None).unwrap();
    groups.ended(1);
    assert_eq!(open().sizes(), (0, 0));
}

#[test]
fn a_file_that_is_not_whole_does_not_count_and_flash_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let groups = Groups::open(dir.path(), 20_000, 100, 0);
    groups.begin(1, 1).unwrap();
    groups.keep(1, &"a".into(), false, kept(&"x".repeat(5000))).unwrap();
    groups.keep(1, &"b".into(), false, kept("y")).unwrap();
    let (fault, _) = groups.keep(1, &"c".into(), false, kept(&"x".repeat(9000))).unwrap_err();
    assert!(matches!(fault, Fault::Busy(_)), "{fault}");
    assert!(groups.sizes().1 <= 20_000);
    drop(groups);
    for file in std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        if bytes.len() > 4096 {
            bytes[4500] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let groups = Groups::open(dir.path(), 20_000, 100, 0);
    assert_eq!(groups.resume(1, 1), Ok(1), "the damaged file is gone, the other is there");
}

#[test]
fn without_flash_a_group_is_refused_with_the_reason() {
    let refused = Groups::none().begin(1, 1).unwrap_err();
    assert!(refused.to_string().contains("--flash"), "{refused}");
}
