//! Compiles `abi.c` against `include/terrace.h` and the static library, and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library: beside this test's own directory, built with it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let deps = test.parent().expect("a file is in a directory");
    // cargo puts it into deps when it builds a test, one level up when it builds the crate.
    let mut found: Vec<PathBuf> = [deps, deps.parent().unwrap_or(deps)]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).expect("cargo's directory can be read"))
        .map(|entry| entry.expect("cargo's directory can be read").path())
        .filter(|path| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            name.starts_with("libterrace_sql") && name.ends_with(".a")
        })
        .collect();
    found.sort_by_key(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok());
    found.pop().expect("cargo built the static library with this test")
}

#[test]
fn a_c_program_can_do_everything() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let work = std::env::temp_dir().join(format!("terrace-abi-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(work.join("volume")).expect("a temporary directory can be made");
    let program = work.join("abi");
    let target =
        std::env::var("TARGET").unwrap_or_else(|_| format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let compiler =
        cc::Build::new().target(&target).host(&target).opt_level(1).cargo_metadata(false).get_compiler();
    let mut command = compiler.to_command();
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program);
    command.arg("-I").arg(source.join("include")).arg(source.join("tests/abi.c")).arg(library());
    command.args(["-lpthread", "-ldl", "-lm", "-lcurl"]);
    assert!(command.status().expect("there is a C compiler").success(), "abi.c compiles and links");
    let output = Command::new(&program).arg(work.join("volume")).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let _ = std::fs::remove_dir_all(&work);
}
