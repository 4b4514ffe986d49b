"""Everyday uses of redis-py against `terrace kv`, with RESP2 and RESP3.

`TERRACE` names the binary; without it, the debug build is used.
"""

import os
import pathlib
import subprocess
import threading

import pytest
import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TERRACE = os.environ.get("TERRACE", str(TARGET / "debug" / "terrace"))


def start(*args):
    """A server on a free port, its port, and the lines that it wrote before it was ready."""
    process = subprocess.Popen([TERRACE, "kv", *args, "--port", "0"], stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "ready to accept connections on" in line:
            return process, int(line.split(" on ")[1].split(";")[0].rsplit(":", 1)[1]), lines
    raise RuntimeError("the server did not start: " + "".join(lines))


@pytest.fixture(scope="module")
def port():
    process, port, _ = start()
    yield port
    process.kill()
    process.wait()


@pytest.fixture(params=[2, 3])
def client(request, port):
    client = redis.Redis(port=port, protocol=request.param, decode_responses=True, socket_timeout=20)
    client.flushall()
    yield client
    client.close()


def blocked(client, count):
    """Waits until `count` clients wait for a key."""
    while sum("b" in line["flags"] for line in client.client_list()) != count:
        pass


def test_strings_expire_and_count(client):
    assert client.set("a", "1", ex=100, nx=True) is True
    assert client.set("a", "2", nx=True) is None
    assert client.incr("a") == 2
    assert client.mget("a", "b") == ["2", None]
    assert 0 < client.ttl("a") <= 100


def test_a_pipeline_returns_every_reply_in_order(client):
    pipeline = client.pipeline(transaction=False)
    for number in range(1000):
        pipeline.set(f"k{number}", number).get(f"k{number}")
    assert pipeline.execute() == [reply for number in range(1000) for reply in (True, str(number))]


def test_scan_iter_returns_every_key(client):
    client.mset({f"k{number}": number for number in range(1000)})
    assert sorted(client.scan_iter("k*", count=50)) == sorted(f"k{number}" for number in range(1000))


def test_a_lock_excludes_others_until_it_is_released(client):
    with client.lock("lock", timeout=50) as lock:
        assert not client.lock("lock", blocking=False).acquire()
        assert lock.extend(50) and lock.reacquire() and lock.owned()
    assert not client.exists("lock")


def test_a_registered_script_runs_alone_and_in_a_pipeline(client):
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}")
    assert script(keys=["x"], args=["y"]) == ["x", "y", 1]
    client.script_flush()
    pipeline = client.pipeline()
    script(keys=["x"], args=["y"], client=pipeline)
    assert pipeline.execute() == [["x", "y", 2]]


def test_a_transaction_fails_if_a_watched_key_was_changed(client):
    client.set("x", 1)
    with client.pipeline() as pipeline:
        pipeline.watch("x")
        client.set("x", 2)
        pipeline.multi()
        pipeline.set("x", 3)
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert client.get("x") == "2"
    assert client.transaction(lambda pipeline: (pipeline.multi(), pipeline.incr("x")), "x") == [3]


def test_subscribers_get_messages_of_channels_and_patterns(client):
    with client.pubsub() as pubsub:
        pubsub.subscribe("news")
        pubsub.psubscribe("weather.*")
        assert [pubsub.get_message(timeout=20)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
        assert client.publish("news", "m") == 1
        assert pubsub.get_message(timeout=20)["data"] == "m"
        assert client.publish("weather.north", "n") == 1
        message = pubsub.get_message(timeout=20)
        assert (message["pattern"], message["channel"], message["data"]) == ("weather.*", "weather.north", "n")


def test_a_subscriber_pings_in_the_form_of_its_protocol(client):
    with client.pubsub() as pubsub:
        pubsub.subscribe("news")
        assert pubsub.get_message(timeout=20)["type"] == "subscribe"
        pubsub.connection.send_command("PING", "hello", check_health=False)
        reply = pubsub.connection.read_response()
        assert reply == (["pong", "hello"] if pubsub.connection.protocol == 2 else "hello")


def test_a_blocking_pop_gets_the_element_pushed_later(client, port):
    waits = redis.Redis(port=port, decode_responses=True)
    popped = []
    thread = threading.Thread(target=lambda: popped.append(waits.blpop(["q1", "q2"], 20)))
    thread.start()
    blocked(client, 1)
    client.rpush("q2", "v")
    thread.join()
    assert [tuple(pair) for pair in popped] == [("q2", "v")]
    assert client.blpop("q1", 0.01) is None


def test_hashes_and_sorted_sets_return_what_was_put(client):
    client.hset("h", mapping={"a": 1, "b": 2})
    assert client.hgetall("h") == {"a": "1", "b": "2"}
    client.zadd("z", {"a": 1, "b": 2.5})
    assert [tuple(pair) for pair in client.zrange("z", 0, -1, withscores=True)] == [("a", 1.0), ("b", 2.5)]


def test_a_consumer_group_hands_out_claims_and_acknowledges(client):
    entry = client.xadd("s", {"a": 1})
    client.xgroup_create("s", "g", id="0")
    read = client.xreadgroup("g", "one", {"s": ">"}, count=1)
    assert "a" in str(read) and client.xpending("s", "g")["pending"] == 1
    assert client.xautoclaim("s", "g", "two", 0)[1] == [(entry, {"a": "1"})]
    assert client.xack("s", "g", entry) == 1
    assert client.xinfo_groups("s")[0]["pending"] == 0


@pytest.mark.parametrize("empties", ["flushall", "flushdb"])
def test_a_group_reader_that_waits_fails_when_its_stream_is_flushed(client, port, empties):
    client.xgroup_create("s", "g", id="$", mkstream=True)
    waits = redis.Redis(port=port, decode_responses=True)
    errors = []

    def read():
        try:
            waits.xreadgroup("g", "one", {"s": ">"}, block=20_000)
        except redis.ResponseError as error:
            errors.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    blocked(client, 1)
    getattr(client, empties)()
    thread.join()
    assert len(errors) == 1 and "no longer exists" in errors[0], errors


def test_a_dumped_value_is_restored(client, port):
    client.rpush("l", 1, 2, 3)
    binary = redis.Redis(port=port)
    binary.restore("m", 0, binary.dump("l"))
    assert client.lrange("m", 0, -1) == ["1", "2", "3"]


def test_client_info_has_the_fields_that_redis_py_reads(client):
    client.client_setname("me")
    info = client.client_info()
    assert info["name"] == "me" and info["cmd"] == "client|info"
    assert client.info()["redis_version"] and client.config_get("*")["port"]


def test_settings_that_promise_what_is_missing_are_refused(client):
    with pytest.raises(redis.ResponseError, match="not supported yet"):
        client.config_set("appendonly", "yes")
    client.config_set("appendonly", "no")


def test_a_file_with_such_settings_is_taken_and_each_is_named_at_the_start(tmp_path):
    (tmp_path / "redis.conf").write_text("appendonly yes\nappendfsync always\nappendonly yes\n")
    process, port, lines = start(str(tmp_path / "redis.conf"))
    process.kill()
    process.wait()
    warnings = [line for line in lines if line.startswith("warning: ")]
    for name in ["appendonly", "appendfsync"]:
        assert sum(line.startswith(f"warning: {name} ") for line in warnings) == 1, lines
