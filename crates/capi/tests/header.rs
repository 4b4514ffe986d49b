//! The hand-written header declares what the library exports: the same functions, types, fields and numbers.

use std::collections::BTreeSet;
use std::path::PathBuf;

const TYPES: &[&str] = &["bytes", "buffer", "setting", "bounds", "tree", "txn", "snapshot", "batch", "range"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What cbindgen says of the sources.
fn generated() -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Both,
        usize_is_size_t: true,
        documentation: false,
        ..Default::default()
    };
    let names = &mut config.export.rename;
    names.insert("TerraceDb".into(), "terrace_db".into());
    names.insert("TerraceDbNameFn".into(), "terrace_db_name_fn".into());
    for name in TYPES {
        let mut camel = name.to_string();
        camel[..1].make_ascii_uppercase();
        names.insert(format!("TerraceDb{camel}"), format!("terrace_db_{name}"));
    }
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["error", "handle", "db", "tree", "txn", "snapshot", "batch", "range"] {
        builder = builder.with_src(root().join(format!("src/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("cbindgen understands the crate").write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

/// Text between two marks is replaced by a space.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begin) {
        out += before;
        out.push(' ');
        rest = after.split_once(end).map_or("", |(_, after)| after);
    }
    out + rest
}

/// Every definition of a number and every declaration, each in one line with single spaces.
fn declarations(header: &str) -> BTreeSet<String> {
    let text = without(&without(header, "/*", "*/"), "//", "\n");
    let (directives, code): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.trim_start().starts_with('#'));
    let numbers = directives.iter().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], ["#define", name, value] if name.starts_with("TERRACE_DB_") && value.parse::<u32>().is_ok())
            .then(|| words.join(" "))
    });
    // The one function with a body is C's own.
    let code = without(&code.join("\n"), "static inline", "}").replace("extern \"C\" {", "");
    let mut declared = Vec::new();
    let (mut depth, mut one) = (0, String::new());
    for c in code.chars() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        match c {
            ';' if depth <= 0 => declared.push(std::mem::take(&mut one)),
            '*' | '(' | ')' | ',' | ';' | '{' | '}' => one += &format!(" {c} "),
            c => one.push(c),
        }
    }
    let tidy = |one: String| {
        one.split_whitespace().collect::<Vec<_>>().join(" ").replace("( void )", "( )").replace("struct ", "")
    };
    declared.into_iter().map(tidy).filter(|one| one.contains("terrace_db")).chain(numbers).collect()
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(root().join("include/terrace.h")).expect("there is a header");
    let (written, made) = (declarations(&header), declarations(&generated()));
    let only_written: Vec<&String> = written.difference(&made).collect();
    let only_made: Vec<&String> = made.difference(&written).collect();
    assert!(
        only_written.is_empty() && only_made.is_empty(),
        "only in the header: {only_written:#?}\nonly in the library: {only_made:#?}"
    );
    assert!(written.len() > 70, "{} declarations were compared", written.len());
}

#[test]
fn a_header_that_differs_in_a_type_a_field_a_number_or_a_function_is_found() {
    let header = std::fs::read_to_string(root().join("include/terrace.h")).expect("there is a header");
    let made = declarations(&generated());
    for (from, to) in [
        ("int terrace_db_open(const char *path,", "int terrace_db_open(char *path,"),
        ("  size_t capacity;\n", ""),
        ("#define TERRACE_DB_PANIC 10", "#define TERRACE_DB_PANIC 11"),
        ("int terrace_db_sync(const terrace_db *db);", ""),
    ] {
        assert_eq!(header.matches(from).count(), 1, "{from}");
        assert_ne!(declarations(&header.replace(from, to)), made, "{from} became {to}");
    }
}

#[test]
fn every_function_of_the_header_is_used_by_the_contract_or_the_example() {
    let header = std::fs::read_to_string(root().join("include/terrace.h")).expect("there is a header");
    let read = |file| std::fs::read_to_string(root().join(file)).expect("the program is there");
    let used = read("tests/contract.c") + &read("examples/ordered_map.c");
    for one in declarations(&header).iter().filter(|one| one.contains('(') && !one.starts_with("typedef")) {
        let name = one.split(" (").next().and_then(|before| before.split(' ').next_back()).expect("a name");
        assert!(used.contains(&format!("{name}(")), "no program calls {name}");
    }
}
