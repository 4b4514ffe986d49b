"""`terrace files` from Python: the client, and the file system for fsspec, against a real daemon over a directory.

`TERRACE` names the command's binary.
"""

import json
import multiprocessing
import os
import pathlib
import subprocess
import threading
from collections.abc import Callable, Iterator

import fsspec
import pytest
from fsspec.tests import abstract

from terrace.files import Busy, Changed, Client, FilesError, Unavailable
from terrace.fsspec import TerraceFileSystem

TERRACE = os.environ["TERRACE"]


class Daemon:
    """A daemon of this test's own."""

    def __init__(self, place: pathlib.Path, *options: str) -> None:
        self.store = place / "store"
        self.socket = str(place / "socket")
        command = [TERRACE, "files", "--store", str(self.store), "--socket", self.socket, "--memory", "128M", "--requests", "16", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "serving" in line:
                return
        raise RuntimeError("the daemon did not start: " + "".join(lines))

    def put(self, path: str, body: bytes) -> None:
        """Behind the daemon's back, whole and at once."""
        file = self.store / path
        file.parent.mkdir(parents=True, exist_ok=True)
        staged = self.store.parent / "staged"
        staged.write_bytes(body)
        staged.rename(file)

    def filesystem(self) -> TerraceFileSystem:
        fs: TerraceFileSystem = fsspec.filesystem("terrace", target=f"file://{self.store}", socket=self.socket)
        return fs

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("files"), "--freshness", "always")
    yield daemon
    daemon.stop()


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Daemon]]:
    started: list[Daemon] = []

    def run(*options: str) -> Daemon:
        started.append(Daemon(tmp_path, *options))
        return started[-1]

    yield run
    for daemon in started:
        daemon.stop()


class TerraceFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, daemon: Daemon) -> TerraceFileSystem:
        return daemon.filesystem()

    @pytest.fixture
    def fs_path(self) -> str:
        return "abstract"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestAbstractGet(abstract.AbstractGetTests, TerraceFixtures):
    pass


class TestAbstractPut(abstract.AbstractPutTests, TerraceFixtures):
    pass


class TestAbstractCopy(abstract.AbstractCopyTests, TerraceFixtures):
    pass


class TestAbstractOpen(abstract.AbstractOpenTests, TerraceFixtures):
    pass


class TestAbstractPipe(abstract.AbstractPipeTests, TerraceFixtures):
    pass


def test_files_are_read_whole_in_ranges_and_in_batches(daemon: Daemon) -> None:
    bodies = {f"many/{i}": os.urandom(100 * i) for i in range(250)}
    bodies["many/large"] = os.urandom(20 << 20)
    for path, body in bodies.items():
        daemon.put(path, body)
    fs = daemon.filesystem()
    assert fs.cat(list(bodies)) == bodies
    assert fs.cat("many/2*") == {path: body for path, body in bodies.items() if path.startswith("many/2")}
    large = bodies["many/large"]
    assert fs.cat_file("many/large") == large
    assert fs.cat_file("many/large", 8 << 20, (8 << 20) + 10) == large[8 << 20 : (8 << 20) + 10]
    assert fs.cat_file("many/large", -5) == large[-5:]
    assert fs.info("many/large")["size"] == len(large)
    assert fs.find("many") == sorted(bodies)
    assert {entry["name"]: entry["type"] for entry in fs.ls("")}["many"] == "directory"
    with fs.open("terrace://many/large") as file:
        file.seek(-7, 2)
        assert file.read() == large[-7:]
        file.seek(100)
        assert file.read(50) == large[100:150]
    with pytest.raises(FileNotFoundError):
        fs.cat_file("many/none")
    with pytest.raises(FileNotFoundError):
        fs.cat(["many/1", "many/none"])
    assert set(fs.cat(["many/1", "many/none"], on_error="omit")) == {"many/1"}


