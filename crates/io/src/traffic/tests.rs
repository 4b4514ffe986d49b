use super::*;

#[test]
fn the_engines_own_keep_their_names_and_their_order() {
    let classes = Class::ALL.map(Class::name);
    assert_eq!(
        classes,
        [
            "log_write",
            "log_read",
            "page_read",
            "page_flush",
            "map_write",
            "map_read",
            "flash_fill",
            "flash_read",
            "superblock",
            "spill",
            "copy_read"
        ]
    );
    let purposes = Purpose::ALL.map(Purpose::name);
    let expected = ["page_miss", "block_read", "merge", "sink", "resolve", "collect", "epoch", "scrub"];
    assert_eq!(purposes, expected);
    assert!(Class::ALL.iter().enumerate().all(|(i, class)| class.index() == i));
    assert!(Purpose::ALL.iter().enumerate().all(|(i, purpose)| purpose.index() == i));
    assert_eq!((Class::BpeRead.target(), Class::CopyRead.target()), (IoTarget::Flash, IoTarget::Pages));
}

#[test]
fn a_front_adds_classes_and_purposes_until_the_table_is_full() {
    let journal = Class::register("journal", Urgency::Urgent, IoTarget::Log).unwrap();
    assert_eq!(
        (journal.name(), journal.urgency(), journal.target()),
        ("journal", Urgency::Urgent, IoTarget::Log)
    );
    assert_eq!(
        Class::register("journal", Urgency::Urgent, IoTarget::Log),
        Ok(journal),
        "registering is idempotent"
    );
    let differs = Err(RegisterError::Differs { name: "journal" });
    assert_eq!(Class::register("journal", Urgency::Background, IoTarget::Log), differs);
    let own = Err(RegisterError::Differs { name: "log_write" });
    assert_eq!(Class::register("log_write", Urgency::Background, IoTarget::Log), own);
    assert!(Class::registered().any(|class| class == journal) && !Class::ALL.contains(&journal));

    const NAMES: [&str; ADDED_MAX + 1] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let added: Vec<_> = NAMES.iter().map(|name| Purpose::register(name, Urgency::Background)).collect();
    let (last, fit) = added.split_last().unwrap();
    assert!(fit.iter().all(|one| one.as_ref().is_ok_and(|one| one.index() < Purpose::MAX)));
    assert_eq!(*last, Err(RegisterError::Full { name: "i", max: Purpose::MAX }));
    assert_eq!(Purpose::registered().map(Purpose::name).collect::<Vec<_>>(), NAMES[..ADDED_MAX]);
}
