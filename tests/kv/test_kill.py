"""`kill -9` under load with redis-py: what was acknowledged is there, transactions and scripts are whole or not there."""

import threading

import pytest
import redis
from servers import terrace

ROUNDS = 2
WRITERS = 3


class Writer:
    """Writes one value after the other into keys of its own, in a command, a transaction and a script, until the server is gone."""

    def __init__(self, server, own):
        self.own = own
        # The last number that was acknowledged, and the last that was sent.
        self.acknowledged, self.sent = server.start[own], server.start[own]
        self.thread = threading.Thread(target=self.run, args=(server.client(),))
        self.thread.start()

    def run(self, client):
        script = client.register_script("for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end")
        try:
            while True:
                number = self.sent = self.acknowledged + 1
                own = self.own
                client.set(f"plain:{own}", number)
                pipe = client.pipeline(transaction=True)
                pipe.set(f"left:{own}", number).rpush(f"right:{own}", number).execute()
                script(keys=[f"one:{own}", f"other:{own}"], args=[number])
                self.acknowledged = number
        except redis.ConnectionError:
            pass


@pytest.mark.parametrize("policy", ["write-through", "write-back"])
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_what_was_acknowledged_survives_kill_9_under_load(tmp_path, fsync, policy):
    config = tmp_path / "redis.conf"
    config.write_text(f"appendfsync {fsync}\ntiering-write-policy {policy}\n")
    start = [0] * WRITERS
    for _ in range(ROUNDS):
        server = terrace(config, "--dir", tmp_path / "data")
        server.start = start
        writers = [Writer(server, own) for own in range(WRITERS)]
        while any(writer.acknowledged < start[writer.own] + 40 for writer in writers):
            assert all(writer.thread.is_alive() for writer in writers)
        server.kill()
        for writer in writers:
            writer.thread.join()
        with terrace(config, "--dir", tmp_path / "data") as server:
            client = server.client(decode_responses=True)
            for writer in writers:
                own, least, most = writer.own, writer.acknowledged, writer.sent
                numbers = {name: int(client.get(f"{name}:{own}")) for name in ("plain", "left", "one", "other")}
                assert all(least <= number <= most for number in numbers.values()), (numbers, least, most)
                assert numbers["one"] == numbers["other"], "a script is whole"
                right = [int(number) for number in client.lrange(f"right:{own}", 0, -1)]
                assert right[-1] == numbers["left"], "a transaction is whole"
                assert right == sorted(set(right)), "none was run twice"
                # The next round goes on after what may have been written.
                start[own] = most
