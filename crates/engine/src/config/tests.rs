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
fn a_log_is_not_larger_than_a_superblock_can_record() {
    let faults =
        |log, log_partitions| Config { log: Bytes(log), log_partitions, ..Config::default() }.faults();
    for partitions in [1, 3] {
        let most = (16 << 40) * partitions as u64;
        assert_eq!(faults(most, partitions), Vec::<String>::new());
        let fault = format!("gives each of log_partitions = {partitions} more than 16T");
        assert!(faults(most + 4096 * partitions as u64, partitions).iter().any(|one| one.contains(&fault)));
    }
}

#[test]
fn the_documented_file_is_the_default() {
    let documented = Config::from_toml(&Config::document()).unwrap();
    assert_eq!(documented.named.len(), SETTINGS.len());
    assert_eq!(Config { named: BTreeSet::new(), ..documented }, Config::default());
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
fn settings_of_other_programs_are_ignored() {
    let mut table: Table = "volume = \"/data\"\nmemory = \"32M\"".parse().unwrap();
    let mut config = Config::default();
    assert!(config.take_from(&mut table).is_empty());
    assert_eq!(config.memory, Bytes(32 << 20));
    assert_eq!(table.keys().collect::<Vec<_>>(), ["volume"]);
}

#[test]
fn a_map_larger_than_its_share_of_the_memory_takes_frames() {
    let config = Config { memory: Bytes(128 << 20), ..Config::default() };
    let frames = config.frames(true, 0);
    assert_eq!(config.frames(true, 4 << 20), frames, "as much is counted anyway");
    // 64 GiB of data: a map of 36 MiB.
    let less = frames - config.frames(true, 36 << 20);
    assert!((1950..2050).contains(&less), "{less} frames of {frames}");
    assert_eq!(config.frames(true, 4 << 30), frames / 2, "the least");
}

#[test]
fn flash_whose_index_takes_most_of_the_memory_is_refused() {
    let with =
        |flash: u64| Config { memory: Bytes(128 << 20), flash: Bytes(flash << 30), ..Config::default() };
    assert!(with(64).check().is_ok());
    let Err(Error::Invalid(message)) = with(100).check() else { panic!("accepted") };
    assert!(message.contains("flash = 100G takes 82 MiB of memory"), "{message}");
}

#[test]
fn an_unknown_admission_rule_is_refused() {
    for (name, rule) in Rule::NAMES {
        let config = Config::from_toml(&format!("flash_admission = \"{name}\"")).unwrap();
        assert_eq!(config.flash_admission, rule);
    }
    for wrong in ["flash_admission = \"never\"", "flash_admission = 1"] {
        let Err(Error::Invalid(message)) = Config::from_toml(wrong) else { panic!("accepted: {wrong}") };
        assert!(message.contains("is not among admit-all, one-hit-discard, ghost, tiny-lfu"), "{message}");
    }
}

#[test]
fn prices_are_dollars_and_have_bounds() {
    let config = Config::from_toml("price_memory = 2\nprice_gets = 0.00045\nprice_object = 0").unwrap();
    assert_eq!(
        (config.prices.memory.0, config.prices.gets.0, config.prices.object.0),
        (2_000_000_000, 450_000, 0)
    );
    assert_eq!(config.prices.flash, Prices::default().flash);
    let text = "price_memory = -1\nprice_flash = \"cheap\"\nprice_volume = 1e7\nprice_puts = nan";
    let Err(Error::Invalid(message)) = Config::from_toml(text) else { panic!("accepted") };
    for part in ["price_memory = -1", "price_flash", "price_volume", "price_puts"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}
