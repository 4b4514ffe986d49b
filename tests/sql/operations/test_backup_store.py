"""Backups of a running server with an object store: its snapshot, `terrace backup`, `terrace restore`, and a second server on what was restored."""

import json
import os
import subprocess
import tempfile

import pytest
from conftest import TARGET, Server, end, run, wait_until
from test_backup import copied, mariabackup  # noqa: F401: a fixture
from test_copy import WRONG_VALUE, Transfers, refused, take_definitions, volume_of, whole
from test_object import store  # noqa: F401: a fixture

# Most of the rows are in objects, and blocks sink all the time.
SIZES = ["--terrace-memory=16777216", "--terrace-object-buffer=12582912", "--terrace-log=16777216", "--terrace-sink-after-ms=300"]


def terrace(*arguments, code=0):
    """The command's answer, as JSON."""
    program = os.path.join(TARGET, "debug", "terrace")
    done = subprocess.run([program, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else done.stderr


def server_on(store, place, *more):  # noqa: F811
    one = Server(tempfile.mkdtemp(prefix="terrace-sql-"), SIZES + store.options(place) + list(more))
    os.makedirs(os.path.join(one.directory, "data"))
    return one


def named(store, place, option="object"):  # noqa: F811
    """A place of the store as options of the command."""
    return [text.replace("--terrace-object", f"--{option}") for text in store.options(place)]


def test_a_backup_beside_writers_restores_a_consistent_server(store, tmp_path):  # noqa: F811
    original, second = server_on(store, "live"), server_on(store, "restored")
    try:
        original.start()
        backups, copy = named(store, "backups", "repository"), str(tmp_path / "copy")
        with Transfers(original) as load:
            connection = original.connect()
            least = list(load.done)
            run(connection, f"SET GLOBAL terrace_copy_to = '{copy}'")
            most = list(load.done)
            snapshots = terrace("snapshot", "list", *named(store, "live"))["snapshots"]
            assert len(snapshots) == 1
            take_definitions(original, second)
            # The original goes on, and supersedes what the copy names.
            wait_until(lambda: all(now > then + 100 for now, then in zip(load.done, most)) or load.errors)
            made = terrace("backup", "create", "--volume", copy, "--name", "first", *named(store, "live"), *backups)
            assert made["objects"] > 0 and made["copied_objects"] == made["objects"] and made["snapshot_removed"]
            # Both places are in one bucket: the S3 server copies.
            assert made["copied_within"] == (made["objects"] if store.s3 else 0), made
            # A second one copies what is new.
            again = str(tmp_path / "again")
            run(connection, f"SET GLOBAL terrace_copy_to = '{again}'")
            made = terrace("backup", "create", "--volume", again, "--name", "second", *named(store, "live"), *backups)
            assert made["copied_objects"] < made["objects"]
        assert not load.errors, load.errors
        print(f"slowest transaction {load.slowest:.3f} s")
        assert terrace("snapshot", "list", *named(store, "live"))["snapshots"] == []
        for name in ("first", "second"):
            assert terrace("backup", "verify", "--name", name, *backups)["sound"]
        assert [one["name"] for one in terrace("backup", "list", *backups)["backups"]] == ["first", "second"]

        volume = volume_of(second)
        terrace("restore", "--name", "first", "--volume", volume, *named(store, "live"), *backups, code=2)
        assert not os.path.exists(os.path.join(volume, "superblock"))
        terrace("restore", "--name", "first", "--volume", volume, *named(store, "restored"), *backups)
        code, report = second.check(*named(store, "restored"))
        assert code == 0, report
        second.start()
        whole(second.connect(), least, most)
        run(second.connect(), "UPDATE d.big SET pad = REPEAT('x', 3000) WHERE id < 500")
        run(second.connect(), "INSERT INTO d.n VALUES (77, 1, 'more')")
        second.restart()
        assert run(second.connect(), "SELECT COUNT(*) FROM d.n WHERE w = 77") == [(1,)]
        second.stop()
        code, report = second.check(*named(store, "restored"))
        assert code == 0, report
        terrace("restore", "--name", "second", "--volume", volume, *named(store, "restored"), *backups, code=2)
        second.start()

        assert terrace("backup", "prune", "--keep", "1", *backups)["backups"] == ["first"]
        assert terrace("backup", "verify", *backups)["name"] == "second"
        # The original has lost nothing.
        whole(original.connect(), load.done, load.done)
        original.restart()
        whole(original.connect(), load.done, load.done)
    finally:
        end(original)
        end(second)


def test_mariabackup_and_terrace_backup_restore_a_whole_server_with_an_object_store(store, tmp_path, mariabackup):  # noqa: F811
    if store.kind == "s3":
        pytest.skip("once is enough")
    original, second = server_on(store, "live", "--log-bin", "--server-id=1"), server_on(store, "restored")
    os.rmdir(os.path.join(second.directory, "data"))
    try:
        original.start()
        target, backups = tmp_path / "monday", named(store, "backups", "repository")
        with Transfers(original) as load:
            connection = original.connect()
            run(connection, "CREATE TABLE d.i (id INT PRIMARY KEY) ENGINE=InnoDB SELECT seq AS id FROM d.seq_1_to_1000")
            run(connection, f"SET GLOBAL terrace_backup_stage = 'copy', GLOBAL terrace_backup_copy_dir = '{tmp_path}/copy'")
            least = list(load.done)
            ok, said = copied(mariabackup, original, target)
            assert ok, said
            most = list(load.done)
            wait_until(lambda: all(now > then + 20 for now, then in zip(load.done, most)) or load.errors)
            terrace("backup", "create", "--volume", f"{tmp_path}/copy", *named(store, "live"), *backups)
        assert not load.errors, load.errors
        data = os.path.join(second.directory, "data")
        for step in (["--prepare"], ["--copy-back", f"--datadir={data}"]):
            done = subprocess.run([mariabackup, "--no-defaults", *step, f"--target-dir={target}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            assert done.returncode == 0, done.stdout
        terrace("restore", "--volume", volume_of(second), *named(store, "restored"), *backups)
        second.start()
        whole(second.connect(), least, most)
        assert run(second.connect(), "SELECT COUNT(*) FROM d.i") == [(1000,)]
    finally:
        end(original)
        end(second)


def test_a_stopped_server_is_backed_up_and_bad_places_are_refused(store, tmp_path):  # noqa: F811
    original, second = server_on(store, "live"), server_on(store, "restored")
    try:
        original.start()
        with Transfers(original) as load:
            pass
        backups, live = named(store, "backups", "repository"), named(store, "live")
        volume = volume_of(original)
        said = terrace("backup", "create", "--volume", volume, *live, *backups, code=2)
        assert "in use" in said
        original.stop()
        said = terrace("backup", "create", "--volume", volume, *live, *named(store, "live", "repository"), code=2)
        assert "object store of an instance" in said
        said = terrace("backup", "create", "--volume", volume, *backups, code=2)
        assert "which object store" in said
        made = terrace("backup", "create", "--volume", volume, "--name", "stopped", *live, *backups)
        assert made["objects"] > 0 and not made["snapshot_removed"]
        said = terrace("backup", "verify", "--name", "tuesday", *backups, code=2)
        assert "there is none of this name" in said
        take_definitions(original, second)
        terrace("restore", "--volume", volume_of(second), *named(store, "restored"), *backups)
        code, report = second.check(*named(store, "restored"))
        assert code == 0, report
        second.start()
        whole(second.connect(), load.done, load.done)
        run(second.connect(), "UPDATE d.big SET pad = REPEAT('z', 3000) WHERE id < 500")
        second.stop()
        code, report = second.check(*named(store, "restored"))
        assert code == 0, report
        second.start()
        if store.kind == "directory":
            places = [os.path.join(root, file) for root, _, files in os.walk(store.path / "backups" / "objects") for file in files]
            os.unlink(places[0])
            found = terrace("backup", "verify", *backups, code=1)
            assert not found["sound"] and len(found["faults"]) == 1, found
        original.start()
        store.die()
        code, text = refused(original.connect(), tmp_path / "copy")
        assert code == WRONG_VALUE and not os.path.exists(tmp_path / "copy"), text
        store.live()
    finally:
        end(original)
        end(second)
