//! C programs against the headers and both libraries, from a place where `scripts/install-c.sh` has put them, and a daemon in this process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_files::config::Config;
use terrace_files::run::{self, Daemon};

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

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

#[test]
fn the_headers_compile_as_c99_and_as_cpp() {
    for header in ["terrace_files.h", "gopher.h"] {
        for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
            let mut command = Command::new("c++");
            command.args(["-x", language, standard, "-Wall", "-Wextra", "-pedantic", "-Werror"]);
            // Functions that a program does not use are no fault of the header.
            run(command.args(["-fsyntax-only", "-Wno-unused-function"]).arg(include().join(header)));
        }
    }
    let mut command = Command::new("c++");
    command.args(["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
    run(command.arg(include().join("terrace_files.hpp")));
}

#[test]
fn every_function_of_the_headers_is_used_by_the_contract() {
    let read = |file: &Path| std::fs::read_to_string(file).expect("the file is there");
    let contract = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.c"));
    let mut count = 0;
    for (header, prefix) in [("terrace_files.h", "terrace_files_"), ("gopher.h", "gopher")] {
        for line in read(&include().join(header)).lines().filter(|line| !line.starts_with(' ')) {
            let Some((before, _)) = line.split_once('(') else { continue };
            let name: String = before
                .chars()
                .rev()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            if name.starts_with(prefix) && name != "gopherKey" {
                assert!(contract.contains(&format!("{name}(")), "{name} is not used by tests/contract.c");
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} functions were looked for");
}

#[test]
fn every_contract_of_the_headers_holds_and_no_memory_is_misused_or_leaked() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let installed = dir.path().join("usr");
    let script = repository().join("scripts/install-c.sh");
    run(Command::new(script).arg(&installed).arg("terrace_files").env("BUILT", built()));

    let mut config = Config::new(dir.path().join("store").to_str().expect("a path is text"), 256 << 20);
    config.socket = dir.path().join("socket");
    config.requests = 8;
    config.flash = Some((dir.path().join("flash"), 1 << 30));
    let store = run::open_store(&config).expect("a directory is a store");
    let daemon = Daemon::start(terrace_io::real::world(), &config, store).expect("a daemon starts");
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    let running = std::thread::spawn(move || daemon.run(&stops));

    for (library, more) in
        [("-lterrace_files_c", &[][..]), ("-l:libterrace_files_c.a", &["-fsanitize=address,undefined"][..])]
    {
        let program = dir.path().join("contract");
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-o"]).arg(&program);
        command.args(more).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.c"));
        command.arg("-I").arg(installed.join("include")).arg("-L").arg(installed.join("lib"));
        run(command.args([library, "-lcurl", "-lpthread", "-ldl", "-lm"]));
        let mut command = Command::new(&program);
        command.arg(&config.socket).env("LD_LIBRARY_PATH", installed.join("lib"));
        assert_eq!(run(&mut command), "every contract holds\n");
    }
    let program = dir.path().join("contract_cpp");
    let mut command = Command::new("c++");
    command.args([
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-g",
        "-pthread",
        "-fsanitize=address,undefined",
        "-o",
    ]);
    command.arg(&program).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.cpp"));
    command.arg("-I").arg(installed.join("include")).arg("-L").arg(installed.join("lib"));
    run(command.args(["-l:libterrace_files_c.a", "-lcurl", "-lpthread", "-ldl", "-lm"]));
    assert_eq!(run(Command::new(&program).arg(&config.socket)), "every contract holds\n");
    stop.store(true, Ordering::SeqCst);
    running.join().expect("it does not panic").expect("it stops cleanly");
}
