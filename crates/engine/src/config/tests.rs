use super::*;

#[test]
fn every_fault_is_named_at_once() {
    let text = "memory = \"1M\"\nlog = \"2M\"\nlog_partitions = 8\nlocks_max = -1\nfrobnicate = true\nflash = \"ten\"";
    let Err(Error::Invalid(message)) = Config::from_toml(text) else { panic!("accepted") };
    for part in ["memory = 1M", "log_partitions = 8", "locks_max = -1", "frobnicate", "flash = \"ten\""] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn the_documented_file_is_the_default() {
    assert_eq!(Config::from_toml(&Config::document()).unwrap(), Config::default());
    assert_eq!(Config::from_toml("").unwrap(), Config::default());
}

#[test]
fn sizes_have_units() {
    let config = Config::from_toml("memory = \"64 MiB\"\nlog = 4194304\nflash = \"2g\"").unwrap();
    assert_eq!((config.memory.0, config.log.0, config.flash.0), (64 << 20, 4 << 20, 2 << 30));
    assert_eq!(Bytes::parse("3X"), None);
    assert_eq!(Bytes::parse("99999999999999999999"), None);
    assert_eq!(Bytes::parse("99999999999T"), None);
}

#[test]
fn settings_of_others_are_left_alone() {
    let mut table: Table = "volume = \"/data\"\nmemory = \"32M\"".parse().unwrap();
    let mut config = Config::default();
    assert!(config.take_from(&mut table).is_empty());
    assert_eq!(config.memory, Bytes(32 << 20));
    assert_eq!(table.keys().collect::<Vec<_>>(), ["volume"]);
}
