"""The S3 endpoint of `terrace files` itself: freshness, writes by other ways, outages, many clients, who may connect."""

import concurrent.futures
import hashlib
import os
import queue
import subprocess
import threading

import botocore.exceptions
import fsspec
import pytest
from servers import ENVIRONMENT, Endpoint, Server, free_port


@pytest.fixture
def server(tmp_path):
    server = Server("own", tmp_path / "buckets")
    server.client().create_bucket(Bucket="bucket")
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path, server):
    started = []

    def run(*options, **more):
        started.append(Endpoint(tmp_path, server.url, "bucket", *options, **more))
        return started[-1]

    yield run
    for endpoint in started:
        endpoint.stop()


def get(s3, key, **parameters):
    answer = s3.get_object(Bucket="bucket", Key=key, **parameters)
    return answer["Body"].read()


def keys(s3, prefix):
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])]


def fails(code):
    return pytest.raises(botocore.exceptions.ClientError, match=code)


def test_with_always_a_change_behind_the_endpoint_is_seen_at_once(server, start):
    endpoint = start("--freshness", "always")
    s3, behind = endpoint.client(), server.client()
    for version in range(5):
        body = f"version {version}".encode() * (version + 1)
        behind.put_object(Bucket="bucket", Key="f", Body=body, Metadata={"version": str(version)})
        behind.put_object(Bucket="bucket", Key=f"g{version}", Body=b"")
        assert get(s3, "f") == body
        assert s3.head_object(Bucket="bucket", Key="f")["Metadata"] == {"version": str(version)}
        assert keys(s3, "g") == [f"g{one}" for one in range(version + 1)]
    behind.delete_object(Bucket="bucket", Key="f")
    with fails("NoSuchKey"):
        get(s3, "f")


def test_with_a_time_a_change_behind_the_endpoint_is_seen_after_it(server, start):
    endpoint = start("--freshness", "ttl=1s")
    s3, behind = endpoint.client(), server.client()
    behind.put_object(Bucket="bucket", Key="f", Body=b"before")
    assert get(s3, "f") == b"before" and keys(s3, "") == ["f"]
    behind.put_object(Bucket="bucket", Key="f", Body=b"behind")
    behind.put_object(Bucket="bucket", Key="g", Body=b"")
    while get(s3, "f") != b"behind" or keys(s3, "") != ["f", "g"]:
        pass
    assert s3.head_object(Bucket="bucket", Key="f")["ETag"] == behind.head_object(Bucket="bucket", Key="f")["ETag"]


def test_what_is_immutable_is_not_asked_about_again_but_new_keys_are_listed(server, start):
    endpoint = start("--freshness", "immutable")
    s3, behind = endpoint.client(), server.client()
    behind.put_object(Bucket="bucket", Key="f", Body=b"before")
    assert get(s3, "f") == b"before"
    behind.put_object(Bucket="bucket", Key="f", Body=b"behind")
    behind.put_object(Bucket="bucket", Key="g", Body=b"")
    assert get(s3, "f") == b"before" and keys(s3, "") == ["f", "g"]
    endpoint.evict("f")
    assert get(s3, "f") == b"behind"


def test_the_socket_and_the_endpoint_see_each_others_writes_at_once(server, start):
    endpoint = start("--freshness", "ttl=1h")
    s3, fs = endpoint.client(), fsspec.filesystem("terrace", socket=endpoint.socket, skip_instance_cache=True)
    for version in range(10):
        ours, theirs = f"socket {version}".encode(), f"endpoint {version}".encode()
        fs.pipe_file("d/a", ours)
        assert get(s3, "d/a") == ours and s3.head_object(Bucket="bucket", Key="d/a")["ContentLength"] == len(ours)
        s3.put_object(Bucket="bucket", Key="d/b", Body=theirs)
        assert fs.cat_file("d/b") == theirs
        fs.pipe_file(f"d/new{version}", b"")
        assert f"d/new{version}" in keys(s3, "d/")
        fs.rm_file(f"d/new{version}")
        assert keys(s3, "d/") == ["d/a", "d/b"]
    s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "d/a"}, {"Key": "d/b"}]})
    assert not fs.exists("d/a") and not fs.exists("d/b")


