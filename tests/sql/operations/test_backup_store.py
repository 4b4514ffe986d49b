"""Backups with an object store: `terrace backup`, `terrace restore`, and a second server on what was restored."""

import json
import os
import subprocess
import tempfile

from conftest import TARGET, Server, end, run
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
