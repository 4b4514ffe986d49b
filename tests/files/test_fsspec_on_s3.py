"""fsspec's own suite for file systems, on `terrace files` over an S3 server: versitygw, as the server of this repository's tests answers 500 when it is asked
for an object where it has a folder."""

import asyncio
import os

import fsspec
import pytest
from fsspec.tests import abstract
from servers import Endpoint, Server


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    if not os.environ.get("VERSITYGW"):
        pytest.skip("versitygw cannot be built here: scripts/versitygw.sh says why")
    place = tmp_path_factory.mktemp("fsspec")
    server = Server("versitygw", place / "buckets")
    server.client().create_bucket(Bucket="bucket")
    endpoint = Endpoint(place, server.url, "bucket", "--freshness", "always")
    yield endpoint
    endpoint.stop()
    server.stop()


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, endpoint):
        return fsspec.filesystem("terrace", target="s3://bucket", socket=endpoint.socket)

    @pytest.fixture
    def fs_path(self):
        return "abstract"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


def test_coroutines_work_over_s3(endpoint):
    fs = fsspec.filesystem("terrace", socket=endpoint.socket, asynchronous=True, skip_instance_cache=True)
    bodies = {f"coroutines/{i}": bytes([i]) * 1000 for i in range(50)}

    async def work():
        await asyncio.gather(*(fs._pipe_file(path, body) for path, body in bodies.items()))
        assert await asyncio.gather(*(fs._cat_file(path) for path in bodies)) == list(bodies.values())
        assert await fs._find("coroutines") == sorted(bodies)

    asyncio.run(work())
