use super::*;

const FILE: &str = "
# a comment
[default]
aws_access_key_id = ONE
aws_secret_access_key=two=2
[other]
aws_access_key_id=THREE
#aws_session_token = no
aws_secret_access_key = four
aws_session_token = five
[half]
aws_access_key_id = SIX
";

#[test]
fn a_profile_is_found_by_its_name() {
    let keys = |profile| parse(FILE, profile).map(|k| (k.id, k.secret, k.token));
    assert_eq!(keys("default"), Some(("ONE".into(), "two=2".into(), None)));
    assert_eq!(keys("other"), Some(("THREE".into(), "four".into(), Some("five".into()))));
    assert_eq!(keys("half"), None);
    assert_eq!(keys("none"), None);
}

#[test]
fn keys_are_not_printed() {
    let keys = parse(FILE, "other").unwrap();
    assert_eq!(format!("{keys:?}"), "Keys(redacted)");
}
