//! `include/terrace.h` is what cbindgen makes of this crate. `TERRACE_WRITE_HEADER=1 cargo test -p terrace-sql --test
//! header` writes it.

use std::path::PathBuf;

const OPAQUE: &[&str] =
    &["engine", "table", "txn", "ticket", "savepoint", "cancel", "scope", "cursor", "alter", "load", "copy"];
const OPEN: &[(&str, &str)] = &[
    ("TerraceBytes", "bytes"),
    ("TerraceOpenOptions", "open_options"),
    ("TerraceStatusFn", "status_fn"),
    ("TerraceNoteFn", "note_fn"),
    ("TerraceTroubleFn", "trouble_fn"),
    ("TerraceWaitFn", "wait_fn"),
    ("TerraceSpace", "space"),
    ("TerraceSpaceFn", "space_fn"),
    ("TerraceRequests", "requests"),
    ("TerraceRequestsFn", "requests_fn"),
    ("TerraceIndexDefinition", "index_definition"),
    ("TerraceTableDefinition", "table_definition"),
    ("TerraceEstimate", "estimate"),
    ("TerraceTableFn", "table_fn"),
    ("TerraceRedefined", "redefined"),
    ("TerraceKeyFn", "key_fn"),
    ("TerraceEntry", "entry"),
    ("TerraceXidFn", "xid_fn"),
    ("TerraceCursorOptions", "cursor_options"),
    ("TerraceFilterFn", "filter_fn"),
    ("TerracePartFn", "part_fn"),
    ("TerraceFetch", "fetch"),
    ("TerraceBatch", "batch"),
    ("TerraceRowHead", "row_head"),
    ("TerraceChangeHead", "change_head"),
    ("TerraceRows", "rows"),
    ("TerraceRow", "row"),
    ("TerraceHole", "hole"),
    ("TerraceSpan", "span"),
    ("TerraceNewIndex", "new_index"),
    ("TerraceProgressFn", "progress_fn"),
    ("TerraceStopFn", "stop_fn"),
    ("TerraceRules", "rules"),
    ("TerraceRowCounts", "row_counts"),
    ("TerraceDeadlockFn", "deadlock_fn"),
    ("TerraceTableOptions", "table_options"),
    ("TerracePlacement", "placement"),
    ("TerraceRuleLine", "rule_line"),
    ("TerraceRuleFn", "rule_fn"),
    ("TerraceValue", "value"),
    ("TerraceRowFn", "row_fn"),
    ("TerraceStatementFn", "statement_fn"),
    ("TerraceReads", "reads"),
    ("TerraceObserver", "observer"),
    ("TerraceThreadBeginsFn", "thread_begins_fn"),
    ("TerraceThreadEndsFn", "thread_ends_fn"),
    ("TerraceTransferBeginsFn", "transfer_begins_fn"),
    ("TerraceTransferEndsFn", "transfer_ends_fn"),
    ("TerraceWaitBeginsFn", "wait_begins_fn"),
    ("TerraceWaitEndsFn", "wait_ends_fn"),
    ("TerraceLockBeginsFn", "lock_begins_fn"),
    ("TerraceLockEndsFn", "lock_ends_fn"),
    ("TerraceMemoryFn", "memory_fn"),
];

fn generate() -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        include_guard: Some("TERRACE_H".into()),
        documentation_style: cbindgen::DocumentationStyle::C99,
        style: cbindgen::Style::Type,
        usize_is_size_t: true,
        autogen_warning: Some("/* Generated from crates/sql by its test `header`. Don't edit. */".into()),
        ..Default::default()
    };
    config.enumeration.rename_variants = cbindgen::RenameRule::ScreamingSnakeCase;
    config.enumeration.prefix_with_name = true;
    let names = &mut config.export.rename;
    for name in OPAQUE {
        let mut camel = name.to_string();
        camel[..1].make_ascii_uppercase();
        names.insert(format!("Terrace{camel}"), format!("terrace_{name}"));
    }
    for (rust, c) in OPEN {
        names.insert(rust.to_string(), format!("terrace_{c}"));
    }
    for (rust, c) in [
        ("TerraceCode", "TERRACE"),
        ("TerraceIsolation", "TERRACE_ISOLATION"),
        ("TerraceLock", "TERRACE_LOCK"),
        ("TerraceSeek", "TERRACE_SEEK"),
        ("TerraceWant", "TERRACE_WANT"),
        ("TerraceVerdict", "TERRACE_VERDICT"),
    ] {
        config.export.include.push(rust.to_string());
        names.insert(rust.to_string(), c.to_string());
    }
    config.export.include.push("TerraceRowHead".into());
    config.export.include.push("TerraceChangeHead".into());
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in [
        "error",
        "bytes",
        "engine",
        "copy",
        "catalog",
        "row",
        "transaction",
        "cancel",
        "cursor",
        "alter",
        "load",
        "seen",
        "observe",
        "engine/rules",
    ] {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("cbindgen understands the crate").write(&mut text);
    // The Safety sections are for Rust callers; in C they hold for everything.
    let text = String::from_utf8(text).expect("a header is text");
    let mut out = String::new();
    let mut skipping = false;
    for line in text.lines() {
        if line == "// # Safety" {
            skipping = true;
            while out.ends_with("//\n") {
                out.truncate(out.len() - 3);
            }
        } else if !line.starts_with("//") {
            skipping = false;
        }
        if !skipping {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[test]
fn the_committed_header_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("include/terrace.h");
    let header = generate();
    if std::env::var_os("TERRACE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).expect("the header can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "include/terrace.h is old: run this test with TERRACE_WRITE_HEADER=1");
}
