"""A scripted history over many logs, with the power cut, a sync that fails, or a full disk at any of its calls.

Twenty destinations, messages under three rules, transactions with acknowledgements, acknowledgements alone, messages
that are sent again, files of the journal so small that checkpoints are made all the time. What was receipted under
``always`` is there, a transaction is there as a whole or not at all, nothing is twice, and what was acknowledged is not
delivered again. One call in 131 is tried in ``make test``, one in 7 in ``make test-all``, and every one in ``make
slow``.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.broker.harness import Client, World
from tests.storage.driving import read_all
from tests.storage.faults import Crash, FaultyFileSystem
from tests.tiers import sampled

CONFIG = "destinations: [{match: '/topic/never.*', fsync: never}, {match: '/topic/interval.*', fsync: 50ms}]"
NAMES = [f"/topic/{kind}.{number}" for kind in ("always", "interval", "never") for number in range(6)]
WORK, DONE = "/queue/work", "/queue/done"
ROUNDS = 6
APART = pytest.mark.parametrize("apart", [*sampled([131, 7], 1), pytest.param(1, marks=pytest.mark.slow)])


class Promises:
    """What was receipted."""

    def __init__(self) -> None:
        self.sent: set[str] = set()  # to destinations of the rule ``always``
        self.committed: set[str] = set()
        self.settled: set[str] = set()  # acknowledged in DONE


def life(world: World, promises: Promises, first: int = 0) -> None:
    """Fills the logs, moves work from one queue to another in transactions, and acknowledges half of it there.

    After the first round, each round sends the messages of the round before once more.
    """
    for number in range(first, first + ROUNDS):
        client = world.connect()
        for each in range(max(0, number - 1), number + 1):
            for name in [*NAMES, WORK]:
                body = f"{name} {each}" if name != WORK else str(each)
                client.publish(name, body, receipt=f"{name} {each}", dedup_id=each)
        client.subscribe(WORK)
        world.settle()
        reported(client, promises)
        for message in client.messages():
            client.say("BEGIN", transaction="t")
            body = message.body.decode()
            client.publish(DONE, body, transaction="t")
            client.publish(NAMES[0], f"{NAMES[0]} t{body}", transaction="t")
            client.ack(message, transaction="t")
            client.say("COMMIT", transaction="t", receipt=f"commit {body}")
            world.settle()
            reported(client, promises)
        client.subscribe(DONE, id="done")
        world.settle()
        for message in client.messages():
            body = message.body.decode()
            if message.headers["subscription"] == "done" and int(body) % 2:
                client.ack(message, receipt=f"acked {body}")
        world.settle()
        reported(client, promises)
        client.drop()
        world.tick(1)


def reported(client: Client, promises: Promises) -> None:
    for receipt in client.receipts():
        name, _, body = receipt.partition(" ")
        if name == "commit":
            promises.committed.add(body)
        elif name == "acked":
            promises.settled.add(body)
        elif "always" in name or name == WORK:
            promises.sent.add(receipt if name != WORK else f"{WORK} {body}")


def check(world: World, promises: Promises) -> None:
    bodies = {
        name: [each.decode() for each in read_all(part).values()] for name, part in world.store.partitions.items()
    }
    for name, found in bodies.items():
        assert len(found) == len(set(found)), f"{name}: something is twice"
    stored = {body for name, found in bodies.items() for body in (found if name != WORK else [])}
    assert {each for each in promises.sent if not each.startswith(WORK)} <= stored
    done = set(bodies.get(DONE, ()))
    assert promises.committed <= done
    assert {body.removeprefix(f"{NAMES[0]} t") for body in stored if body.startswith(f"{NAMES[0]} t")} == done
    reader = world.connect()
    reader.subscribe(WORK, prefetch_count=100)
    world.settle()
    waiting = set(reader.bodies())
    assert not waiting & done, "acknowledged in a transaction, and delivered again"
    assert {each.removeprefix(f"{WORK} ") for each in promises.sent if each.startswith(WORK)} <= waiting | done
    reader.subscribe(DONE, id="done", prefetch_count=100)
    world.settle()
    assert set(reader.bodies()) == done - promises.settled
    reader.drop()


def begun(seed: int) -> World:
    return World(CONFIG, fs=FaultyFileSystem(Random(seed)), journal_file_bytes=Random(seed).choice([1, 3_000, 20_000]))


def calls(verb: str | None = None) -> int:
    """How many calls of the file system a whole life makes."""
    world = begun(0)
    before = world.fs.calls.total() if verb is None else world.fs.calls[verb]
    life(world, Promises())
    return (world.fs.calls.total() if verb is None else world.fs.calls[verb]) - before


@APART
@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_the_process_or_the_power_may_end_at_any_call(end: str, apart: int) -> None:
    for nth in range(1, calls(), apart):
        world, promises = begun(nth), Promises()
        world.fs.crash_at(nth)
        try:
            life(world, promises)
        except Crash:
            pass
        getattr(world, end)()
        check(world, promises)
        life(world, promises, ROUNDS)
        world.power_cut()
        check(world, promises)


@APART
@pytest.mark.parametrize(
    ("verb", "error"), [("fdatasync", errno.EIO), ("pwritev", errno.ENOSPC), ("pwritev", errno.EIO)]
)
def test_any_sync_or_write_may_fail(verb: str, error: int, apart: int) -> None:
    for nth in range(1, calls(verb), apart if verb == "pwritev" else max(1, apart // 7)):
        world, promises = begun(nth), Promises()
        world.fs.fail(verb, nth, error)
        life(world, promises)
        world.power_cut()
        check(world, promises)


@APART
def test_the_process_may_end_with_any_sync_that_fails(apart: int) -> None:
    """The next start reads bytes that are not on the disk, and a sync of them succeeds without writing them."""
    for nth in range(1, calls("fdatasync"), max(1, apart // 16)):
        world, promises = begun(nth), Promises()
        world.fs.fail("fdatasync", nth, fatal=True)
        try:
            life(world, promises)
        except Crash:
            pass
        world.kill()
        check(world, promises)
        if nth % 2:
            life(world, promises, ROUNDS)
        world.power_cut()
        check(world, promises)
