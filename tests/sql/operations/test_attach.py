"""Restores that are served before their objects are copied, and `terrace doctor`: on a directory and on an S3 server."""

import json
import os
import shutil
import subprocess

from conftest import TARGET, end, run, wait_until
from test_backup_store import named, server_on, terrace
from test_copy import Transfers, take_definitions, volume_of, whole
from test_object import store  # noqa: F401: a fixture


def left(connection):
    """Objects that are still to be copied."""
    return int(run(connection, "SHOW STATUS LIKE 'Terrace_attached_objects_left'")[0][1])


def notes(connection):
    lines = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2].strip().splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def doctor(store):  # noqa: F811
    program = os.path.join(TARGET, "debug", "terrace")
    done = subprocess.run([program, "doctor", *named(store, "live"), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode in (0, 3), (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert found["exit"] == done.returncode
    return found


def files(path):
    return sorted(os.path.join(root, file) for root, _, names in os.walk(path) for file in names)


def test_a_doctor_finds_a_store_fit_and_leaves_nothing(store, tmp_path):  # noqa: F811
    if store.kind == "directory":
        os.makedirs(store.path / "live")
    # The tests' S3 server keeps files of its own beside the buckets.
    place = store.path / "bucket" if store.s3 else store.path
    before = files(place)
    found = doctor(store)
    weaker = {one["what"] for one in found["findings"] if one["outcome"] == "weaker"}
    # The tests' S3 server looks and puts in two steps: under load the doctor finds that several puts of one key succeed.
    assert weaker <= ({"one of several"} if store.s3 else set()), found
    assert found["verdict"] == ("fit with restrictions" if weaker else "fit"), found
    assert {one["what"] for one in found["findings"]} >= {"put", "get", "range", "head", "put if absent", "put if match", "one of several", "list", "delete", "clock", "latency", "left behind"}
    assert {one["outcome"] for one in found["findings"]} - {"weaker"} == {"works", "note"}
    assert files(place) == before, "something was left behind"
    missing = [f"--object={tmp_path}/nothing-there"] if store.kind == "directory" else ["--object=s3://bucket/x", "--object-endpoint=http://127.0.0.1:1"]
    said = terrace("doctor", *missing, code=2)
    assert "nothing-there is no directory" in said or "s3://bucket/x cannot be read" in said, said
    assert not os.path.exists(tmp_path / "nothing-there")


def test_a_restored_server_is_served_at_once_and_copies_its_objects_meanwhile(store, tmp_path):  # noqa: F811
    original, second, third = server_on(store, "live"), server_on(store, "restored"), server_on(store, "clone")
    backups, live, restored = named(store, "backups", "repository"), named(store, "live"), named(store, "restored")
    try:
        original.start()
        with Transfers(original) as load:
            pass
        original.stop()
        terrace("backup", "create", "--volume", volume_of(original), "--name", "first", *live, *backups)
        take_definitions(original, second)
        said = terrace("restore", "--attach-rate", "100K", "--volume", volume_of(second), *restored, *backups, code=2)
        assert "--attach" in said
        done = terrace("restore", "--attach", "--attach-rate", "1M", "--volume", volume_of(second), *restored, *backups)
        assert done["objects"] > 0
        listed = terrace("backup", "list", *backups)
        assert [one["backup"] for one in listed["attached"]] == ["first"]
        # A clone of it reads in the same repository. As long as its snapshot is there, the server does not let go of the repository.
        take_definitions(original, third)
        to = [text.replace("--object", "--to-object") for text in named(store, "clone")]
        cloned = terrace("clone", "--volume", volume_of(second), *restored, "--to-volume", volume_of(third), *to)
        assert cloned["objects"] == done["objects"]
        assert len(terrace("backup", "list", *backups)["attached"]) == 2
        # A check follows the objects to where they are.
        code, report = second.check(*restored)
        assert code == 0, report
        second.start()
        connection = second.connect()
        whole(connection, load.done, load.done)
        assert "backup first" in notes(connection)["attached"]
        run(connection, "UPDATE d.a SET v = v + 0, pad = REPEAT('c', 150)")
        run(connection, "INSERT INTO d.n VALUES (77, 1, 'more')")
        second.kill9()
        second.start()
        connection = second.connect()
        assert run(connection, "SELECT COUNT(*) FROM d.n WHERE w = 77") == [(1,)]
        # A newer backup: the old one stays, because the server reads it.
        terrace("backup", "create", "--volume", volume_of(original), "--name", "second", *live, *backups)
        pruned = terrace("backup", "prune", "--keep", "1", *backups)
        assert pruned["backups"] == [] and {one["backup"] for one in pruned["attached"]} == {"first"}
        # The clone has its own state, and changes it.
        third.start()
        whole(third.connect(), load.done, load.done)
        run(third.connect(), "DELETE FROM d.big")
        third.restart()
        assert run(third.connect(), "SELECT COUNT(*) FROM d.big") == [(0,)]
        assert run(third.connect(), "SELECT COUNT(*), SUM(v) FROM d.a") == [(500, 50000)]
        third.stop()
        assert run(connection, "SELECT COUNT(*) FROM d.big") == [(8000,)]
        connection = second.connect()
        # The clone is deleted.
        assert [one["id"] for one in terrace("snapshot", "list", *restored)["snapshots"]] == [cloned["instance"]]
        terrace("snapshot", "remove", "--id", cloned["instance"], *restored)
        terrace("backup", "forget", "--instance", cloned["instance"], *backups)
        wait_until(lambda: terrace("backup", "list", *backups)["attached"] == [])
        assert left(connection) == 0
        wait_until(lambda: "attached" not in notes(connection))
        assert "attached_trouble" not in notes(connection)
        assert terrace("backup", "prune", "--keep", "1", *backups)["backups"] == ["first"]
        # The repository is needed no longer.
        shutil.rmtree(store.path / "bucket" / "backups" if store.s3 else store.path / "backups")
        second.restart()
        connection = second.connect()
        assert run(connection, "SELECT COUNT(*) FROM d.n WHERE w = 77") == [(1,)]
        run(connection, "DELETE FROM d.n WHERE w = 77")
        whole(connection, load.done, load.done)
        second.stop()
        code, report = second.check(*restored)
        assert code == 0, report
    finally:
        end(original)
        end(second)
        end(third)
