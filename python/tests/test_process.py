"""Closing, crashes, forks, threads and errors."""

import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import terrace
from conftest import SMALL


def run(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("durability", ["wait", "written"])
def test_acknowledged_commits_survive_kill_9(path: pathlib.Path, durability: str) -> None:
    program = """if True:
        import sys, terrace
        db = terrace.open(sys.argv[1], memory="16M", log="4M")
        tree = db.tree("t")
        for n in range(1 << 30):
            with db.transaction(durability=sys.argv[2]) as txn:
                txn[tree][b"%08d" % n] = b"%d" % n
                txn[tree][b"last"] = b"%d" % n
            print(n, flush=True)
    """
    process = run(program, path, durability)
    assert process.stdout
    for line in process.stdout:
        if int(line) == 200:
            process.kill()
            break
    acknowledged = max([200, *map(int, process.stdout.read().split())])
    assert process.wait() == -9
    with terrace.open(path, **SMALL) as db:
        tree = db.tree("t")
        last = int(tree[b"last"])
        assert last >= acknowledged
        assert [key for key, _ in tree.range(b"0", b":")] == [b"%08d" % n for n in range(last + 1)], "whole, and without a gap"


def test_an_interpreter_that_ends_closes_its_databases(path: pathlib.Path) -> None:
    program = """if True:
        import sys, terrace
        tree = terrace.open(sys.argv[1], memory="16M", log="4M").tree("t")
        txn = None
        db = terrace.open(sys.argv[1] + "2", memory="16M", log="4M")
        db.write(db.batch())
        with db.batch(durability="none") as batch:
            batch.put(db.tree("t"), b"a", b"1")
    """
    assert run(program, path).wait() == 0
    with terrace.open(f"{path}2", **SMALL) as db:
        assert db.tree("t")[b"a"] == b"1"


def test_a_closed_database_refuses_every_call(path: pathlib.Path) -> None:
    db = terrace.open(path, **SMALL)
    tree, txn, snapshot, batch = db.tree("t"), db.transaction(), db.snapshot(), db.batch()
    batch.put(tree, b"b", b"")
    tree[b"a"] = b"1"
    pairs, in_txn = tree.items(), txn[tree]
    in_txn[b"rolled back"] = b""
    db.close()
    db.close()
    calls: list[Callable[[], object]] = [
        lambda: tree[b"a"], lambda: next(pairs), lambda: in_txn.get(b"a"), lambda: snapshot[tree], lambda: db.write(batch),
        lambda: db.tree("t"), db.trees, db.transaction, db.sync, txn.commit, lambda: batch.put(tree, b"a", b""), lambda: len(batch),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(terrace.Invalid, match="closed"):
            call()
            print("call", number)
    # All handles still exist, and the directory is free.
    with terrace.open(path, **SMALL) as db:
        assert list(db.tree("t")) == [b"a"]


def test_close_waits_for_calls_that_other_threads_are_in(path: pathlib.Path) -> None:
    db = terrace.open(path, **SMALL)
    tree, outcomes = db.tree("t"), []
    started = threading.Barrier(5)

    def write(name: int) -> None:
        started.wait()
        try:
            for n in range(1 << 30):
                tree[b"%d/%d" % (name, n)] = b""
                outcomes.append(b"%d/%d" % (name, n))
        except terrace.Invalid as error:
            assert "closed" in str(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    while len(outcomes) < 20:
        pass
    db.close()
    for thread in threads:
        thread.join()
    with terrace.open(path, **SMALL) as db:
        assert sorted(db.tree("t")) == sorted(outcomes), "each call either returned and is durable, or failed"


def test_a_forked_child_gets_an_error_and_harms_nothing(path: pathlib.Path) -> None:
    db = terrace.open(path, **SMALL)
    tree, txn = db.tree("t"), db.transaction()
    tree[b"a"] = b"1"
    txn[tree][b"b"] = b"2"
    pairs = iter(tree)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (lambda: tree[b"a"], lambda: next(pairs), txn.commit, db.close, lambda: db.tree("u"), lambda: txn.__exit__(None, None, None)):
                try:
                    call()
                except terrace.Invalid as error:
                    refused += "forked" in str(error)
            try:
                terrace.open(path, **SMALL)
            except terrace.Busy:
                refused += 1
            # A database of its own works.
            with terrace.open(f"{path}-child", **SMALL) as own:
                own.tree("t")[b"a"] = b"1"
            del tree, txn, db, pairs
            code = 0 if refused == 7 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    txn.commit()
    assert list(tree) == [b"a", b"b"]
    db.close()
    with terrace.open(path, **SMALL) as db:
        assert list(db.tree("t")) == [b"a", b"b"]


def test_errors_have_kinds_and_texts(path: pathlib.Path) -> None:
    with pytest.raises(terrace.Invalid, match="memery"):
        terrace.open(path, memery="1G")
    with pytest.raises(TypeError, match="setting memory is text, a number or a path, not float"):
        terrace.open(path, memory=1.5)  # type: ignore[arg-type]
    with terrace.open(path, **SMALL) as db:
        with pytest.raises(terrace.Busy):
            terrace.open(path)
        with pytest.raises(terrace.NotFound):
            db.drop_tree("none")
        assert db.find_tree("none") is None
        tree = db.tree("t")
        with pytest.raises(terrace.Busy):
            db.drop_tree("t")
        del tree
        db.drop_tree("t")
        assert db.trees() == []
        with pytest.raises(terrace.Invalid):
            db.tree("t").put(b"k" * 4000, b"")
        with pytest.raises(ValueError, match="durability is"):
            db.transaction(durability="often")  # type: ignore[arg-type]
        with pytest.raises(terrace.Invalid, match="needs a transaction"):
            db.tree("t").get_for_update(b"a")
        with terrace.open(f"{path}-2", **SMALL) as other:
            with pytest.raises(terrace.Invalid, match="another instance"):
                with db.transaction() as txn:
                    txn[other.tree("t")][b"a"] = b""
            with pytest.raises(terrace.Invalid, match="another database"):
                db.write(other.batch())


def test_colder_tiers_are_directories_given_by_name(tmp_path: pathlib.Path) -> None:
    settings: dict[str, str | pathlib.Path] = {"flash_path": tmp_path / "flash", "flash": "16M", "object": str(tmp_path / "store")}
    with terrace.open(tmp_path / "volume", memory="32M", log="8M", **settings) as db:
        db.tree("t")[b"a"] = b"x" * (1 << 20)
        assert db.tree("t")[b"a"] == b"x" * (1 << 20) and db.status()


def test_many_iterators_leave_no_handles_behind(db: terrace.Database, tree: terrace.Tree) -> None:
    tree[b"a"] = b"1"
    for _ in range(5000):
        assert next(iter(tree)) == b"a"
    with db.transaction() as txn:
        for _ in range(5000):
            assert txn[tree][b"a"] == b"1"
