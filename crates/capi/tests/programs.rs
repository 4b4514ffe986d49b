//! C programs against the header and both libraries, from a place where `scripts/install-c.sh` has put them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo put the libraries: beside this test, built with it.
fn built() -> PathBuf {
    std::env::current_exe().expect("a test knows its file").parent().expect("it is in a directory").into()
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn new() -> Installed {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let script = repository().join("scripts/install-c.sh");
        run(Command::new(script).arg(dir.path().join("usr")).env("BUILT", built()));
        Installed { dir }
    }

    fn flags(&self, more: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs"]).args(more).arg("terrace");
        command.env("PKG_CONFIG_PATH", self.dir.path().join("usr/lib/pkgconfig"));
        run(&mut command).split_whitespace().map(str::to_string).collect()
    }

    fn compile(&self, source: &str, more: &[&str], flags: &[String]) -> PathBuf {
        let program = self.dir.path().join(Path::new(source).file_stem().expect("a file has a name"));
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-o"]).arg(&program);
        command.args(more).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source)).args(flags);
        run(&mut command);
        program
    }
}

#[test]
fn the_header_compiles_as_c99_and_as_cpp() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/terrace.h");
    for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
        let mut command = Command::new("c++");
        command.args(["-x", language, standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
        run(command.arg(&header));
    }
}

#[test]
fn the_example_runs_with_the_shared_library_of_an_installed_place() {
    let installed = Installed::new();
    let program = installed.compile("examples/ordered_map.c", &[], &installed.flags(&[]));
    let mut command = Command::new(program);
    command
        .arg(installed.dir.path().join("data"))
        .env("LD_LIBRARY_PATH", installed.dir.path().join("usr/lib"));
    let expected = "not 100 pears\nshelf/apples = 15\nshelf/pears = 2\nstore/pears = 5\nstore/apples = 28\n";
    assert_eq!(run(&mut command), expected);
}

#[test]
fn every_contract_of_the_header_holds_and_no_memory_is_misused_or_leaked() {
    let installed = Installed::new();
    let flags = installed.flags(&["--static"]);
    let flags: Vec<String> = flags
        .into_iter()
        .map(|flag| if flag == "-lterrace_c" { "-l:libterrace_c.a".into() } else { flag })
        .collect();
    let program = installed.compile("tests/contract.c", &["-fsanitize=address,undefined"], &flags);
    let said = run(Command::new(program).arg(installed.dir.path().join("data")));
    assert_eq!(said, "every contract holds\n");
}
