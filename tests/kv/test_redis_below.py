"""`terrace kv --storage redis://…`: another server as storage, with and without a directory for the write-back log; both sides killed under load."""

import subprocess

import pytest
from servers import TERRACE, contents, fill, free_port, real_redis, terrace
from test_kill import Writer

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def place(server):
    return f"redis://127.0.0.1:{server.port}"


def fails(*args):
    """The message of a start that fails."""
    done = subprocess.run([TERRACE, "kv", "--port", "0", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done
    return done.stderr


def check(client, writers):
    for writer in writers:
        own, least, most = writer.own, writer.acknowledged, writer.sent
        numbers = {name: int(client.get(f"{name}:{own}")) for name in ("plain", "left", "one", "other")}
        assert all(least <= number <= most for number in numbers.values()), (numbers, least, most)
        assert numbers["one"] == numbers["other"], "a script is whole"
        right = [int(number) for number in client.lrange(f"right:{own}", 0, -1)]
        assert right[-1] == numbers["left"], "a transaction is whole"
        assert right == sorted(set(right)), "none was run twice"


@pytest.mark.parametrize("policy", ["write-through", "write-back"])
def test_what_was_acknowledged_survives_kill_9_of_both_under_load(tmp_path, policy):
    config = tmp_path / "redis.conf"
    config.write_text(f"tiering-write-policy {policy}\ntiering-dirty-max-ms 20\n")
    log = ["--dir", tmp_path / "log"] if policy == "write-back" else []
    below = real_redis(tmp_path, *DURABLE)
    start = [0] * 3
    for round_number in range(3):
        server = terrace(config, "--storage", place(below), *log)
        server.start = start
        writers = [Writer(server, own) for own in range(3)]
        while any(writer.acknowledged < start[writer.own] + 40 for writer in writers):
            assert all(writer.thread.is_alive() for writer in writers)
        server.kill()
        for writer in writers:
            writer.thread.join()
        if round_number == 1:
            below.kill()
            below = real_redis(tmp_path, *DURABLE, port=below.port)
        with terrace(config, "--storage", place(below), *log) as server:
            check(server.client(decode_responses=True), writers)
            assert server.stop()[0] == 0
        # The end of the server has stored everything.
        check(below.client(decode_responses=True), writers)
        start = [writer.sent for writer in writers]
    below.kill()


def test_both_servers_have_the_same_and_a_restart_reads_it_from_below(tmp_path):
    with real_redis(tmp_path, *DURABLE) as below:
        with terrace("--storage", place(below)) as server:
            fill(server.client())
            found, functions = contents(server)
            lower, _ = contents(below)
            lower.pop((0, b"{terrace}.storage"))
            assert lower == found
            assert server.stop()[0] == 0
        with terrace("--storage", place(below)) as server:
            assert contents(server) == (found, functions)


def test_what_cannot_be_storage_ends_the_start_with_the_reason(tmp_path):
    port = free_port()
    assert f"redis://127.0.0.1:{port}: Connection refused" in fails("--storage", f"redis://127.0.0.1:{port}")
    assert "redis://[[user]:password@]host:port" in fails("--storage", "localhost")
    assert "rediss:// is not supported" in fails("--storage", "rediss://localhost")
    with real_redis(tmp_path, "--requirepass", "secret", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as below:
        assert "NOAUTH" in fails("--storage", place(below))
        login = f"redis://:secret@127.0.0.1:{below.port}"
        with terrace("--storage", login) as server:
            told = "".join(server.lines)
            assert "it evicts keys (maxmemory-policy allkeys-lru)" in told
            assert "it has no append only file" in told
            assert "secret" not in told
            assert f"data is kept in {place(below)}" in told


def test_a_log_is_used_with_the_data_that_it_was_written_for_alone(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    log = tmp_path / "log"
    with real_redis(tmp_path / "one", *DURABLE) as one, real_redis(tmp_path / "other", *DURABLE) as other:
        with terrace("--storage", place(one), "--dir", log) as server:
            server.client().set("key", "value")
        assert "belongs to another server" in fails("--storage", place(other), "--dir", log)
        assert "--storage" in fails("--dir", log)
        assert other.client().exists("key") == 0
        with terrace("--storage", place(one), "--dir", log) as server:
            assert server.client().get("key") == b"value"
            assert server.client().config_get("storage")["storage"] == place(one)
        # Its data is gone: the log alone would be a part of it.
        one.client().flushall()
        assert "that this one has lost" in fails("--storage", place(one), "--dir", log)
        (log / "storage").unlink()
        with terrace("--storage", place(one), "--dir", log) as server:
            assert server.client().ping()
    # The log of a directory with data of its own is not for another storage.
    with terrace("--dir", tmp_path / "data") as server:
        server.client().set("key", "value")
    with real_redis(tmp_path) as below:
        assert "data that is kept in the directory" in fails("--storage", place(below), "--dir", tmp_path / "data")
        assert below.client().exists("key") == 0


def test_settings_that_need_a_storage_of_our_own_are_named_or_refused(tmp_path):
    config = tmp_path / "redis.conf"
    config.write_text("save 60 1\nappendfsync always\n")
    with real_redis(tmp_path) as below, terrace(config, "--storage", place(below)) as server:
        told = "".join(server.lines)
        assert 'save "60 1" has no effect' in told and "appendfsync" in told
        client = server.client()
        for name, value in (("save", "60 1"), ("appendonly", "yes")):
            with pytest.raises(Exception, match="not supported yet"):
                client.config_set(name, value)
        with pytest.raises(Exception, match="BGSAVE"):
            client.bgsave()
        client.set("key", "value")
        assert server.stop()[0] == 0, "no snapshot is due at the end"
        assert below.client().get("key") == b"value"
