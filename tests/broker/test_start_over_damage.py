"""Whatever single file of a store is gone, zeroed, cut or nonsense: the broker starts, and no message is lost."""

from __future__ import annotations

from random import Random

import pytest

from radiator import limits
from radiator.storage import names
from tests.broker.harness import World
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

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
    assert {"LOCK", "salt", "head", "delivered", "0000000001.rjl", "dedup"} <= kinds, kinds


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


# --- a log that several share: who is known by what -------------------------------------------------------------------

SHARED = """
destinations:
  - {match: "/queue/*", partition: shared, segment: {size: 64KiB}}
  - {match: "/topic/*", partition: shared, segment: {size: 64KiB}}
"""


def shared(topic: bool = False) -> World:
    """A broker that has ended in order. Only the oldest of three segments has messages of b, and of the topic."""
    world = World(SHARED)
    client = world.connect()
    client.publish("/queue/a", "a0")
    client.publish("/queue/b", *[f"b{number}" for number in range(5)])
    if topic:
        client.publish(TOPIC, "t0", "t1")
    world.settle()
    for _ in range(20):
        client.publish("/queue/a", "x" * 9_000)
        world.settle()
    world.stop()
    return world


def spoil(fs: FaultyFileSystem, path: str, how: str) -> None:
    cache = fs.nodes[path].cache
    if how == "deleted":
        del fs.nodes[path]
    elif how == "garbage":
        cache[:] = Random(7).randbytes(len(cache))
    elif how == "zeroed":
        cache[:] = bytes(len(cache))
    elif how == "first entry":
        del cache[8 + int.from_bytes(cache[:4], "little") :]
    elif how == "other names":
        cache[:] = names.encode_entry("/queue/a")
    else:
        del cache[len(cache) // 2 :]


def consumed_by_a(world: World) -> None:
    """a settles all that it has, and everything that may go has the time to go."""
    client = world.connect()
    client.subscribe("/queue/a", ack="auto", prefetch_count=100)
    for _ in range(8):
        world.settle()
        world.tick(12)
        while job := world.store.maintenance.take():
            job.run(lambda: True)
            world.store.maintenance.done(job, world.time)
    assert len(client.bodies()) == 21


def heard(world: World, name: str, **headers: str) -> list[str]:
    client = world.connect()
    client.subscribe(name, ack="auto", prefetch_count=100, **headers)
    world.settle()
    world.tick(2)
    return client.bodies()


B = [f"b{number}" for number in range(5)]
SHARED_FILES = sorted(path for path in shared(True).fs.nodes if not path.endswith(".rlog"))
LOST = [(path, how) for path in SHARED_FILES for how in ("deleted", "garbage", "zeroed", "cut")]
LOST += [(path, how) for path in SHARED_FILES if path.endswith("/names") for how in ("first entry", "other names")]


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize(("path", "how"), sampled(LOST, 12))
def test_what_others_have_in_a_shared_log_stays_whatever_file_is_lost(
    path: str, how: str, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not readable:  # more than a start may read
        monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    for topic in (False, True):
        world = shared(topic)
        if path in world.fs.nodes:
            spoil(world.fs, path, how)
        world.start()
        consumed_by_a(world)
        assert heard(world, "/queue/b") == B
        if topic:
            assert heard(world, TOPIC, start_position="first") == ["t0", "t1"]


@pytest.mark.parametrize("readable", [True, False])
def test_list_and_cursors_may_both_be_lost(readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not readable:
        monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    world = shared()
    for path in [each for each in world.fs.nodes if each.endswith("/names") or "/cursors/" in each]:
        del world.fs.nodes[path]
    world.start()
    consumed_by_a(world)
    assert heard(world, "/queue/b") == B


def test_a_log_whose_list_may_be_incomplete_is_reported_until_all_of_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = shared()
    (path,) = (each for each in world.fs.nodes if each.endswith("/names"))
    del world.fs.nodes[path]
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 1_000)
    world.start()
    assert [note.kind for note in world.notes] == ["names"] and "fsck --repair" in str(world.notes[0])
    world.connect().publish("/queue/c", "c0")  # a list is begun, and says nothing about what was before
    world.settle()
    world.restart()
    assert [note.kind for note in world.notes] == ["names"]
    consumed_by_a(world)
    assert len(world.store.partitions["shared"].segments) == 3
    world.stop()
    monkeypatch.undo()
    world.start()
    assert not world.notes
    partition = world.store.partitions["shared"]
    assert partition.whole and partition.destinations.keys() == {"/queue/a", "/queue/b", "/queue/c"}
    assert heard(world, "/queue/b") == B and heard(world, "/queue/c") == ["c0"]
    world.tick(12)
    world.settle()
    assert len(partition.segments) < 3, "now that everybody is known, it goes"


def test_a_start_reads_nothing_of_a_log_whose_list_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    for end in ("restart", "kill"):
        world = shared()
        world.start()
        world.connect().publish("/queue/d", "d")
        world.settle()
        getattr(world, end)()
        assert "names" not in [note.kind for note in world.notes], end
        assert world.store.partitions["shared"].whole


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("rolls", [0, 1, 3])
def test_a_head_from_before_vouches_for_nothing_that_came_later(
    rolls: int, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may set the head back. It then says that the list is whole which was so at that time."""
    world = World("destinations: [{match: '/queue/*', partition: /queue/a, segment: {size: 64KiB}}]")
    client = world.connect()
    client.publish("/queue/a", *["x" * 9_000] * 3)
    world.settle()
    (head,) = (each for each in world.fs.nodes if each.endswith("/head"))
    before = bytes(world.fs.nodes[head].cache)
    client.publish("/queue/b", *B)
    world.settle()
    for _ in range(7 * rolls):
        client.publish("/queue/a", "x" * 9_000)
        world.settle()
    world.stop()
    assert len(world.store.partitions["/queue/a"].segments) == 1 + rolls
    world.fs.nodes[head].cache[:] = before
    for path in [each for each in world.fs.nodes if each.endswith((".idx", "/names")) or "/cursors/" in each]:
        del world.fs.nodes[path]
    if not readable:
        monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    world.start()
    partition = world.store.partitions["/queue/a"]
    assert partition.whole == (readable or not rolls)
    assert not partition.whole or partition.destinations.keys() == {"/queue/a", "/queue/b"}
    assert heard(world, "/queue/b") == B


def test_a_walk_that_began_behind_an_old_head_does_not_make_a_list_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    world = World("destinations: [{match: '/queue/*', partition: /queue/a}]")
    client = world.connect()
    client.publish("/queue/a", "first")
    world.settle()
    (head,) = (each for each in world.fs.nodes if each.endswith("/head"))
    before = bytes(world.fs.nodes[head].cache)
    client.publish("/queue/b", *B)
    world.settle()
    for _ in range(20):
        client.publish("/queue/a", "x" * 9_000)
        world.settle()
    world.stop()
    world.fs.nodes[head].cache[:] = before
    del world.fs.nodes[head.replace("/head", "/names")]
    world.start()
    assert not world.store.partitions["/queue/a"].whole
    assert heard(world, "/queue/b") == B


def test_a_queue_whose_name_is_lost_holds_back_retention_by_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    world = World(SHARED.replace("size: 64KiB}", "size: 64KiB}, retention: {size: 70KiB}"))
    client = world.connect()
    client.publish("/queue/b", *B)
    for _ in range(20):
        client.publish("/queue/a", "x" * 9_000)
        world.settle()
    world.stop()
    del world.fs.nodes[next(each for each in world.fs.nodes if each.endswith("/names"))]
    world.start()
    client = world.connect()
    client.subscribe("/queue/a", ack="auto", prefetch_count=100)
    for _ in range(8):
        world.settle()
        world.tick(12)
    assert len(client.bodies()) == 20
    assert heard(world, "/queue/b") == B
