"""Reads files of test_files_kills.py until its input ends: `reader.py SOCKET SEED FILES`. Prints what was wrong, and the number of reads."""

import hashlib
import random
import select
import sys

import fsspec


def main() -> None:
    socket, seed, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    fs = fsspec.filesystem("terrace", socket=socket)
    chance = random.Random(seed)
    seen: dict[str, int] = {}
    reads = 0

    def check(path: str, data: bytes) -> None:
        head, _, rest = data.partition(b"\n")
        name, version, digest = head.decode().split(" ")
        if name != path or digest != hashlib.blake2b(rest).hexdigest():
            print(f"{path}: the bytes are not those of one version", flush=True)
        if int(version) < seen.get(path, 0):
            print(f"{path}: version {version} after {seen[path]}", flush=True)
        seen[path] = int(version)

    print("reading", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        paths = [f"f/{chance.randrange(files)}" for _ in range(chance.choice((1, 1, 1, 30)))]
        try:
            if len(paths) > 1:
                for path, data in fs.cat(paths).items():
                    check(path, data)
            else:
                check(paths[0], fs.cat_file(paths[0]))
        except OSError as error:
            print(f"{paths[0]}: {type(error).__name__}: {error}", flush=True)
        reads += len(paths)
    print(reads)


main()
