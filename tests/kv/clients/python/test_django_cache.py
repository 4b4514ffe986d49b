"""Django's cache on `terrace kv` (django.core.cache.backends.redis)."""

import pytest
from test_redis_py import start

django_conf = pytest.importorskip("django.conf")


@pytest.fixture(scope="module")
def cache():
    process, port, _ = start()
    location = f"redis://127.0.0.1:{port}/3"
    backend = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": location}
    django_conf.settings.configure(CACHES={"default": backend, "prefixed": {**backend, "KEY_PREFIX": "site"}})
    from django.core.cache import caches

    yield caches
    process.kill()
    process.wait()


def test_values_of_any_kind_come_back(cache):
    values = {"int": 1, "text": "a", "none": None, "list": [1, {"a": (2, 3)}], "bytes": b"\0\r\n", "large": "x" * 5_000_000}
    assert cache["default"].set_many(values) == []
    assert cache["default"].get_many(values) == values
    assert cache["default"].get("missing", "other") == "other"
    assert cache["default"].get("none", "other") is None
    cache["default"].delete_many(values)
    assert cache["default"].get_many(values) == {}


def test_add_sets_only_what_is_missing(cache):
    assert cache["default"].add("once", 1) and not cache["default"].add("once", 2)
    assert cache["default"].get("once") == 1
    assert cache["default"].get_or_set("made", lambda: 7) == 7 and cache["default"].has_key("made")


def test_counters_change_in_place(cache):
    cache["default"].set("count", 10)
    assert cache["default"].incr("count", 5) == 15 and cache["default"].decr("count") == 14
    with pytest.raises(ValueError):
        cache["default"].incr("no such count")


def test_timeouts_are_set_touched_and_end(cache):
    cache["default"].set("brief", 1, timeout=0)
    assert cache["default"].get("brief") is None
    cache["default"].set("kept", 1, timeout=None)
    assert cache["default"].touch("kept", 100) and not cache["default"].touch("missing", 100)
    assert cache["default"].get("kept") == 1


def test_versions_and_prefixes_keep_keys_apart(cache):
    cache["default"].set("key", "one", version=1)
    cache["default"].set("key", "two", version=2)
    cache["prefixed"].set("key", "site")
    assert [cache["default"].get("key", version=version) for version in (1, 2)] == ["one", "two"]
    assert cache["default"].incr_version("key") == 2
    assert cache["prefixed"].get("key") == "site"
    cache["default"].clear()
    assert cache["prefixed"].get("key") is None
