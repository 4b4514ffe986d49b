"""Trees behave like ordered dictionaries."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import terrace


def test_a_tree_is_used_as_a_dictionary(tree: terrace.Tree) -> None:
    tree[b"a"] = b"1"
    assert tree[b"a"] == b"1" and b"a" in tree and b"b" not in tree
    assert tree.get(b"b") is None and tree.get(b"b", 7) == 7 and tree.get(b"a", 7) == b"1"
    with pytest.raises(KeyError) as missing:
        tree[b"b"]
    assert missing.value.args == (b"b",)
    del tree[b"a"]
    with pytest.raises(KeyError):
        del tree[b"a"]
    assert tree.insert(b"a", b"1") and not tree.insert(b"a", b"2")
    assert tree.delete(b"a") and not tree.delete(b"a")
    tree[bytearray(b"x")] = memoryview(b"y")
    assert tree.multi_get([b"x", b"none", b"x"]) == [b"y", None, b"y"]
    tree[b""] = b""
    assert tree[b""] == b"" and tree


def keys(pairs: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [key for key, _ in pairs]


def test_ranges_and_prefixes_go_both_ways(tree: terrace.Tree) -> None:
    for key in (b"a", b"b", b"c/1", b"c/2", b"d"):
        tree[key] = key.upper()
    assert list(tree) == list(tree.keys()) == [b"a", b"b", b"c/1", b"c/2", b"d"]
    assert list(reversed(tree)) == list(tree.keys(reverse=True)) == [b"d", b"c/2", b"c/1", b"b", b"a"]
    assert list(tree.values()) == [b"A", b"B", b"C/1", b"C/2", b"D"]
    assert dict(tree.items())[b"c/1"] == b"C/1"
    assert keys(tree.range(b"b", b"d")) == [b"b", b"c/1", b"c/2"]
    assert keys(tree.range(b"b", b"d", reverse=True, include_high=True)) == [b"d", b"c/2", b"c/1", b"b"]
    assert keys(tree.range(b"b", include_low=False)) == [b"c/1", b"c/2", b"d"]
    assert keys(tree.range(high=b"b")) == [b"a"]
    assert keys(tree.range(b"d", b"a")) == []
    assert list(tree.prefix(b"c/")) == [(b"c/1", b"C/1"), (b"c/2", b"C/2")]
    assert keys(tree.prefix(b"c/", reverse=True)) == [b"c/2", b"c/1"]
    assert tree.delete_range(b"b", b"c/2") == 2 and list(tree) == [b"a", b"c/2", b"d"]


def test_random_changes_give_what_a_sorted_dictionary_gives(db: terrace.Database, tree: terrace.Tree) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    model: dict[bytes, bytes] = {}

    def key() -> bytes:
        return rng.randbytes(rng.randrange(3))

    for _ in range(60):
        with db.transaction(durability="none") as txn:
            in_txn = txn[tree]
            for _ in range(20):
                one, value = key(), rng.randbytes(rng.choice([0, 5, 3000]))
                what = rng.randrange(4)
                if what == 0:
                    assert in_txn.delete(one) == (model.pop(one, None) is not None)
                elif what == 1:
                    low, high = sorted([one, key()])
                    gone = [k for k in model if low <= k < high][:3]
                    if gone:
                        assert in_txn.delete_range(gone[0], gone[0] + b"\0") == 1
                        del model[gone[0]]
                else:
                    in_txn[one] = model[one] = value
            assert list(in_txn.items()) == sorted(model.items())
        low, high = sorted([key(), key()])
        for reverse in (False, True):
            expected = sorted(((k, v) for k, v in model.items() if low <= k < high), reverse=reverse)
            assert list(tree.range(low, high, reverse=reverse)) == expected


def test_iteration_sees_one_state_while_others_write(tree: terrace.Tree, db: terrace.Database) -> None:
    with db.batch(durability="none") as batch:
        for n in range(1000):
            batch.put(tree, b"%04d" % n, b"old")
    seen = []
    for key, value in tree.items():
        seen.append((key, value))
        tree_writes = db.batch(durability="none")
        tree_writes.put(tree, key, b"new")
        tree_writes.put(tree, key + b"+", b"new")
        tree_writes.delete(tree, b"%04d" % (999 - len(seen)))
        db.write(tree_writes, durability="none")
    assert seen == [(b"%04d" % n, b"old") for n in range(1000)]


def test_a_transaction_may_change_what_it_iterates_over(tree: terrace.Tree, db: terrace.Database) -> None:
    for n in range(20):
        tree[b"%02d" % n] = b"%d" % n
    with db.transaction() as txn:
        for key, value in txn[tree].items():
            txn[tree][key] = value + b"!"
    assert list(tree.values()) == [b"%d!" % n for n in range(20)]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda tree: tree.put("a", b""), "a key is bytes, not str: encode it"),
        (lambda tree: tree.put(b"a", 7), "a value is bytes, not int"),
        (lambda tree: tree.get(None), "a key is bytes, not NoneType"),
        (lambda tree: tree.prefix("a"), "a prefix is bytes, not str: encode it"),
        (lambda tree: list(tree.range(1, 2)), "a key is bytes, not int"),
        (lambda tree: tree.multi_get([b"a", "b"]), "a key is bytes, not str"),
        (lambda tree: len(tree), "has no len"),
    ],
)
def test_wrong_types_raise_an_error_that_names_them(tree: terrace.Tree, call: Callable[[Any], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call(tree)