def test_an_object_that_changes_while_it_is_read_is_the_old_or_the_new_whole(server, start):
    endpoint = start("--freshness", "always")
    behind = server.client()
    bodies = {hashlib.sha256(body).digest() for body in (bytes([version]) * (1 << 20) for version in range(31))}
    begun = queue.SimpleQueue()

    def write():
        while (version := begun.get()) is not None:
            behind.put_object(Bucket="bucket", Key="f", Body=bytes([version]) * (1 << 20))

    behind.put_object(Bucket="bucket", Key="f", Body=bytes(1 << 20))
    writer = threading.Thread(target=write)
    writer.start()
    s3, whole = endpoint.client(), 0
    try:
        for version in range(1, 31):
            begun.put(version)  # It is written while the object is read.
            try:
                answer = s3.get_object(Bucket="bucket", Key="f")
                body = answer["Body"].read()
            except (botocore.exceptions.ClientError, botocore.exceptions.ResponseStreamingError, botocore.exceptions.FlexibleChecksumError):
                continue  # The server itself does not write an object and its checksum at once.
            assert hashlib.sha256(body).digest() in bodies
            assert answer["ETag"].strip('"') == hashlib.md5(body).hexdigest(), "headers and bytes are of one version"
            whole += 1
    finally:
        begun.put(None)
        writer.join()
    assert whole > 0
    # One that is sent is under lease: its changes do not reach it.
    for _ in range(10):
        behind.put_object(Bucket="bucket", Key="f", Body=b"a" * (4 << 20))
        stream = s3.get_object(Bucket="bucket", Key="f")["Body"]
        behind.put_object(Bucket="bucket", Key="f", Body=b"b" * (4 << 20))
        assert stream.read() == b"a" * (4 << 20)


def test_many_clients_get_every_object_right_with_one_question_for_each(server, start):
    endpoint = start("--freshness", "immutable")
    behind, s3 = server.client(), endpoint.client()
    bodies = {f"many/{i}": os.urandom(1000 * i) for i in range(40)}
    for key, body in bodies.items():
        behind.put_object(Bucket="bucket", Key=key, Body=body)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda i: (i, get(s3, f"many/{i % 40}")), range(8 * 40))
        assert all(body == bodies[f"many/{i % 40}"] for i, body in found)
    assert endpoint.figure("heads") == 40 and endpoint.figure("cached") == 8 * 40


def test_in_an_outage_what_is_cached_is_served_and_the_rest_fails_fast_with_the_reason(server, start):
    endpoint = start("--freshness", "ttl=100ms")
    s3 = endpoint.client()
    s3.put_object(Bucket="bucket", Key="a/here", Body=b"here", Metadata={"m": "1"})
    s3.put_object(Bucket="bucket", Key="b/not", Body=b"not")
    assert get(s3, "a/here") == b"here" and keys(s3, "a/") == ["a/here"]
    server.stop()
    try:
        while endpoint.figure("served_in_outage") == 0:
            assert get(s3, "a/here") == b"here"
        for _ in range(10):
            assert get(s3, "a/here") == b"here"
            assert s3.head_object(Bucket="bucket", Key="a/here")["Metadata"] == {"m": "1"}
            assert keys(s3, "a/") == ["a/here"]
            with fails("ServiceUnavailable.*the store does not answer|ServiceUnavailable.*unavailable"):
                get(s3, "b/not")
            with fails("ServiceUnavailable"):
                s3.put_object(Bucket="bucket", Key="c", Body=b"x")
        assert endpoint.status()["outage"]
    finally:
        server.start()
    while True:
        try:
            assert get(s3, "b/not") == b"not"
            break
        except botocore.exceptions.ClientError:
            pass
    s3.put_object(Bucket="bucket", Key="c", Body=b"back")
    assert get(s3, "c") == b"back"


def test_a_client_that_goes_away_leaves_nothing_behind(server, start):
    endpoint = start("--freshness", "ttl=1h")
    s3 = endpoint.client()
    s3.put_object(Bucket="bucket", Key="large", Body=bytes(12 << 20))
    for _ in range(8):
        s3.get_object(Bucket="bucket", Key="large")["Body"].close()
    while endpoint.figure("requests_now") > 0:
        pass
    assert len(get(s3, "large")) == 12 << 20


def test_without_keys_it_listens_on_this_machine_alone_and_asks_for_no_signature(server, start, tmp_path):
    endpoint = start(keys=False)
    s3 = endpoint.client(key="unknown-key", secret="anything")
    s3.put_object(Bucket="bucket", Key="f", Body=b"unsigned")
    assert get(s3, "f") == b"unsigned"
    for options, why in [
        (["--s3-listen", f"0.0.0.0:{free_port()}"], "keys are needed"),
        (["--s3-listen", f"127.0.0.1:{free_port()}", "--s3-keys", str(tmp_path / "none")], "No such file"),
    ]:
        command = [os.environ["TERRACE"], "files", "--store", "s3://bucket", "--store-endpoint", server.url, "--memory", "128M", "--socket", str(tmp_path / "other"), *options]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
        assert ended.returncode == 2 and why in ended.stderr, ended.stderr
    command[command.index("s3://bucket")] = str(tmp_path)
    ended = subprocess.run(command[:-2], env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2 and "a bucket of S3" in ended.stderr, ended.stderr
