use super::*;

fn read(text: &str, overrides: &str) -> Result<(Config, Places)> {
    super::read(text, overrides, Purpose::Run)
}

#[test]
fn every_fault_is_named_at_once() {
    let fault =
        read("memory = 1\nnonsense = 2\nobject_endpoint = \"http://x\"", "flash = \"1G\"").unwrap_err();
    for word in ["memory", "nonsense", "object_endpoint", "flash_path", "volume_path"] {
        assert!(fault.to_string().contains(word), "{word} in {fault}");
    }
}

/// What `terrace config` prints is a file that `terrace config --check` finds well-formed.
#[test]
fn a_file_may_leave_its_volume_to_the_server() {
    assert!(!read_only(&document()).unwrap(), "no volume is named");
    assert!(read_only("volume_path = \"a\"").unwrap());
    let fault = read_only("object_endpoint = \"http://x\"\nflash_path = \"f\"").unwrap_err();
    for word in ["object_endpoint", "flash_path"] {
        assert!(fault.to_string().contains(word), "{word} in {fault}");
    }
}

#[test]
fn a_profile_that_is_unknown_and_memory_too_small_for_a_store_are_named_with_the_rest() {
    let text = "volume_path = \"a\"\nobject = \"ftp://b\"\nmemory = \"6M\"\nemulate = \"moon\"\nlog = \"1M\"";
    let fault = read(text, "").unwrap_err();
    for word in ["memory = 6M", "10M", "ftp", "emulate = \"moon\"", "cloud", "log = 1M"] {
        assert!(fault.to_string().contains(word), "{word} in {fault}");
    }
    assert!(read("volume_path = \"a\"\nmemory = \"6M\"", "").is_ok(), "without a store it is enough");
}

#[test]
fn variables_override_the_file() {
    let (config, places) =
        read("memory = \"16M\"\nvolume_path = \"a\"\nlog_partitions = 2", "memory = \"32M\"").expect("valid");
    assert_eq!(config.memory.0, 32 << 20);
    assert_eq!(config.log_partitions, 2);
    assert_eq!(places.volume_path.as_deref(), Some("a"));
}

#[test]
fn invalid_toml_names_the_text_it_came_from() {
    let fault = read("volume_path = \"a\"", "memory =").unwrap_err();
    assert!(fault.to_string().contains("the variables"), "{}", fault.to_string());
    let fault = read("memory = 16M", "").unwrap_err();
    assert!(
        fault.to_string().contains("the file") && !fault.to_string().contains("missing"),
        "{}",
        fault.to_string()
    );
}

#[test]
fn a_flash_path_without_a_size_is_a_fault_except_to_look() {
    let text = "volume_path = \"a\"\nflash_path = \"b\"";
    let fault = read(text, "").unwrap_err();
    assert!(fault.to_string().contains("flash_path = b is set, flash"), "{}", fault.to_string());
    assert!(super::read(text, "", Purpose::Look).is_ok());
    assert!(read(text, "flash = \"1G\"").is_ok());
}

#[test]
fn one_directory_for_two_tiers_is_a_fault_whatever_it_is_called() {
    let here = std::env::current_dir().unwrap();
    let (a, b) = (here.join("a"), here.join("b"));
    let flash = format!("volume_path = \"a\"\nflash = \"1G\"\nflash_path = {a:?}");
    let store = format!("volume_path = \"a\"\nobject = \"file://{}\"", a.display());
    for (text, what) in [(&flash, "flash_path and volume_path"), (&store, "object and volume_path")] {
        let fault = read(text, "").unwrap_err();
        assert!(fault.to_string().contains(what), "{}", fault.to_string());
    }
    let apart = format!("volume_path = \"a\"\nflash = \"1G\"\nflash_path = {b:?}");
    assert!(read(&apart, "").is_ok());
}

#[test]
fn keys_in_a_url_are_refused_and_not_shown() {
    for object in ["s3://key:hush@bucket/p", "s3://bucket/p?sig=hush", "s3://key:hu/hush@bucket"] {
        let fault = read(&format!("volume_path = \"a\"\nobject = \"{object}\""), "").unwrap_err();
        assert!(
            fault.to_string().contains("object store") && !fault.to_string().contains("hush"),
            "{}",
            fault.to_string()
        );
    }
    let text = "volume_path = \"a\"\nobject = \"s3://bucket\"\nobject_endpoint = \"https://key:hush@host:9\"";
    let fault = read(text, "").unwrap_err();
    assert!(
        fault.to_string().contains("keys") && !fault.to_string().contains("hush"),
        "{}",
        fault.to_string()
    );
}

#[test]
fn only_loopback_is_listened_on() {
    for wrong in ["0.0.0.0:9185", "192.168.1.1:80", "[::]:9185", "localhost:9185", "9185", ""] {
        assert!(metrics_address(wrong).is_err(), "{wrong}");
    }
    for right in ["127.0.0.1:9185", "[::1]:9185", "127.1.2.3:0"] {
        assert!(metrics_address(right).is_ok(), "{right}");
    }
}
