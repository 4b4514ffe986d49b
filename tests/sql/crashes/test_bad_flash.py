"""Flash that is broken, full, gone or another's under a running server: it caches less, and never serves a wrong row."""

import fcntl
import os
import random
import subprocess

import pymysql
import pytest
from conftest import end
from conftest import run as run_statement
from test_bad_tiers import Instance

WIDE = 4000  # rows, about a kilobyte each: more than memory


def status(connection, run):
    text = run(connection, "SHOW ENGINE TERRACE STATUS")[0][2]
    return dict(line.split(" ", 1) for line in text.strip().splitlines())


class Flash(Instance):
    """An instance whose table is much larger than its memory."""

    def __init__(self, directory):
        super().__init__(directory, "--terrace-memory=4194304")
        self.options = self.server.options

    def grow(self, run):
        connection = self.fill(run)
        for first in range(1, WIDE, 1000):
            self.model.put(connection, run, first, first + 999, 100)

    def on(self, flash):
        """Restarts the server with this flash directory."""
        self.server.stop()
        self.server.options = self.options + [f"--terrace-flash-path={flash}", "--terrace-flash=67108864"]
        self.server.start()
        return self.connect()

    def churn(self, connection, run, seed):
        """Reads twice and more what does not fit memory, compared with the model."""
        rng = random.Random(seed)
        for _ in range(2):
            for i in range(1, WIDE, 14):
                assert run(connection, f"SELECT v FROM t WHERE id = {i}") == [(self.model.rows[i],)]
        run(connection, "BEGIN")
        for i in rng.sample(range(1, WIDE), 60):
            self.model.rows[i] = (i + seed) % 1000
            run(connection, f"UPDATE t SET v = {self.model.rows[i]} WHERE id = {i}")
        run(connection, "COMMIT")
        self.model.check(connection, run)


@pytest.fixture(scope="module")
def flash(request, tmp_path_factory):
    if request.config.getoption("--engine") == "InnoDB":
        pytest.skip("Terrace's own")
    one = Flash(tmp_path_factory.mktemp("flash") / "server")
    one.grow(run_statement)
    yield one
    end(one.server)


def test_garbage_truncation_and_loss_under_a_running_server(flash, tmp_path, run):
    connection = flash.on(tmp_path / "flash")
    flash.churn(connection, run, 1)
    before = status(connection, run)
    assert int(before["reads_flash"]) > 0, "flash must have served something, or this proves nothing"
    file = tmp_path / "flash" / "bpe"
    size = int(before["flash_pages"]) * 16384
    with open(file, "r+b") as device:  # half of the images get a flipped bit, a quarter are noise
        for at in range(0, size, 16384):
            device.seek(at + 5000)
            byte = device.read(1)
            device.seek(at + 5000)
            device.write(bytes([byte[0] ^ 16]) if at // 16384 % 4 < 2 else random.randbytes(9000) if at // 16384 % 4 == 2 else byte)
    flash.churn(connection, run, 2)
    # Swapped pages: each image is intact, but not the one that belongs there.
    data = bytearray(file.read_bytes()[:size])
    with open(file, "r+b") as device:
        device.write(data[16384:] + data[:16384])
    flash.churn(connection, run, 3)
    os.truncate(file, 0)
    flash.churn(connection, run, 4)
    os.remove(file)
    flash.churn(connection, run, 5)
    assert run(connection, "CHECK TABLE t")[0][3] == "OK"
    seen = status(connection, run)
    assert int(seen["reads_corrupt"]) == 0, "a bad copy is no damage of the page"
    assert int(seen["flash_corrupt"]) > 0, "none was met, or it is not counted"
    flash.server.kill9()
    flash.server.start()
    flash.churn(flash.connect(), run, 6)


@pytest.mark.parametrize("why", ["a file", "another's"])
def test_flash_that_cannot_be_opened_is_off_and_the_log_says_why(flash, tmp_path, run, why):
    place = tmp_path / "flash"
    if why == "a file":
        place.write_text("not a directory")
    else:
        place.mkdir()
        lock = open(place / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a running instance does
        (place / "bpe").write_bytes(b"theirs")
    connection = flash.on(place)
    flash.churn(connection, run, 7)
    seen = status(connection, run)
    assert seen["flash_off"] == "1" and str(place) in seen["flash_trouble"], seen
    if why == "another's":
        assert (place / "bpe").read_bytes() == b"theirs"


def test_full_flash_caches_less(flash, tmp_path, run):
    place = tmp_path / "flash"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"this machine does not allow mounting a file system: {mounted.stderr.strip()}")
    try:
        connection = flash.on(place)
        flash.churn(connection, run, 8)
        seen = status(connection, run)
        assert seen["flash_off"] == "0" and 0 < int(seen["flash_pages"]) <= 64 and int(seen["reads_flash"]) > 0, seen
    finally:
        flash.server.stop()
        subprocess.run(["umount", place], check=True)


def test_flash_that_turned_itself_off_is_reported_first_until_a_restart(flash, tmp_path, run):
    """The advice was about flash of 0 KB, and that the sizes fit."""
    connection = flash.on(tmp_path / "flash")
    flash.churn(connection, run, 9)
    file = tmp_path / "flash" / "bpe"
    for seed in range(10, 30):
        os.truncate(file, 0)
        flash.churn(connection, run, seed)
        if status(connection, run)["flash_off"] == "1":
            break
    seen = status(connection, run)
    assert seen["flash_off"] == "1" and seen["flash_trouble"].startswith("8 errors"), seen
    advice = [row[1] for row in run(connection, "SELECT * FROM information_schema.TERRACE_ADVICE ORDER BY LINE")]
    assert advice[0].startswith("Flash has failed and is not used (8 errors in a row"), advice
    assert "restart" in advice[0] and "flash (64 MB)" in advice[1] and not any("(0 KB)" in line for line in advice), advice
    assert advice[-1].startswith("Advice, once flash is used again: "), advice
    with pytest.raises(pymysql.err.MySQLError) as refused:
        run(connection, "SET GLOBAL terrace_flash = 33554432")
    assert "flash is not used: 8 errors" in refused.value.args[1] and "restart" in refused.value.args[1], refused.value
    flash.server.restart()
    connection = flash.connect()
    flash.churn(connection, run, 31)
    seen = status(connection, run)
    assert seen["flash_off"] == "0" and int(seen["reads_flash"]) > 0, seen
    advice = [row[1] for row in run(connection, "SELECT * FROM information_schema.TERRACE_ADVICE ORDER BY LINE")]
    assert not any("failed" in line for line in advice), advice