def test_a_written_file_is_in_the_store_when_it_is_closed(daemon: Daemon) -> None:
    fs = daemon.filesystem()
    for size in (0, 10, 6 << 20, 20 << 20):
        body = os.urandom(size)
        with fs.open("written/file", "wb") as file:
            for at in range(0, size, 1 << 20):
                file.write(body[at : at + (1 << 20)])
        assert (daemon.store / "written/file").read_bytes() == body
        assert fs.cat_file("written/file") == body
    with pytest.raises(FileExistsError):
        fs.pipe_file("written/file", b"other", mode="create")
    fs.rm("written", recursive=True)
    assert not fs.exists("written/file")


def test_an_aborted_write_leaves_the_file_unchanged(daemon: Daemon) -> None:
    fs = daemon.filesystem()
    fs.pipe_file("kept", b"before")

    def pieces() -> Iterator[bytes]:
        yield b"x" * (20 << 20)
        raise RuntimeError("the writer fails")

    with Client(daemon.socket) as client:
        with pytest.raises(RuntimeError):
            client.write("kept", pieces())
    assert fs.cat_file("kept") == b"before"


def test_times_of_many_files_take_one_listing(start: Callable[..., Daemon]) -> None:
    daemon = start("--freshness", "immutable")
    for i in range(50):
        daemon.put(f"times/{i}", b"x")
    fs = daemon.filesystem()
    paths = fs.find("times")
    fs.cat(paths)
    before = json.loads(fs.client.status())["store_requests"]
    for path in paths:
        assert fs.modified(path).timestamp() == pytest.approx((daemon.store / path).stat().st_mtime, abs=0.01)
    # More than one if the machine is slow, and fewer than one a file.
    assert json.loads(fs.client.status())["store_requests"] - before < 25
    fs.pipe_file("times/7", b"longer")
    assert fs.modified("times/7").timestamp() == pytest.approx((daemon.store / "times/7").stat().st_mtime, abs=0.01)


def test_a_transaction_is_visible_whole_at_its_end_or_not_at_all(start: Callable[..., Daemon], tmp_path: pathlib.Path) -> None:
    options = ("--freshness", "always", "--flash", f"{tmp_path}/flash:512M")
    daemon = start(*options)
    fs = daemon.filesystem()
    bodies = {f"t/{i}": os.urandom(size) for i, size in enumerate((0, 10, 100_000, 6 << 20, *[5000] * 50))}
    daemon.put("t/1", b"before")
    with pytest.raises(RuntimeError), fs.transaction:
        for path, body in bodies.items():
            fs.pipe_file(path, body)
        raise RuntimeError("the work fails")
    assert fs.find("t") == ["t/1"] and fs.cat_file("t/1") == b"before"
    with fs.transaction:
        for path, body in bodies.items():
            with fs.open(path, "wb") as file:
                file.write(body)
        assert [path.name for path in (daemon.store / "t").iterdir()] == ["1"]
        daemon.process.kill()
        daemon.process.wait()
        daemon = start(*options)
    assert fs.cat(list(bodies)) == bodies
    with pytest.raises(FileExistsError), fs.transaction:
        fs.pipe_file("t/new", b"new")
        with Client(daemon.socket) as other:
            with fs.open("t/other", "xb") as file:
                file.write(b"mine")
            other.write("t/other", [b"theirs"])
    assert not fs.exists("t/new") and fs.cat_file("t/other") == b"theirs"
    assert json.loads(fs.client.status())["groups"] == 0


def test_an_open_file_stays_at_its_version(daemon: Daemon) -> None:
    fs = daemon.filesystem()
    daemon.put("changing", b"a" * 1000)
    with fs.open("changing") as file:
        assert file.read(10) == b"a" * 10
        daemon.put("changing", b"b" * 1000)
        with pytest.raises(Changed):
            file.read(10)
    assert fs.cat_file("changing") == b"b" * 1000


