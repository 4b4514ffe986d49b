//! Libraries of functions.

mod client;

use client::{Client, Reply, Server, bulk, error, int, ok};

/// Counts what is used, for the bound of memory.
#[global_allocator]
static ALLOCATOR: terrace_kv::memory::Allocator = terrace_kv::memory::Allocator;

const LIBRARY: &str = "#!lua name=lib
local function set(keys, args)
  return redis.call('SET', keys[1], args[1])
end
redis.register_function('set', set)
redis.register_function{function_name='get', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}
redis.register_function('fails', function() return redis.call('nothing') end)
";

fn load(client: &mut Client, text: &str) -> Reply {
    client.ask_args(&[b"FUNCTION", b"LOAD", text.as_bytes()])
}

#[test]
fn functions_run_with_their_keys_and_arguments() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(load(&mut client, LIBRARY), bulk("lib"));
    assert_eq!(client.ask("FCALL set 1 key value"), ok());
    assert_eq!(client.ask("FCALL get 1 key"), bulk("value"));
    assert_eq!(client.ask("FCALL_RO get 1 key"), bulk("value"));
    assert_eq!(
        client.ask("FCALL_RO set 1 key value"),
        error("ERR Can not execute a script with write flag using *_ro command.")
    );
    assert_eq!(client.ask("FCALL nothing 0"), error("ERR Function not found"));
    assert!(
        matches!(client.ask("FCALL fails 0"), Reply::Error(text) if text.contains("Unknown Redis command"))
    );
    assert_eq!(load(&mut client, LIBRARY), error("ERR Library 'lib' already exists"));
}

#[test]
fn libraries_survive_a_dump_and_restore() {
    let server = Server::start();
    let mut client = server.connect();
    load(&mut client, LIBRARY);
    let Reply::Bulk(dumped) = client.ask("FUNCTION DUMP") else { panic!() };
    assert_eq!(client.ask("FUNCTION FLUSH"), ok());
    assert_eq!(client.ask("FCALL get 1 key"), error("ERR Function not found"));
    assert_eq!(client.ask_args(&[b"FUNCTION", b"RESTORE", &dumped]), ok());
    assert_eq!(client.ask("FCALL set 1 key value"), ok());
    let again = client.ask_args(&[b"FUNCTION", b"RESTORE", &dumped]);
    assert_eq!(again, error("ERR Library lib already exists"));
    assert_eq!(client.ask_args(&[b"FUNCTION", b"RESTORE", &dumped, b"FLUSH"]), ok());
    assert_eq!(client.ask("FUNCTION DELETE lib"), ok());
    assert_eq!(client.ask("DBSIZE"), int(1));
}

#[test]
fn a_library_that_fails_to_load_leaves_the_old_one() {
    let server = Server::start();
    let mut client = server.connect();
    load(&mut client, LIBRARY);
    for (text, why) in [
        ("#!lua name=lib\nredis.call('set', 'a', 'b')", "nonexistent global variable 'call'"),
        ("#!lua name=lib\nreturn 1", "No functions registered"),
        ("#!lua name=lib\nwhile true do end", "FUNCTION LOAD timeout"),
        ("#!lua name=other\nredis.register_function('get', function() end)", "Function get already exists"),
        ("#!js name=lib\n", "Engine 'js' not found"),
    ] {
        let reply = client.ask_args(&[b"FUNCTION", b"LOAD", b"REPLACE", text.as_bytes()]);
        assert!(matches!(&reply, Reply::Error(error) if error.contains(why)), "{text}: {reply:?}");
    }
    assert_eq!(client.ask("FCALL set 1 key value"), ok());
    assert_eq!(client.ask("EXISTS a"), int(0));
}

#[test]
fn scripts_that_allow_it_write_beyond_the_bound_of_memory_and_others_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    let library = "#!lua name=oom
local function set(keys) return redis.call('SET', keys[1], 1) end
redis.register_function{function_name='allowed', callback=set, flags={'allow-oom'}}
redis.register_function('refused', set)
redis.register_function{function_name='reads', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}
";
    assert_eq!(load(&mut client, library), bulk("oom"));
    assert_eq!(client.ask("CONFIG SET maxmemory 1"), ok());
    assert_eq!(client.ask("FCALL allowed 1 a"), ok());
    assert_eq!(client.ask("FCALL reads 1 a"), bulk("1"));
    let refused =
        "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
    assert_eq!(client.ask("FCALL refused 1 b"), error(refused));
    let mut eval = |text: &str| client.ask_args(&[b"EVAL", text.as_bytes(), b"1", b"c"]);
    assert_eq!(eval("#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], 1)"), ok());
    assert_eq!(eval("#!lua\nreturn 1"), error(refused));
    // A script without flags is refused by its first command that needs memory, unless it has written.
    assert!(
        matches!(eval("return redis.call('SET', KEYS[1], 1)"), Reply::Error(text) if text.contains("OOM"))
    );
    assert_eq!(eval("redis.call('DEL', KEYS[1]); return redis.call('SET', KEYS[1], 1)"), ok());
}
