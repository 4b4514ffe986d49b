"""Snapshot files of `terrace kv`, read by and from a real redis-server, and the end of the server."""

import os
import resource
import signal
import threading

import pytest
import redis
from servers import contents, fill, real_redis, terrace


def saved(client):
    """Waits for the end of a save in the background; whether it succeeded."""
    while (info := client.info("persistence"))["rdb_bgsave_in_progress"]:
        pass
    return info["rdb_last_bgsave_status"] == "ok"


def test_redis_loads_what_terrace_saved_and_terrace_what_redis_saved(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    with terrace(cwd=ours) as server:
        fill(server.client())
        before = contents(server)
        assert server.client().bgsave()
        assert saved(server.client())
    (ours / "dump.rdb").rename(theirs / "dump.rdb")
    with real_redis(theirs) as server:
        assert contents(server) == before
        assert server.client().fcall("seven", 0) == 7
        server.client().save()
    (theirs / "dump.rdb").rename(ours / "dump.rdb")
    with terrace(cwd=ours) as server:
        assert contents(server) == before
        assert server.client().info("persistence")["rdb_last_load_keys_loaded"] == len(before[0])


class Writers:
    """Clients that change two keys of a pair together, all the time."""

    def __init__(self, server, pairs):
        self.ends, self.count = threading.Event(), 0
        self.threads = [threading.Thread(target=self.write, args=(server, pairs, own)) for own in range(2)]
        for thread in self.threads:
            thread.start()

    def write(self, server, pairs, own):
        client = server.client()
        while not self.ends.is_set():
            for pair in range(own, pairs, 2):
                pipe = client.pipeline(transaction=True)
                if pair % 7 == 0:
                    pipe.delete(f"left:{pair}", f"right:{pair}")
                pipe.incr(f"left:{pair}").rpush(f"right:{pair}", pair)
                pipe.set(f"new:{self.count}", "x", px=5)
                pipe.execute()
                self.count += 1

    def wait_for_more(self):
        before = self.count
        while self.count == before:
            assert all(thread.is_alive() for thread in self.threads)

    def end(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("tier", ["memory", "storage", "write-back"])
def test_a_save_under_writes_is_the_state_of_one_point_in_time(tmp_path, tier):
    pairs, ballast = 500, 60_000
    args = [] if tier == "memory" else ["--dir", tmp_path / "data", "--memory", "80mb"]
    with terrace(*args, cwd=tmp_path) as server:
        client = server.client()
        if tier == "write-back":
            client.config_set("tiering-dirty-max-bytes", 4 << 20)
            client.config_set("tiering-write-policy", "write-back")
        for start in range(0, ballast, 1000):
            client.mset({f"ballast:{number}": os.urandom(500) for number in range(start, start + 1000)})
        for pair in range(pairs):
            client.pipeline().set(f"left:{pair}", 1).rpush(f"right:{pair}", pair).execute()
        writers = Writers(server, pairs)
        writers.wait_for_more()
        before = client.info("persistence")["rdb_saves"]
        for saves in range(1, 21):
            client.bgsave()
            changed = writers.count
            assert saved(client)
            client.execute_command("PING")
            # Changes that came while the save went on. While what is dirty is at its limit, writers wait for storage, which may take as long as a save.
            if writers.count > changed:
                break
            writers.wait_for_more()
        else:
            raise AssertionError("no change came during any of the saves")
        writers.end()
        assert client.info("persistence")["rdb_saves"] == before + saves
        assert sum(1 for _ in client.scan_iter("ballast:*", count=1000)) == ballast
    (tmp_path / "redis").mkdir()
    (tmp_path / ("dump.rdb" if tier == "memory" else "data/dump.rdb")).rename(tmp_path / "redis" / "dump.rdb")
    with real_redis(tmp_path / "redis") as server:
        client = server.client()
        assert len(client.keys("ballast:*")) == ballast
        for pair in range(pairs):
            left, right = client.get(f"left:{pair}"), client.llen(f"right:{pair}")
            assert int(left) == right, f"pair {pair} is whole"


def limited():
    # A disk that is full: writing beyond the limit fails.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_full_disk_leaves_the_old_file_and_refuses_writes_where_saves_are_promised(tmp_path):
    with terrace(cwd=tmp_path, preexec_fn=limited) as server:
        client = server.client()
        client.set("small", "x")
        client.save()
        good = (tmp_path / "dump.rdb").read_bytes()
        client.set("large", os.urandom(200_000))
        with pytest.raises(redis.ResponseError, match="File too large"):
            client.save()
        client.bgsave()
        assert not saved(client)
        assert (tmp_path / "dump.rdb").read_bytes() == good
        assert os.listdir(tmp_path) == ["dump.rdb"]
        client.set("small", "y")
        client.config_set("save", "3600 1")
        with pytest.raises(redis.ResponseError, match="unable to persist to disk"):
            client.set("small", "z")
        assert client.get("small") == b"y"
        # SHUTDOWN does not lose data either, unless it is forced.
        with pytest.raises(redis.ResponseError, match="Errors trying to SHUTDOWN"):
            client.execute_command("SHUTDOWN")
        with pytest.raises(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "FORCE")
        assert server.process.wait() == 0


def test_a_damaged_file_is_refused_with_its_place(tmp_path):
    with terrace(cwd=tmp_path) as server:
        fill(server.client(), 20)
        server.client().save()
    file = tmp_path / "dump.rdb"
    whole = file.read_bytes()
    for damaged in (whole[:-200], whole[:2000] + b"\xff" * 8 + whole[2008:], b"REDIX" + whole[5:], b""):
        file.write_bytes(damaged)
        with pytest.raises(RuntimeError, match=r"dump.rdb cannot be loaded: .*byte \d+"):
            terrace(cwd=tmp_path)


def test_a_save_point_saves_by_itself(tmp_path):
    with terrace(cwd=tmp_path) as server:
        client = server.client()
        client.config_set("save", "1 2")
        client.mset({"a": 1, "b": 2})
        while client.info("persistence")["rdb_saves"] == 0:
            pass
        assert (tmp_path / "dump.rdb").exists()
        assert client.info("persistence")["rdb_changes_since_last_save"] == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_order(tmp_path, how):
    with terrace(cwd=tmp_path) as server:
        server.client().config_set("save", "3600 1")
        server.client().set("key", "value")
        code, lines = server.stop(how)
        assert code == 0 and how.name in lines
    with terrace("--dir", tmp_path / "data", cwd=tmp_path) as server:
        # Without storage the file would be loaded.
        assert server.client().dbsize() == 0
        server.client().set("key", "other")
        code, lines = server.stop(how)
        assert code == 0 and how.name in lines
    with terrace(cwd=tmp_path) as server:
        assert server.client().get("key") == b"value"
    with terrace("--dir", tmp_path / "data", cwd=tmp_path) as server:
        assert server.client().get("key") == b"other"


def test_a_second_signal_ends_the_server_at_once(tmp_path):
    with terrace(cwd=tmp_path) as server:
        # Both come before the server goes on.
        for each in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            server.process.send_signal(each)
        assert server.process.wait() == 1


def test_shutdown_takes_the_arguments_of_redis(tmp_path):
    with terrace(cwd=tmp_path) as server:
        client = server.client()
        client.set("key", "value")
        for wrong in (["NOSAVE", "SAVE"], ["ABORT", "NOW"], ["LATER"]):
            with pytest.raises(redis.ResponseError, match="syntax error"):
                client.execute_command("SHUTDOWN", *wrong)
        with pytest.raises(redis.ResponseError, match="No shutdown in progress"):
            client.execute_command("SHUTDOWN", "ABORT")
        with pytest.raises(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "SAVE", "NOW")
        assert server.process.wait() == 0
    assert (tmp_path / "dump.rdb").exists()
    with terrace(cwd=tmp_path) as server:
        server.client().config_set("save", "1 1")
        server.client().flushall()
        with pytest.raises(redis.ConnectionError):
            server.client().execute_command("SHUTDOWN", "NOSAVE")
    with terrace(cwd=tmp_path) as server:
        assert server.client().get("key") == b"value"


