"""sql-load with BIG: as many small rows as BIG says, or as the time allows, into one table with a secondary index, piece by piece: rows a second, bytes
the server's process has written for each byte loaded, until the last row is loaded and until a clean shutdown, size on disk. Each engine has a
server of its own, so that its writes are counted separately.

The first piece goes into an empty table, the others behind it. A row is a number, two small numbers and a short text, about 36 bytes in the file.
Environment: BIG (rows), PIECE (rows of one LOAD DATA, a twentieth), LIMIT (seconds, all engines together, 3600), MEMORY (bytes), ORDER (ascending or random
keys), ENGINES, PORTS, MYROCKS. Writes sql-load-big.json.
"""

import os
import random
import shutil
import sys
import time

import report
from engines import ENGINES, cpu, io_bytes, options, resident, size_on_disk, stop
from tiers import MIB, end, io, place, run, server_in, setting

BIG, LIMIT, MEMORY, ORDER = setting("BIG", 100_000_000), setting("LIMIT", 3600), setting("MEMORY", 256 * MIB), setting("ORDER", "ascending")
PIECE = setting("PIECE", max(BIG // 20, 1))
TABLE = "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, k INT UNSIGNED NOT NULL, n INT NOT NULL, c VARCHAR(20) NOT NULL, KEY k (k)) CHARACTER SET latin1"


def write_piece(path, first, count):
    """A file of rows; returns its bytes. Random keys are all numbers below BIG once, in an order that a multiplication makes."""
    source = random.Random(first)
    prime = next(prime for prime in (2_654_435_761, 1_000_000_007) if BIG % prime)
    with open(path, "w", buffering=MIB) as file:
        for number in range(first, first + count):
            key = number if ORDER == "ascending" else number * prime % BIG
            file.write(f"{key}\t{source.getrandbits(31)}\t{number % 1000}\tname{key % 999983}\n")
    return os.path.getsize(path)


def load(engine, directory):
    server = server_in(os.path.join(directory, engine.lower()), options(os.path.join(directory, engine.lower()), MEMORY, 512 * MIB)
                       + [f"--terrace-object-buffer={max(8 << 30, BIG * 150)}"])
    server.start()
    file, pieces, loaded, size, spent = os.path.join(directory, "piece"), [], 0, 0, 0.0
    try:
        connection = server.connect()
        run(connection, "CREATE DATABASE d")
        connection.select_db("d")
        run(connection, f"{TABLE} ENGINE={engine}")
        empty = size_on_disk(server, engine, "d")
        written, busy, asked = io_bytes(server)[1], cpu(server), io(server)
        while loaded < BIG and spent < LIMIT / len(ENGINES):
            size += write_piece(file, loaded, min(PIECE, BIG - loaded))
            started = time.monotonic()
            run(connection, f"LOAD DATA INFILE '{file}' INTO TABLE t")
            took = time.monotonic() - started
            spent += took
            pieces.append({"rows": min(PIECE, BIG - loaded), "seconds": took})
            loaded += min(PIECE, BIG - loaded)
            print(f"{engine}: {loaded:,} rows, {pieces[-1]['rows'] / took:,.0f} rows/s", file=sys.stderr)
        held = resident(server)
        [(count, distinct)] = run(connection, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t FORCE INDEX (PRIMARY)")
        assert count == distinct == loaded, (count, distinct, loaded)
        # Of Terrace: for what.
        purposes = {".".join(key): [now - before for now, before in zip(both, asked[key])] for key, both in io(server).items()} if engine == "Terrace" else {}
        written_while_loading, busy = io_bytes(server)[1] - written, cpu(server) - busy
        written_when_stopped = stop(server) - written
        server.start()
        disk = size_on_disk(server, engine, "d") - empty
    finally:
        end(server)
        if os.path.exists(file):
            os.remove(file)
    return {"rows": loaded, "seconds": spent, "rate": loaded / spent, "bytes_loaded": size,
            "bytes_written_a_byte": written_while_loading / size, "bytes_written_a_byte_stopped": written_when_stopped / size,
            "bytes_on_disk_a_byte": disk / size, "bytes_on_disk": disk, "cpu_a_million_rows": busy / loaded * 1e6, "resident": held,
            "requests_and_bytes_by_purpose": purposes, "pieces": pieces}


def main(out):
    directory = place(out, "sql-load-big")
    figures = {}
    try:
        for engine in ENGINES:
            os.makedirs(os.path.join(directory, engine.lower()))
            figures[engine] = load(engine, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for engine, one in figures.items():
        print(f"{engine:8} {one['rows']:>13,} rows in {one['seconds']:7.0f} s, {one['rate']:>9,.0f} rows/s (first piece {rate(one, 0):,.0f}, last {rate(one, -1):,.0f}), "
              f"{one['bytes_written_a_byte']:.2f} bytes written ({one['bytes_written_a_byte_stopped']:.2f} when it has stopped) "
              f"and {one['bytes_on_disk_a_byte']:.2f} on disk for each byte loaded, "
              f"{one['cpu_a_million_rows']:.2f} s of CPU a million rows, {one['resident'] / MIB:.0f} MiB held")
    ratios = {}
    for other in (engine for engine in figures if engine != "Terrace" and "Terrace" in figures):
        for what in ("rate", "bytes_written_a_byte", "bytes_written_a_byte_stopped", "bytes_on_disk_a_byte", "cpu_a_million_rows"):
            ratios[f"{what}, of {other}"] = figures["Terrace"][what] / figures[other][what]
    report.write(out, "sql-load-big", ratios, figures,
                 [f"up to {BIG} rows in pieces of {PIECE}, {ORDER} keys, one secondary index with random keys, {MEMORY >> 20} MiB for the engine, {LIMIT} s for all "
                  "engines together; bytes written: by the server's process to devices until the last row was loaded and counted; they leave out what MyRocks has to "
                  "compact afterwards"])


def rate(one, at):
    return one["pieces"][at]["rows"] / one["pieces"][at]["seconds"]
