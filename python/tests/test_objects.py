"""Memory objects: made by one process, read by another where they are."""

import multiprocessing
import pathlib
import pickle
from collections.abc import Iterator

import pytest
from test_files import Daemon

from terrace.files import Busy, Client
from terrace.objects import Objects


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("objects")
    daemon = Daemon(place, "--flash", f"{place}/flash:256M", "--objects", "16M")
    yield daemon
    daemon.stop()


def objects(daemon: Daemon) -> Objects:
    return Objects(Client(daemon.socket))


def read_one(socket: str, name: str, results: "multiprocessing.Queue[bytes]") -> None:
    with Objects(Client(socket)).get(name, timeout=60) as found:
        results.put(bytes(found.data[:10]) + str(len(found.data)).encode())


def test_another_process_waits_for_an_object_and_reads_it(daemon: Daemon) -> None:
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[bytes] = context.Queue()
    readers = [context.Process(target=read_one, args=(daemon.socket, "stage/1", results)) for _ in range(3)]
    for reader in readers:
        reader.start()
    mine = objects(daemon)
    with mine.create("stage/1", 1_000_000) as new:
        new.data[:] = b"0123456789" * 100_000
    assert [results.get() for _ in readers] == [b"01234567891000000"] * 3
    for reader in readers:
        reader.join()
    mine.delete("stage/1")
    with pytest.raises(FileNotFoundError):
        mine.get("stage/1")


def test_bytes_stay_while_they_are_used_and_a_reader_cannot_write_them(daemon: Daemon) -> None:
    mine = objects(daemon)
    with mine.create("kept", 4) as new:
        new.data[:] = b"abcd"
    found = mine.get("kept")
    with pytest.raises(TypeError):
        found.data[0] = 1
    part = pickle.PickleBuffer(found.data)
    with pytest.raises(BufferError):
        found.release()
    mine.delete("kept")
    assert bytes(part) == b"abcd"
    part.release()
    found.release()
    found.release()


def test_an_object_that_is_given_up_does_not_exist(daemon: Daemon) -> None:
    mine = objects(daemon)
    with pytest.raises(ZeroDivisionError), mine.create("never", 100) as new:
        new.data[0] = 1 // 0
    with pytest.raises(FileNotFoundError):
        mine.get("never", timeout=0.01)
    with mine.create("never", 0):
        pass
    with pytest.raises(FileExistsError):
        mine.create("never", 1)
    assert len(mine.get("never").data) == 0
    mine.delete("never")


def test_large_objects_are_on_flash_and_the_limit_holds(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    mine = objects(daemon)
    size = 9 << 20
    with mine.create("large", size) as new:
        new.data[:5] = b"large"
        new.data[-1] = 7
    with mine.get("large") as found:
        assert bytes(found.data[:5]) == b"large" and found.data[size - 1] == 7
    held = []
    with pytest.raises(Busy):
        for number in range(100):
            held.append(mine.create(f"held/{number}", 4 << 20, at_once=True))
    assert held
    for new in held:
        new.abandon()
    mine.delete("large")
