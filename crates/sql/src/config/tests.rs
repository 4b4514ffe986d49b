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
}
