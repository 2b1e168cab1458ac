"""Whatever single file of a store is gone, zeroed, cut or nonsense: the broker starts, and no message is lost."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.harness import World
from tests.storage.faults import FaultyFileSystem

CONFIG = """
destinations:
  - {match: /queue/q, dedup: {window: 10m, count: 1000}}
  - {match: /topic/*}
"""
QUEUE, TOPIC = "/queue/q", "/topic/t"


def lived() -> tuple[World, set[str]]:
    """A killed broker that has everything: messages, ids, cursors, a transaction over several logs. The bodies that
    were not acknowledged."""
    world = World(CONFIG)
    client = world.connect()
    for number in range(8):
        client.publish(QUEUE, f"q{number}", dedup_id=f"id{number}")
        client.publish(TOPIC, f"t{number}")
    world.settle()
    client.subscribe(QUEUE, prefetch_count=4)
    world.settle()
    first, second, *_ = client.messages()
    client.ack(first)
    client.say("BEGIN", transaction="x")
    client.ack(second, transaction="x")
    client.publish(QUEUE, "in transaction", transaction="x")
    client.publish(TOPIC, "in transaction", transaction="x")
    client.say("COMMIT", transaction="x", receipt="done")
    world.settle()
    assert client.receipts() == ["done"]
    world.fs.kill()
    return world, {f"q{number}" for number in range(2, 8)} | {"in transaction"}


FILES = sorted(path for path in lived()[0].fs.nodes if not path.endswith(".rlog"))


def test_the_store_has_every_kind_of_file() -> None:
    kinds = {path.rpartition("/")[2] for path in FILES}
    assert {"LOCK", "salt", "head", "delivered", "transactions", "dedup"} <= kinds, kinds


@pytest.mark.parametrize("how", ["deleted", "zeroed", "garbage", "cut", "empty", "flipped"])
@pytest.mark.parametrize("path", FILES)
def test_one_file_is_lost(path: str, how: str) -> None:
    world, waiting = lived()
    fs: FaultyFileSystem = world.fs
    cache = fs.nodes[path].cache
    if how == "deleted":
        del fs.nodes[path]
    elif how == "zeroed":
        cache[:] = bytes(len(cache))
    elif how == "garbage":
        cache[:] = Random(7).randbytes(len(cache))
    elif how == "flipped":
        for at in range(0, min(len(cache), 4_096), 13):
            cache[at] ^= 4
    else:
        fs.nodes[path].cache = cache[: 0 if how == "empty" else len(cache) // 2]  # a new one: the old one is mapped
    world.start()
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=100, id="q")
    client.subscribe(TOPIC, id="t", ack="auto", start_position="first")
    world.settle()
    heard = client.messages()
    queued = [frame.body.decode() for frame in heard if frame.headers["subscription"] == "q"]
    assert waiting <= set(queued) and len(queued) == len(set(queued))
    if "journal" not in path:
        assert set(queued) == waiting, "nothing comes again that was known to be acknowledged"
    assert [frame.body.decode() for frame in heard if frame.headers["subscription"] == "t"] == [
        *[f"t{number}" for number in range(8)],
        "in transaction",
    ]
    client.publish(QUEUE, "behind")
    world.settle()
    assert client.bodies() == ["behind"]
    world.restart()
