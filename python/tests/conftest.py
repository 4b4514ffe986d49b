import pathlib
from collections.abc import Iterator

import pytest

import terrace

SMALL: dict[str, int | str] = {"memory": "16M", "log": "4M", "lock_wait_timeout_ms": 1000}


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: pathlib.Path) -> Iterator[terrace.Database]:
    with terrace.open(path, **SMALL) as db:
        yield db


@pytest.fixture
def tree(db: terrace.Database) -> terrace.Tree:
    return db.tree("t")