def test_sixteen_readers_get_whole_files(daemon: Daemon) -> None:
    bodies = {f"shared/{i}": os.urandom(10_000) for i in range(100)}
    for path, body in bodies.items():
        daemon.put(path, body)
    fs = daemon.filesystem()
    wrong: list[object] = []

    def read(turn: int) -> None:
        try:
            paths = list(bodies)[turn * 5 :] + list(bodies)[: turn * 5]
            wrong.extend(path for path in paths if fs.cat_file(path) != bodies[path])
            wrong.extend(path for path, body in fs.cat(paths).items() if body != bodies[path])
        except OSError as error:
            wrong.append(error)

    readers = [threading.Thread(target=read, args=(turn,)) for turn in range(16)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong


def _read_in_child(socket: str, path: str) -> bytes:
    fs = fsspec.filesystem("terrace", socket=socket)
    data: bytes = fs.cat_file(path)
    return data


def test_other_processes_share_what_is_cached(start: Callable[..., Daemon]) -> None:
    daemon = start("--freshness", "immutable")
    daemon.put("f", b"x" * 50_000)
    fs = fsspec.filesystem("terrace", socket=daemon.socket)
    assert fs.cat_file("f") == b"x" * 50_000
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.starmap(_read_in_child, [(daemon.socket, "f")] * 8) == [b"x" * 50_000] * 8
    assert json.loads(fs.client.status())["store_requests"] == 1


def test_a_client_that_is_killed_leaves_no_lease(start: Callable[..., Daemon]) -> None:
    daemon = start("--freshness", "immutable")
    daemon.put("f", b"x" * 50_000)
    holder = (
        "import sys, terrace.files\n"
        "client = terrace.files.Client(sys.argv[1])\n"
        "client.read('f')\n"  # The release is sent with the next request, so this process holds the lease.
        "print('holds', flush=True)\n"
        "input()\n"
    )
    child = subprocess.Popen(["python3", "-c", holder, daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "holds\n"
    with Client(daemon.socket) as client:
        assert json.loads(client.status())["blocks_not_evictable"] == 1
        child.kill()
        child.wait()
        while json.loads(client.status())["blocks_not_evictable"]:
            pass


def test_the_command_lists_warms_and_evicts(start: Callable[..., Daemon]) -> None:
    daemon = start("--freshness", "immutable")
    for i in range(20):
        daemon.put(f"dir/{i}", b"x" * 1000)

    def ask(*args: str) -> str:
        command = [TERRACE, "files", args[0], "--socket", daemon.socket, *args[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "dir/" in ask("ls")
    assert len(ask("ls", "dir").splitlines()) == 20
    assert ask("warm", "dir").startswith("20 files, 20000 bytes; 0 failures")
    assert json.loads(ask("status"))["blocks"] == 20
    assert ask("evict", "dir/1") == "11 files evicted\n"
    assert json.loads(ask("status"))["blocks"] == 9


def test_what_was_prefetched_is_read_without_a_request_to_the_store(start: Callable[..., Daemon]) -> None:
    daemon = start("--freshness", "immutable")
    bodies = {f"small/{i}": os.urandom(500 + i) for i in range(300)}
    bodies["long"] = os.urandom(20 << 20)
    for path, body in bodies.items():
        daemon.put(path, body)
    fs = daemon.filesystem()
    # One that is not there, and an empty list, are no errors.
    assert fs.prefetch(["none", *bodies]) == 301
    assert fs.prefetch([]) == 0
    status = json.loads(fs.client.status())
    # One a file, one for each further block of the long one, and those that found nothing.
    assert 303 <= status["store_requests"] < 310
    assert fs.cat(list(bodies)) == bodies
    assert json.loads(fs.client.status())["store_requests"] == status["store_requests"]
    assert fs.prefetch(["terrace://small/1", "small/2"]) == 2


def test_a_wrong_target_is_refused_with_both_names(daemon: Daemon) -> None:
    fs = fsspec.filesystem("terrace", target="s3://elsewhere", socket=daemon.socket)
    with pytest.raises(FilesError, match="not s3://elsewhere"):
        fs.ls("")
    assert issubclass(Busy, OSError) and issubclass(Unavailable, OSError)
