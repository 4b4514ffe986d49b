"""What a server does second by second, beside a load: rates, and bytes to each tier."""

import threading
import time

from tiers import io, run

TIERS = ["flash", "volume", "object"]


class Watch:
    """Looks at the server each `step` seconds from `start` to `stop`: `points` are dicts with `second`, MB/s by tier (`flash`, `volume`, `object`), puts and
    gets a second."""

    def __init__(self, server, step=1.0):
        self.server, self.step, self.points, self.done = server, step, [], threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        began, before = time.monotonic(), io(self.server)
        last = began
        while not self.done.wait(self.step):
            now, at = io(self.server), time.monotonic()
            took, last = at - last, at
            point = {"second": at - began}
            for tier in TIERS:
                keys = [key for key in now if key[0] == tier]
                point[tier] = sum(now[key][1] - before.get(key, (0, 0))[1] for key in keys) / took / 1e6
            for name, purpose in (("sinks", "sink"), ("misses", "page_miss")):
                key = "object", purpose
                point[name] = (now[key][0] - before.get(key, (0, 0))[0]) / took if key in now else 0.0
            before = now
            self.points.append(point)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


class Again:
    """Does something with a connection of its own again and again, `pause` seconds between, until it leaves the block. `work(connection, n)`. `spans` are the
    seconds from `began` in which it worked."""

    def __init__(self, server, database, work, pause=0.0, delay=0.0):
        self.server, self.database, self.work, self.pause, self.delay = server, database, work, pause, delay
        self.done, self.spans, self.failed, self.began, self.thread_id = threading.Event(), [], None, time.monotonic(), None
        self.thread = threading.Thread(target=self.go)

    def go(self):
        try:
            connection = self.server.connect(database=self.database)
            self.thread_id = connection.thread_id()
            n, wait = 0, self.delay
            while not self.done.wait(wait):
                started = time.monotonic()
                self.work(connection, n)
                self.spans.append((started - self.began, time.monotonic() - self.began))
                n, wait = n + 1, self.pause
        except Exception as error:
            self.failed = error

    def __enter__(self):
        self.began = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join(10)
        if self.thread.is_alive():
            # Its statement is abandoned.
            run(self.server.connect(), f"KILL CONNECTION {self.thread_id}")
            self.thread.join()
        elif self.failed:
            raise self.failed


def spread(values):
    """Mean, deviation by mean, least, most, and the share of values below half of the mean."""
    mean = sum(values) / max(len(values), 1)
    deviation = (sum((value - mean) ** 2 for value in values) / max(len(values), 1)) ** 0.5
    low = sum(value < mean / 2 for value in values) / max(len(values), 1)
    return {"mean": mean, "deviation": deviation / mean if mean else 0.0, "least": min(values, default=0), "most": max(values, default=0), "below_half": low}


def turned_on(connection, variable, on):
    """Sets a global switch; False if the server has none of that name."""
    if not run(connection, f"SHOW GLOBAL VARIABLES LIKE '{variable}'"):
        return False
    run(connection, f"SET GLOBAL {variable} = {int(on)}")
    return True
