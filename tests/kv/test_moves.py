"""`terrace kv import` and `terrace kv copy`, from and to a real redis-server and `terrace kv`."""

import os
import subprocess
import threading
import urllib.request

import pytest
from servers import TERRACE, contents, fill, free_port, real_redis, terrace


def run(*args):
    done = subprocess.run([TERRACE, "kv", *map(str, args)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """A file of redis-server, and what it has."""
    directory = tmp_path_factory.mktemp("dump")
    with real_redis(directory) as server:
        fill(server.client())
        server.client().set("expired", "soon", px=1)
        server.client().save()
        server.client().delete("expired")
        return directory / "dump.rdb", contents(server)


def test_an_import_into_an_instance_has_everything_and_replaces_what_was_there(tmp_path, dump):
    file, expected = dump
    for times in range(2):
        code, output = run("import", file, "--dir", tmp_path)
        assert code == 0 and f"{len(expected[0])} keys imported" in output, output
        with terrace("--dir", tmp_path) as server:
            assert server.client().dbsize() + server.client(db=3).dbsize() == len(expected[0])
            assert contents(server) == expected
            assert server.client().fcall("seven", 0) == 7
            server.client().set("int", "other")


def test_an_import_into_a_running_server_has_everything(tmp_path, dump):
    file, expected = dump
    with terrace(cwd=tmp_path) as server:
        code, output = run("import", file, "--to", f"127.0.0.1:{server.port}")
        assert code == 0, output
        assert contents(server) == expected
    assert sorted(os.listdir(file.parent)) == ["dump.rdb", "redis.log"]


def test_an_import_is_newer_than_what_write_back_had_in_its_log(tmp_path, dump):
    file, expected = dump
    with terrace("--dir", tmp_path) as server:
        server.client().config_set("tiering-write-policy", "write-back")
        server.client().config_set("tiering-dirty-max-ms", 3_600_000)
        server.client().set("int", "older")
        server.client().set("own", "older")
        server.kill()
    code, output = run("import", file, "--dir", tmp_path)
    assert code == 0, output
    with terrace("--dir", tmp_path) as server:
        client = server.client()
        assert client.get("int") == b"12345" and client.get("own") == b"older"
        assert client.dbsize() + server.client(db=3).dbsize() == len(expected[0]) + 1


def test_a_damaged_file_is_refused_with_its_place_before_anything_is_written(tmp_path, dump):
    whole = dump[0].read_bytes()
    file = tmp_path / "damaged.rdb"
    at = len(whole) // 2
    for damaged in (whole[:-100], whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :], b"no file"):
        file.write_bytes(damaged)
        code, output = run("import", file, "--dir", tmp_path / "data")
        assert code == 1 and "at byte" in output, output
    code, output = run("import", tmp_path / "missing.rdb", "--dir", tmp_path / "data")
    assert code == 2, output
    with terrace("--dir", tmp_path / "data") as server:
        assert server.client().dbsize() == 0


@pytest.mark.parametrize("target", ["instance", "server"])
def test_an_import_that_was_killed_goes_on_where_it_was(tmp_path, target):
    keys = 30_000
    with terrace(cwd=tmp_path) as server:
        for start in range(0, keys, 1000):
            server.client().mset({f"key:{number}": os.urandom(200) for number in range(start, start + 1000)})
        server.client().save()
        server.client().flushall()
        place = ["--to", f"127.0.0.1:{server.port}"] if target == "server" else ["--dir", tmp_path / "data"]
        command = [TERRACE, "kv", "import", tmp_path / "dump.rdb", *place]
        attempts, goes_on = 0, False
        while True:
            attempts += 1
            assert attempts < 50, "an import is killed half way"
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                # Later each time, until one has begun to write; that is carried on to its end.
                output, errors = process.communicate(timeout=60 if goes_on else 0.1 * attempts)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
                goes_on = "going on at byte" in errors or has_begun(target, tmp_path)
                continue
            assert process.returncode == 0, errors
            if goes_on:
                break
            # It was faster than the kill: once more from the start, and earlier.
            attempts = 1
        assert "going on at byte" in errors
        assert f"{keys} keys imported" in output
        if target == "server":
            assert server.client().dbsize() == keys
    if target == "instance":
        with terrace("--dir", tmp_path / "data") as server:
            assert server.client().dbsize() == keys
            assert sum(1 for _ in server.client().scan_iter(count=1000)) == keys


def has_begun(target, directory):
    """Whether an import that was killed has written some keys."""
    if target == "server":
        return any(".import-" in name for name in os.listdir(directory))
    with terrace("--dir", directory / "data") as server:
        return server.client().dbsize() > 0


class Writers:
    """Clients that change everything, all the time."""

    def __init__(self, server):
        self.ends, self.count, self.failure = threading.Event(), 0, None
        self.threads = [threading.Thread(target=self.run, args=(server, own)) for own in range(2)]
        for thread in self.threads:
            thread.start()

    def run(self, server, own):
        try:
            self.write(server.client(), own)
        except Exception as failure:
            self.failure = failure

    def write(self, client, own):
        number = 0
        # A pace that the target can keep up with on a busy machine.
        while not self.ends.wait(0.005):
            number += 1
            pipe = client.pipeline(transaction=number % 3 == 0)
            pipe.set(f"string:{number % 300}", number).incr("hot").lpush(f"list:{number % 20}", number)
            pipe.ltrim(f"list:{number % 20}", 0, 100)
            pipe.hset(f"hash:{number % 20}", f"of writer {own}", number)
            pipe.zincrby(f"zset:{number % 20}", 0.1, f"member {number % 50}")
            pipe.set(f"fleeting:{own}:{number}", "x", px=20)
            pipe.set(f"kept:{own}:{number % 5000}", "x" * (number % 100), ex=1000)
            pipe.delete(f"kept:{own}:{(number * 7) % 5000}")
            pipe.xadd("stream:0", {"number": number}, maxlen=500, approximate=False)
            pipe.xreadgroup("group", f"reader {own}", {"stream:0": ">"}, count=1)
            pipe.execute_command("SELECT", 3)
            pipe.spop("members")
            pipe.sadd("members", number % 100)
            pipe.execute_command("SELECT", 0)
            pipe.eval("redis.call('incrby', KEYS[1], ARGV[1])", 1, "scripted", number)
            pipe.execute()
            self.count += 1

    def end(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure


@pytest.mark.parametrize("target", ["instance", "server"])
def test_a_copy_under_writes_is_the_same_and_proves_it(tmp_path, target):
    with real_redis(tmp_path) as source:
        fill(source.client())
        writers = Writers(source)
        while writers.count < 200:
            assert not writers.failure
        if target == "instance":
            code, output = run("copy", f"redis://127.0.0.1:{source.port}", "--dir", tmp_path / "data")
        else:
            with terrace(cwd=tmp_path) as server:
                place = f"redis://127.0.0.1:{server.port}"
                code, output = run("copy", f"redis://127.0.0.1:{source.port}", "--to", place)
        writers.end()
        assert code == 0 and "are the same on both sides" in output, output
        followed = int(output.split("both sides; ")[1].split()[0])
        assert followed > 0, "commands came while it copied"
        assert source.client().config_get("maxclients"), "the source goes on"


def test_a_copy_without_writers_has_everything_and_ends_with_the_source_unpaused(tmp_path):
    with real_redis(tmp_path) as source:
        fill(source.client())
        code, output = run("copy", f"127.0.0.1:{source.port}", "--dir", tmp_path / "data")
        assert code == 0, output
        expected = contents(source)
        assert source.client().set("written", "later")
        with terrace("--dir", tmp_path / "data") as server:
            assert contents(server) == expected
            place = f"127.0.0.1:{server.port}"
            code, output = run("copy", f"127.0.0.1:{source.port}", "--to", place)
            assert code == 2 and "--replace" in output, output
            code, output = run("copy", f"127.0.0.1:{source.port}", "--to", place, "--replace")
            assert code == 0, output
            assert contents(server) == contents(source)


def test_a_copy_finds_a_difference(tmp_path):
    with real_redis(tmp_path) as source, terrace(cwd=tmp_path) as target:
        fill(source.client(), 50)
        for number in range(100_000):
            if number % 1000 == 0:
                source.client().mset({f"many:{number + each}": "x" for each in range(1000)})
        process = subprocess.Popen(
            [TERRACE, "kv", "copy", f"127.0.0.1:{source.port}", "--to", f"127.0.0.1:{target.port}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        # After the file, before the proof has ended: the target gets a key of its own, and loses one.
        assert "following the source" in process.stderr.readline()
        target.client().set("extra", "x")
        target.client().delete("int")
        errors = process.stderr.read()
        assert process.wait() == 1 and '"extra"' in errors and '"int"' in errors, errors


def test_a_copy_of_what_cannot_be_copied_says_why(tmp_path):
    with terrace(cwd=tmp_path) as source:
        code, output = run("copy", f"127.0.0.1:{source.port}", "--dir", tmp_path / "data")
        assert code == 2 and "replicas" in output, output
    code, output = run("copy", f"127.0.0.1:{source.port}", "--dir", tmp_path / "data")
    assert code == 2, output
    code, output = run("copy", "redis://127.0.0.1:1")
    assert code == 2, output


def test_libraries_of_functions_survive_kill_9_and_a_restart(tmp_path):
    library = "#!lua name={0}\nredis.register_function('{0}', function() return '{0}' end)"
    with terrace("--dir", tmp_path) as server:
        client = server.client()
        client.function_load(library.format("one"))
        client.function_load(library.format("two"))
        client.function_load(library.format("three"))
        client.function_delete("two")
        server.kill()
    with terrace("--dir", tmp_path) as server:
        client = server.client()
        assert client.fcall("one", 0) == b"one" and client.fcall("three", 0) == b"three"
        assert len(client.function_list()) == 2
        client.function_flush()
        server.kill()
    with terrace("--dir", tmp_path) as server:
        assert server.client().function_list() == []


def test_top_and_metrics_tell_what_the_server_does(tmp_path):
    from prometheus_client.parser import text_string_to_metric_families

    place = f"127.0.0.1:{free_port()}"
    with terrace("--dir", tmp_path, "--metrics-listen", place) as server:
        client = server.client()
        client.set("a", "1")
        client.get("a")
        client.get("absent")
        code, output = run("top", f"127.0.0.1:{server.port}", "--once")
        assert code == 0, output
        sample = dict(line.split() for line in output.splitlines())
        assert float(sample["keys"]) == 1 and float(sample["clients"]) >= 1
        assert float(sample["commands_per_second"]) > 0
        text = urllib.request.urlopen(f"http://{place}/metrics").read().decode()
        metrics = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert metrics["terrace_kv_keys", "0"] == 1
        assert metrics["terrace_kv_command_calls_total", "get"] == 2
        assert metrics["terrace_kv_hits_total",] == 1 and metrics["terrace_kv_misses_total",] == 1
        # The engine's are there too.
        assert ("terrace_uptime_seconds",) in metrics
