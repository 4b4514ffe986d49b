"""`terrace files` against what people read small files of an object store with: s3fs, fsspec's simplecache, obstore, and files on the local disk.

    files.py OUT

One S3 server (the tests', over a directory), each of whose requests takes DELAY more milliseconds (default 20). FILES files (default 2,000) of 10 KB, RUNS rounds
(default 3) in which each contender reads all of them: cold, which means that its cache is empty, and warm. Figures are files a second, medians of the rounds.
TERRACE, S3_SERVER, SITE and FILES_C name what was built: the command, the server, the Python module's directory, the C program.
"""

import asyncio
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.environ["SITE"])
import fsspec  # noqa: E402
import obstore  # noqa: E402
import report  # noqa: E402

FILES = int(os.environ.get("FILES") or 2000)
RUNS = int(os.environ.get("RUNS") or 3)
DELAY = int(os.environ.get("DELAY") or 20)
READERS = 16
SIZE = 10_000
PORT = int(os.environ.get("PORT") or 9331)
ENDPOINT = f"http://127.0.0.1:{PORT}"
KEY, SECRET = "TESTKEY", "test-secret-that-must-not-show"
S3 = {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": ENDPOINT, "region_name": "us-east-1"}, "skip_instance_cache": True, "use_listings_cache": False}
PATHS = [f"t/{number:06}" for number in range(FILES)]


def body(path):
    return hashlib.shake_128(path.encode()).digest(SIZE)


def rate(work, count=FILES):
    began = time.monotonic()
    work()
    return count / (time.monotonic() - began)


def checked(found):
    """A contender that gives wrong bytes is not fast."""
    for path, data in found.items():
        assert data == body(path[path.index("t/"):]), path
    assert len(found) == FILES
    return found


class Started:
    """A process that says when it serves."""

    def __init__(self, line, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for said in self.process.stdout:
            if line in said:
                return
        raise SystemExit(f"{command[0]} did not start")

    def end(self):
        self.process.terminate()
        self.process.wait()


def read_share(make, turn, count, results):
    """One of several readers: all files, from a place of its own on, `count` times."""
    fs, prefix = make()
    paths = [prefix + path for path in PATHS[turn * FILES // READERS:] + PATHS[:turn * FILES // READERS]]
    fs.cat_file(paths[0])
    results.put("ready")
    began = time.monotonic()
    for _ in range(count):
        for path in paths:
            fs.cat_file(path)
    results.put((began, time.monotonic()))


def crowd(make, count):
    """Files a second of several processes that read one by one."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    readers = [context.Process(target=read_share, args=(make, turn, count, results)) for turn in range(READERS)]
    for reader in readers:
        reader.start()
    spans = [found for found in (results.get() for _ in range(2 * READERS)) if found != "ready"]
    for reader in readers:
        reader.join()
    return READERS * count * FILES / (max(end for _, end in spans) - min(begin for begin, _ in spans))


class Terrace:
    def __init__(self, place):
        self.place, self.socket = place, os.path.join(place, "socket")

    def fs(self):
        return fsspec.filesystem("terrace", socket=self.socket, skip_instance_cache=True), ""

    def start(self):
        shutil.rmtree(self.place, ignore_errors=True)
        os.makedirs(self.place)
        command = [os.environ["TERRACE"], "files", "--store", "s3://bench", "--store-endpoint", ENDPOINT, "--memory", "512M", "--freshness", "ttl=10m",
                   "--flash", f"{self.place}/flash:1G", "--socket", self.socket]
        return Started("serving", command)

    def c(self, what, rounds):
        listed = os.path.join(self.place, "list")
        with open(listed, "w") as file:
            file.writelines(path + "\n" for path in PATHS)
        said = subprocess.run([os.environ["FILES_C"], self.socket, listed, what, str(rounds)], check=True, capture_output=True, text=True)
        return float(said.stdout)

    def run(self):
        found = {}
        daemon = self.start()
        fs, _ = self.fs()
        found["cold, one batch"] = rate(lambda: checked(fs.cat(PATHS)))
        found["warm, one batch"] = rate(lambda: [fs.cat(PATHS) for _ in range(5)], 5 * FILES)
        checked(fs.cat(PATHS))
        found["warm, one by one"] = rate(lambda: [fs.cat_file(path) for _ in range(5) for path in PATHS], 5 * FILES)
        client = fs.client
        found["warm, one by one, native"] = rate(lambda: [client.read(path) for _ in range(5) for path in PATHS], 5 * FILES)
        found[f"warm, {READERS} readers"] = crowd(self.fs, 10)
        found["warm, one batch, C"] = self.c("batch", 20)
        found["warm, one by one, C"] = self.c("get", 20)
        requests = json.loads(fs.client.status())["store_requests"]
        assert requests <= FILES + 1, f"{requests} requests for {FILES} files"
        daemon.end()
        daemon = self.start()
        found["cold, one batch, C"] = self.c("once", 1)
        daemon.end()
        return found


class Plain:
    """s3fs without a cache."""

    def __init__(self, place):
        self.bucket = "bench/"

    def run(self):
        fs = fsspec.filesystem("s3", **S3)
        paths = [self.bucket + path for path in PATHS]
        return {"cold, one batch": rate(lambda: checked(fs.cat(paths))),
                "cold, one by one": rate(lambda: [fs.cat_file(path) for path in paths[:50]], 50)}


class Simple:
    """fsspec's simplecache over s3fs."""

    def __init__(self, place):
        self.place = os.path.join(place, "simplecache")

    def fs(self):
        return fsspec.filesystem("simplecache", target_protocol="s3", target_options=S3, cache_storage=self.place, skip_instance_cache=True), "bench/"

    def run(self):
        shutil.rmtree(self.place, ignore_errors=True)
        fs, prefix = self.fs()
        paths = [prefix + path for path in PATHS]
        return {"cold, one batch": rate(lambda: checked(fs.cat(paths))),
                "warm, one batch": rate(lambda: checked(fs.cat(paths))),
                "warm, one by one": rate(lambda: [fs.cat_file(path) for path in paths]),
                f"warm, {READERS} readers": crowd(self.fs, 1)}


class Obstore:
    def __init__(self, place):
        self.store = obstore.store.S3Store("bench", endpoint=ENDPOINT, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1",
                                           virtual_hosted_style_request=False, client_options={"allow_http": True})

    async def all(self):
        slots = asyncio.Semaphore(128)

        async def one(path):
            async with slots:
                return path, bytes(await (await obstore.get_async(self.store, path)).bytes_async())

        return dict(await asyncio.gather(*(one(path) for path in PATHS)))

    def run(self):
        return {"cold, one batch": rate(lambda: checked(asyncio.run(self.all()))),
                "cold, one by one": rate(lambda: [obstore.get(self.store, path).bytes() for path in PATHS[:50]], 50)}


class Disk:
    """The files on the local disk, in the system's cache."""

    def __init__(self, place):
        self.place = os.path.join(place, "local")
        os.makedirs(os.path.join(self.place, "t"), exist_ok=True)
        for path in PATHS:
            with open(os.path.join(self.place, path), "wb") as file:
                file.write(body(path))

    def read(self, path):
        with open(os.path.join(self.place, path), "rb") as file:
            return file.read()

    def run(self):
        return {"warm, one by one": rate(lambda: [self.read(path) for _ in range(5) for path in PATHS], 5 * FILES)}


BARS = {"cold, one batch": 2300, "cold, one batch, C": 3500, "warm, one batch": 40_000, "warm, one by one": 40_000, "warm, one by one, native": 40_000,
        "warm, one batch, C": 200_000, "warm, one by one, C": 200_000}


def main():
    out = sys.argv[1]
    place = os.path.join(os.path.abspath(out), "files.data")
    shutil.rmtree(place, ignore_errors=True)
    buckets = os.path.join(place, "buckets")
    os.makedirs(os.path.join(buckets, "bench", "t"))
    for path in PATHS:
        with open(os.path.join(buckets, "bench", path), "wb") as file:
            file.write(body(path))
    with open(os.path.join(buckets, "delay-ms"), "w") as file:
        file.write(str(DELAY))
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1")
    server = Started("listening", [os.environ["S3_SERVER"], buckets, str(PORT)])
    sides = {"terrace": Terrace(os.path.join(place, "daemon")), "s3fs": Plain(place), "simplecache": Simple(place), "obstore": Obstore(place), "local disk": Disk(place)}
    runs = {name: [] for name in sides}
    try:
        for turn in range(RUNS):
            for name, side in sides.items():
                runs[name].append(side.run())
            print(f"round {turn + 1} of {RUNS}", flush=True)
    finally:
        server.end()
    figures = {name: {what: statistics.median(run[what] for run in of) for what in of[0]} for name, of in runs.items()}
    print(f"\nFiles of {SIZE:,} bytes a second, medians of {RUNS} rounds; a request to the store takes {DELAY} ms more than here")
    for name, found in figures.items():
        for what, value in found.items():
            bar = f"   bar {BARS[what]:,}" if name == "terrace" and what in BARS else ""
            print(f"  {name:12} {what:28} {value:12,.0f}{bar}")
    ours, simple = figures["terrace"], figures["simplecache"]
    many = f"warm, {READERS} readers"
    ratios = {f"{many}, to simplecache": ours[many] / simple[many],
              "warm, one by one, to simplecache": ours["warm, one by one"] / simple["warm, one by one"],
              "warm, one by one, native, to the local disk": ours["warm, one by one, native"] / figures["local disk"]["warm, one by one"],
              "cold, one batch, to s3fs": ours["cold, one batch"] / figures["s3fs"]["cold, one batch"],
              "cold, one batch, to obstore": ours["cold, one batch"] / figures["obstore"]["cold, one batch"]}
    for what, value in ratios.items():
        print(f"  {what:50} {value:8.2f}")
    notes = [f"{FILES} files of {SIZE} bytes, {RUNS} rounds, {DELAY} ms a request beside the server's own time",
             "the S3 server, the daemon and the readers share the machine's cores"]
    report.write(out, "files", ratios, figures, notes, against="s3fs, fsspec's simplecache, obstore, the local disk", bars=BARS, runs=runs)
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
