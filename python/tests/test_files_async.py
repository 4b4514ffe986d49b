"""`terrace files` from coroutines: the same answers as from the ordinary methods, and an event loop that never waits for the daemon."""

import asyncio
import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from test_files import Daemon

from terrace.files import Changed
from terrace.fsspec import TerraceFileSystem


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, "--freshness", "ttl=1h")
    yield daemon
    daemon.stop()


def filesystem(daemon: Daemon) -> TerraceFileSystem:
    fs: TerraceFileSystem = fsspec.filesystem("terrace", socket=daemon.socket, asynchronous=True, skip_instance_cache=True)
    assert fs.async_impl and fs.asynchronous
    return fs


def test_coroutines_do_what_the_methods_do(daemon: Daemon) -> None:
    fs = filesystem(daemon)
    bodies = {f"d/{i}": os.urandom(700 * i) for i in range(60)} | {"d/sub/large": os.urandom(20 << 20)}

    async def work() -> None:
        await asyncio.gather(*(fs._pipe_file(path, body) for path, body in bodies.items()))
        for _ in range(2):  # From the store, and from the shared memory.
            assert await asyncio.gather(*(fs._cat_file(path) for path in bodies)) == list(bodies.values())
        assert await fs._cat(list(bodies)) == bodies
        large = bodies["d/sub/large"]
        assert await fs._cat_file("d/sub/large", 8_388_600, 8_388_620) == large[8_388_600:8_388_620]
        assert await fs._cat_file("d/sub/large", -7) == large[-7:]
        assert await fs._cat_file("d/59", 10, 20) == bodies["d/59"][10:20]
        assert await fs._cat_file("d/59", 10**9) == b""
        ranges: list[Any] = await fs._cat_ranges(["d/1", "d/2", "d/none"], [1, 2, 3], [5, None, 9])
        assert ranges[:2] == [bodies["d/1"][1:5], bodies["d/2"][2:]] and isinstance(ranges[2], FileNotFoundError)
        assert sorted(await fs._find("d")) == sorted(bodies) == fs.find("d")
        assert await fs._glob("d/1?") == fs.glob("d/1?") == [f"d/1{i}" for i in range(10)]
        assert (await fs._info("d/5"))["size"] == 3500 and await fs._isdir("d/sub") and not await fs._exists("d/none")
        assert {entry["name"] for entry in await fs._ls("d")} == {entry["name"] for entry in fs.ls("d")}
        with pytest.raises(FileNotFoundError):
            await fs._cat_file("d/none")
        await fs._cp_file("d/3", "copy/3")
        await fs._copy(["d/1", "d/2"], ["copy/1", "copy/2"])
        assert await fs._cat("copy/", recursive=True) == {f"copy/{i}": bodies[f"d/{i}"] for i in (1, 2, 3)}
        await fs._rm("copy", recursive=True)
        await fs._rm_file("d/0")
        assert not await fs._find("copy") and not await fs._exists("d/0")

    asyncio.run(work())


def test_files_are_put_and_got_from_local_ones(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    fs, local = filesystem(daemon), tmp_path / "local"
    local.mkdir()
    for i in range(5):
        (local / str(i)).write_bytes(os.urandom(1000))

    async def work() -> None:
        await fs._put(f"{local}/", "up/", recursive=True)
        await fs._get("up/", str(tmp_path / "back"), recursive=True)

    asyncio.run(work())
    assert all((tmp_path / "back" / str(i)).read_bytes() == (local / str(i)).read_bytes() for i in range(5))


def test_the_event_loop_goes_on_while_the_daemon_does_not_answer(daemon: Daemon) -> None:
    fs = filesystem(daemon)
    daemon.put("cold", b"cold")
    daemon.put("warm", b"warm")

    async def work() -> None:
        assert await fs._cat_file("warm") == b"warm"
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            waiting = asyncio.gather(fs._cat_file("cold"), fs._info("cold"), fs._ls(""), fs._pipe_file("new", b"new"))
            for _ in range(1000):
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            assert not waiting.done()
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        cold, info, _, _ = await waiting
        assert cold == b"cold" and info["size"] == 4
        assert await fs._cat_file("new") == b"new"

    asyncio.run(work())


def test_what_is_cached_is_read_without_a_question(daemon: Daemon) -> None:
    fs = filesystem(daemon)
    for i in range(50):
        daemon.put(f"f/{i}", bytes([i]) * 1000)

    async def work() -> None:
        await asyncio.gather(*(fs._cat_file(f"f/{i}") for i in range(50)))
        daemon.process.send_signal(signal.SIGSTOP)
        try:  # As long as the daemon vouches for what it shares.
            first = fs._copied("f/7", 0, None)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert first is None or first == bytes([7]) * 1000
        while fs._copied("f/7", 0, None) is None:
            await asyncio.sleep(0.01)
        before = json.loads(fs.client.status())["store_requests"]
        for _ in range(10):
            assert await asyncio.gather(*(fs._cat_file(f"f/{i}", 10, 20) for i in range(50))) == [bytes([i]) * 10 for i in range(50)]
        assert json.loads(fs.client.status())["store_requests"] == before

    asyncio.run(work())


def test_coroutines_go_on_when_the_daemon_was_started_again(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    fs = filesystem(daemon)
    daemon.put("f", b"before")

    async def work() -> None:
        assert await fs._cat_file("f") == b"before"
        daemon.process.kill()
        daemon.process.wait()
        daemon.put("f", b"after")
        daemon.process = Daemon(tmp_path, "--freshness", "ttl=1h").process
        assert await fs._cat_file("f") == await fs._cat_file("f") == b"after"
        while fs._copied("f", 0, None) != b"after":  # The event loop looks at the new daemon's memory.
            await fs._cat_file("f")

    asyncio.run(work())


def test_an_open_file_stays_at_its_version(daemon: Daemon) -> None:
    fs = filesystem(daemon)
    daemon.put("f", b"a" * 1000)

    async def work() -> None:
        file = await fs.open_async("f")
        async with file:
            assert await file.read(10) == b"a" * 10
            file.seek(990)
            assert await file.read() == b"a" * 10
            await fs._pipe_file("f", b"b" * 1000)
            file.seek(0)
            with pytest.raises(Changed):
                await file.read(10)
        with pytest.raises(FileNotFoundError):
            await fs.open_async("none")

    asyncio.run(work())


def test_many_coroutines_and_threads_share_a_file_system(daemon: Daemon) -> None:
    fs = filesystem(daemon)
    for i in range(40):
        daemon.put(f"f/{i}", bytes([i]) * (i * 5000))

    async def read(times: int) -> None:
        for _ in range(times):
            assert await asyncio.gather(*(fs._cat_file(f"f/{i}") for i in range(40))) == [bytes([i]) * (i * 5000) for i in range(40)]

    async def work() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, read(5)) for _ in range(4)), *(read(5) for _ in range(4)))

    asyncio.run(work())
