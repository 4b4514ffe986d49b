use super::*;

#[test]
fn every_fault_is_named_at_once() {
    let fault =
        read("memory = 1\nnonsense = 2\nobject_endpoint = \"http://x\"", "flash = \"1G\"").unwrap_err();
    for word in ["memory", "nonsense", "object_endpoint", "flash_path", "volume_path"] {
        assert!(fault.message.contains(word), "{word} in {}", fault.message);
    }
}

#[test]
fn a_profile_that_is_unknown_and_memory_too_small_for_a_store_are_named_with_the_rest() {
    let text = "volume_path = \"a\"\nobject = \"ftp://b\"\nmemory = \"6M\"\nemulate = \"moon\"\nlog = \"1M\"";
    let fault = read(text, "").unwrap_err();
    for word in ["memory = 6M", "10M", "ftp", "emulate = \"moon\"", "cloud", "log = 1M"] {
        assert!(fault.message.contains(word), "{word} in {}", fault.message);
    }
    assert!(read("volume_path = \"a\"\nmemory = \"6M\"", "").is_ok(), "without a store it is enough");
}

#[test]
fn variables_go_before_the_file() {
    let (config, places) =
        read("memory = \"16M\"\nvolume_path = \"a\"\nlog_partitions = 2", "memory = \"32M\"").expect("valid");
    assert_eq!(config.memory.0, 32 << 20);
    assert_eq!(config.log_partitions, 2);
    assert_eq!(places.volume_path.as_deref(), Some("a"));
}

#[test]
fn what_is_no_toml_says_which_text() {
    let fault = read("volume_path = \"a\"", "memory =").unwrap_err();
    assert!(fault.message.contains("the variables"), "{}", fault.message);
    let fault = read("memory = 16M", "").unwrap_err();
    assert!(fault.message.contains("the file") && !fault.message.contains("missing"), "{}", fault.message);
}
