import random
import threading

import pytest

import terrace


def test_a_transaction_commits_at_the_end_and_rolls_back_after_an_exception(db: terrace.Database, tree: terrace.Tree) -> None:
    other = db.tree("other")
    with db.transaction() as txn:
        txn[tree][b"a"] = b"1"
        txn[other][b"b"] = b"2"
        assert b"a" not in tree and txn[tree][b"a"] == b"1"
    assert tree[b"a"] == b"1" and other[b"b"] == b"2"
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as txn:
            txn[tree][b"a"] = b"lost"
            1 / 0
    assert tree[b"a"] == b"1"


def test_a_rollback_to_a_savepoint_undoes_later_changes(db: terrace.Database, tree: terrace.Tree) -> None:
    with db.transaction() as txn:
        txn[tree][b"kept"] = b""
        savepoint = txn.savepoint()
        txn[tree][b"undone"] = b""
        txn.rollback_to(savepoint)
        txn[tree][b"later"] = b""
    assert list(tree) == [b"kept", b"later"]
    with db.transaction() as txn, pytest.raises(terrace.Invalid, match="of another transaction"):
        txn.rollback_to(savepoint)


def test_a_write_to_a_key_changed_since_the_snapshot_is_a_conflict(db: terrace.Database, tree: terrace.Tree) -> None:
    with pytest.raises(terrace.Conflict) as conflict:
        with db.transaction() as txn:
            txn[tree].get(b"a")
            tree[b"a"] = b"others"
            txn[tree][b"a"] = b"mine"
    assert isinstance(conflict.value, terrace.Error) and tree[b"a"] == b"others"
    txn = db.transaction()
    txn[tree].get(b"a")
    tree[b"a"] = b"again"
    with pytest.raises(terrace.Conflict):
        txn[tree][b"a"] = b"mine"
    # A caller that does not heed it cannot commit.
    with pytest.raises(terrace.Conflict):
        txn.commit()


def test_transact_runs_again_after_a_conflict(db: terrace.Database, tree: terrace.Tree) -> None:
    tries = []

    def work(txn: terrace.Transaction) -> str:
        value = txn[tree].get(b"a", b"")
        tries.append(value)
        if len(tries) < 3:
            tree[b"a"] = value + b"x"
        txn[tree][b"a"] = value + b"!"
        return "done"

    assert db.transact(work) == "done"
    assert tries == [b"", b"x", b"xx"] and tree[b"a"] == b"xx!"

    def never(txn: terrace.Transaction) -> None:
        tries.append(b"")
        raise terrace.Conflict("planted")

    tries.clear()
    with pytest.raises(terrace.Conflict, match="planted"):
        db.transact(never, tries=4)
    assert len(tries) == 4
    with pytest.raises(KeyError):
        db.transact(lambda txn: txn[tree][b"none"])


@pytest.mark.parametrize("serializable", [False, True])
def test_no_transfer_between_accounts_is_lost(db: terrace.Database, tree: terrace.Tree, serializable: bool) -> None:
    for n in range(8):
        tree[b"%d" % n] = b"100"
    failed = []

    def transfers(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            one, other = rng.sample(range(8), 2)

            def work(txn: terrace.Transaction) -> None:
                accounts = txn[tree]
                accounts[b"%d" % one] = b"%d" % (int(accounts[b"%d" % one]) - 1)
                accounts[b"%d" % other] = b"%d" % (int(accounts[b"%d" % other]) + 1)

            db.transact(work, serializable=serializable, durability="none", tries=1000)

    def run(seed: int) -> None:
        try:
            transfers(seed)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with db.snapshot() as snapshot:
            assert sum(int(value) for value in snapshot[tree].values()) == 800
    for thread in threads:
        thread.join()
    assert failed == [] and sum(int(value) for value in tree.values()) == 800


def test_a_waiting_transaction_lets_other_threads_run(db: terrace.Database, tree: terrace.Tree) -> None:
    """The other thread ends the wait: if the waiting one kept the GIL, the wait would time out."""
    tree[b"a"] = b"1"
    holder = db.transaction()
    assert holder[tree].get_for_update(b"a") == b"1"
    ready, outcome = threading.Event(), []

    def wait() -> None:
        with db.transaction(serializable=True) as txn:
            ready.set()
            outcome.append(txn[tree].get_for_update(b"a"))

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    while db.status()["row_lock_current_waits"] == 0 and thread.is_alive():
        pass
    holder[tree][b"a"] = b"2"
    holder.commit()
    thread.join()
    assert outcome == [b"2"]


def test_snapshots_keep_their_state_and_are_read_only(db: terrace.Database, tree: terrace.Tree) -> None:
    tree[b"a"] = b"1"
    with db.snapshot() as snapshot:
        then = snapshot[tree]
        tree[b"a"] = b"2"
        del_later = tree.insert(b"b", b"")
        assert del_later and then[b"a"] == b"1" and list(then.items()) == [(b"a", b"1")]
        with pytest.raises(terrace.Invalid, match="read-only"):
            then[b"a"] = b"3"
    with pytest.raises(terrace.Invalid, match="snapshot is closed"):
        snapshot[tree]


def test_a_batch_is_written_whole_or_not(db: terrace.Database, tree: terrace.Tree) -> None:
    other = db.tree("other")
    tree[b"old"] = b""
    with db.batch() as batch:
        batch.delete_range(tree)
        batch.put(tree, b"a", b"1")
        batch.put(other, b"b", b"2")
        batch.delete(other, b"none")
        assert len(batch) == 4 and b"a" not in tree
    assert list(tree) == [b"a"] and list(other) == [b"b"] and len(batch) == 0
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch.delete(tree, b"a")
            1 / 0
    assert list(tree) == [b"a"]
    with db.transaction() as txn, pytest.raises(terrace.Invalid, match="use the tree itself"):
        batch.put(txn[tree], b"a", b"")


def test_calls_after_the_end_of_a_transaction_fail(db: terrace.Database, tree: terrace.Tree) -> None:
    tree[b"a"] = b"1"
    txn = db.transaction()
    in_txn, pairs = txn[tree], txn[tree].items()
    in_txn[b"b"] = b"2"
    assert next(pairs) == (b"a", b"1")
    txn.commit()
    for call in (lambda: next(pairs), lambda: in_txn.get(b"a"), lambda: in_txn.put(b"a", b""), txn.commit, txn.savepoint):
        with pytest.raises(terrace.Invalid, match="has ended"):
            call()
    txn.rollback()  # does nothing
    assert list(tree) == [b"a", b"b"]
