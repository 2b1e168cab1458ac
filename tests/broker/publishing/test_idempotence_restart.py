"""What is remembered of messages outlives the broker: a clean stop, SIGKILL, and under `always` the power."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from radiator.storage import dedup_file, layout
from radiator.upkeep.backup import back_up
from radiator.upkeep.copying import Copier
from radiator.upkeep.restore import restore
from tests.broker.harness import Client, World
from tests.broker.publishing.test_idempotence import QUEUE, send, stored
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

PATH = layout.dedup_path(layout.partition_path("/data", QUEUE))
ENDS = ["restart", "kill", "power_cut"]


def publish(world: World, *names: object, destination: str = QUEUE) -> dict[str, int]:
    """Sends messages with these ids; the offsets of their receipts."""
    client = world.connect()
    for name in names:
        send(client, str(name), str(name), dedup_id=name, destination=destination)
    world.settle()
    found = {frame.headers["receipt-id"]: int(frame.headers["offset"]) for frame in client.take("RECEIPT")}
    assert len(found) == len(set(names)), client.take()
    client.drop()
    return found


def again(world: World, *names: object) -> dict[str, int]:
    """Sends them once more; the offsets of those that were known."""
    client = world.connect()
    for name in names:
        send(client, str(name), str(name), dedup_id=name)
    world.settle()
    receipts = client.take("RECEIPT")
    assert len(receipts) == len(names)
    client.drop()
    known = [frame for frame in receipts if frame.headers.get("duplicate") == "true"]
    return {frame.headers["receipt-id"]: int(frame.headers["offset"]) for frame in known}


@pytest.mark.parametrize("end", ENDS)
def test_a_repeat_after_the_end_of_the_broker_is_known(end: str) -> None:
    world = World()
    publish(world, "a")
    plain = world.connect()
    send(plain, "plain")
    world.settle()
    first = publish(world, "b", "c")
    assert first == {"b": 2, "c": 3}
    for _ in range(3):
        getattr(world, end)()
        assert again(world, "a", "b", "c") == {"a": 0, "b": 2, "c": 3}
        publish(world, f"new {world.store.partitions[QUEUE].next_offset}")
    assert len(stored(world)) == 7
    assert not [note for note in world.notes if note.kind == "ids"]


@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_ids_that_no_block_holds_are_found_in_the_log(end: str) -> None:
    """A first id makes the file; those that follow are only in the log until a block is due."""
    world = World()
    names = list(range(300))
    first = publish(world, *names)
    assert len(dedup_file.decode(bytes(world.fs.nodes[PATH].cache)).rows) == 0
    getattr(world, end)()
    assert again(world, *names) == first
    assert world.broker.stats.messages_in == 0


def test_a_clean_stop_leaves_nothing_to_search() -> None:
    world = World()
    first = publish(world, *range(50))
    world.stop()
    decoded = dedup_file.decode(bytes(world.fs.nodes[PATH].cache))
    assert decoded.covered == 50 and len(decoded.rows) == 50 * dedup_file.ENTRY_BYTES
    world.start()
    assert again(world, *range(50)) == first


def test_many_ids_become_blocks_while_the_broker_runs() -> None:
    world = World()
    for start in range(0, 5_000, 500):
        publish(world, *range(start, start + 500))
    decoded = dedup_file.decode(bytes(world.fs.nodes[PATH].cache))
    assert decoded.covered is not None and decoded.covered >= 4_000 - dedup_file.BLOCK_IDS
    world.kill()
    assert again(world, 0, 2_000, 4_999) == {"0": 0, "2000": 2_000, "4999": 4_999}


def test_messages_without_ids_move_what_is_covered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_file, "BLOCK_LOG_BYTES", 10_000)
    world = World()
    publish(world, "x")
    client = world.connect()
    for _ in range(100):
        send(client, "y" * 1_000, None)
        world.settle()
    decoded = dedup_file.decode(bytes(world.fs.nodes[PATH].cache))
    assert decoded.covered is not None and decoded.covered > 80
    assert len(decoded.rows) == dedup_file.ENTRY_BYTES


def test_a_partition_without_ids_has_no_file_and_is_not_read() -> None:
    world = World()
    client = world.connect()
    for number in range(100):
        send(client, str(number), None)
    world.settle()
    world.kill()
    assert PATH not in world.fs.nodes
    world.restart()
    assert PATH not in world.fs.nodes


def test_the_first_id_is_not_receipted_before_the_file_is_there() -> None:
    world = World()
    client = world.connect()
    send(client, "x", dedup_id="x")
    world.fs.fail("rename")  # the file cannot take its place
    world.settle()
    assert client.error() == "storage"
    assert not world.store.partitions[QUEUE].next_offset
    world.tick(2)
    assert publish(world, "x", "y") == {"x": 0, "y": 1}
    world.power_cut()
    assert again(world, "x", "y") == {"x": 0, "y": 1}
    assert stored(world) == ["x", "y"]


def test_the_files_are_safe_before_the_first_receipt() -> None:
    """Whatever the disk had not written on its own account is gone."""
    for seed in range(30):
        world = World(fs=FaultyFileSystem(Random(seed)))
        client = world.connect()
        send(client, "plain", None)
        world.settle()
        publish(world, "x")
        world.power_cut()
        assert again(world, "x") == {"x": 1}


def test_a_block_that_cannot_be_written_costs_no_message_and_is_made_up_for() -> None:
    world = World()
    publish(world, *range(500))
    part: Any = world.store.partitions[QUEUE]
    part.dedup_file.wanted = True
    world.fs.fail("fdatasync", under="/dedup")
    publish(world, *range(500, 510))
    assert part.dedup_file.stale
    part.dedup_file.wanted = True
    publish(world, *range(510, 520))
    assert not part.dedup_file.stale and part.dedup_file.covered == 510
    world.power_cut()
    assert len(again(world, *range(520))) == 520


def test_the_file_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_file, "SPARE_IDS", 100)
    monkeypatch.setattr(dedup_file, "BLOCK_IDS", 50)
    world = World("defaults: {dedup: {count: 200}}")
    most = 0
    for start in range(0, 4_000, 50):
        publish(world, *range(start, start + 50))
        most = max(most, len(world.fs.nodes[PATH].cache))
    assert most <= (2 * 400 + 100 + 100) * (dedup_file.ENTRY_BYTES + 1) + 2_000
    world.kill()
    assert len(again(world, *range(3_800, 4_000))) == 200


def test_after_a_restart_the_window_goes_on() -> None:
    world = World("defaults: {dedup: {window: 60s}}")
    publish(world, "old")
    world.tick(40)
    publish(world, "young")
    for end in ENDS:
        getattr(world, end)()
        assert again(world, "young", "old") == {"young": 1, "old": 0}
    world.tick(30)
    world.restart()
    assert again(world, "young") == {"young": 1}
    assert again(world, "old") == {}


def test_a_window_of_none_takes_the_file_away() -> None:
    world = World()
    publish(world, "x")
    world.stop()
    world.config = World("defaults: {dedup: {window: none}}").config
    world.start()
    client = world.connect()
    send(client, "x", dedup_id="x")
    world.settle()
    assert "duplicate" not in client.take("RECEIPT")[0].headers
    assert PATH not in world.fs.nodes


@pytest.mark.parametrize("policy", ["50ms", "never"])
@pytest.mark.parametrize("seed", sampled(range(25), 4))
def test_what_a_power_cut_took_is_stored_when_it_comes_again(policy: str, seed: int) -> None:
    """Under a weaker promise the log may end earlier than its ids say: those offsets are given to other messages."""
    world = World(f"defaults: {{fsync: {policy}}}", fs=FaultyFileSystem(Random(seed)))
    publish(world, *range(100))
    part: Any = world.store.partitions[QUEUE]
    part.dedup_file.wanted = True
    publish(world, "tail")
    world.power_cut()
    publish(world, "another")  # at an offset that may have been another's
    names = [*map(str, range(100)), "tail"]
    known = again(world, *names)
    bodies = stored(world)
    assert sorted(set(bodies)) == sorted([*names, "another"])
    for name, offset in known.items():
        assert part.fs is world.fs and _body(world, offset) == name
    world.kill()
    assert len(again(world, *names)) == len(names)


def _body(world: World, offset: int) -> str:
    client = world.connect()
    client.subscribe(QUEUE, ack="auto", browser="true", start_position=f"offset:{offset}")
    world.settle()
    first = client.messages()[0]
    assert first.headers["offset"] == str(offset)
    client.drop()
    return first.body.decode()


@pytest.mark.parametrize("seed", sampled(range(40), 6))
def test_under_always_every_message_is_there_once_whatever_happens(seed: int) -> None:
    """A producer that goes on until it has a receipt for each message, over failures, kills and power cuts."""
    random = Random(seed)
    world = World("defaults: {segment: {size: 64KiB}, dedup: {count: 1000}}", fs=FaultyFileSystem(Random(seed)))
    receipts: dict[str, int] = {}
    for number in range(40):
        name = str(number)
        while name not in receipts:
            client = world.connect()
            names = [name, *(str(random.randrange(number + 1)) for _ in range(random.randrange(3)))]
            for each in names:
                send(client, each + "." * random.randrange(3_000), each, producer_id="p", sequence=each)
            fate = random.random()
            if fate < 0.15:
                world.fs.fail(random.choice(["pwritev", "rename", "fdatasync"]), random.randrange(1, 4))
            if 0.1 < fate < 0.4:
                world.take()
                for step in (world.write, world.sync, world.completed)[: random.randrange(4)]:
                    step()
                _heard(client, receipts)
                getattr(world, random.choice(["kill", "power_cut"]))()
                continue
            world.settle()
            _heard(client, receipts)
            client.drop()
            if random.random() < 0.1:
                world.fs.heal()
                world.restart()
            elif world.store.partitions[QUEUE].failed is not None:
                world.kill()
    world.kill()
    kept = [body.rstrip(".") for body in stored(world)]
    assert sorted(kept, key=int) == [str(number) for number in range(40)]
    for name, offset in receipts.items():
        assert kept[offset] == name


def _heard(client: Client, receipts: dict[str, int]) -> None:
    for frame in client.take("RECEIPT"):
        name, offset = frame.headers["receipt-id"], int(frame.headers["offset"])
        assert receipts.setdefault(name, offset) == offset


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", sampled(["zeros", "empty", "first", "last", "cut"], 2))
def test_a_damaged_file_is_made_up_for_by_the_log(damage: str) -> None:
    world = World()
    for start in range(0, 3_000, 1_000):
        publish(world, *range(start, start + 1_000))
        world.restart()
    world.stop()
    data = world.fs.nodes[PATH].cache
    if damage == "zeros":
        data[:] = bytes(len(data))
    elif damage == "empty":
        data.clear()
    elif damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[40 if damage == "first" else -40] ^= 1
    world.start()
    assert len(again(world, *range(3_000))) == 3_000
    assert not [note for note in world.notes if note.kind == "ids"]


def test_ids_that_would_take_too_long_to_find_are_forgotten_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.limits.DEDUP_SCAN_BYTES_MAX", 100_000)
    world = World("defaults: {segment: {size: 64KiB}}")
    client = world.connect()
    for number in range(300):
        send(client, "x" * 1_000, None, dedup_id=number)
        world.settle()
    world.stop()
    world.fs.nodes[PATH].cache.clear()
    world.start()
    (note,) = [note for note in world.notes if note.kind == "ids"]
    assert "dedup" in note.path and "stored again" in str(note)
    known = again(world, *range(300))
    assert 50 <= len(known) <= 100 and set(known) == {str(number) for number in range(300 - len(known), 300)}
    assert f"from {300 - len(known)} on" in str(note)


def test_a_message_that_damage_took_is_stored_when_it_comes_again() -> None:
    """Its id is in the file, but to say that it is there would be untrue."""
    world = World()
    for number in range(10):
        publish(world, number)
    world.stop()
    segment = world.fs.nodes[layout.segment_path(layout.partition_path("/data", QUEUE), 0)].cache
    place = segment.index(b"dedup-id:4")
    segment[place] ^= 1
    world.start()
    assert any(note.first_offset == 4 for note in world.notes)
    assert again(world, 3, 4, 5) == {"3": 3, "5": 5}
    world.kill()
    assert again(world, 3, 4, 5) == {"3": 3, "4": 10, "5": 5}


def test_a_backup_remembers_what_it_holds_and_no_more() -> None:
    world = World()
    first = publish(world, *range(100))
    world.stop()
    world.start()
    copier = Copier(world.fs)
    back_up(world.fs, "/data", "/copy", now_ns=world.now, version="0")
    publish(world, "later")
    world.stop()
    data = bytes(world.fs.nodes[PATH].cache)
    shorter = dedup_file.decode(dedup_file.shortened(data, 60) or b"")
    assert shorter.covered == 60 and list(dedup_file.columns_of(shorter.rows)[2]) == list(range(60))
    restore(world.fs, "/copy", "/again", copier)
    other = World(fs=world.fs, root="/again")
    assert other.notes == []
    assert again(other, *range(100)) == first
    assert again(other, "later") == {}


def test_transactions_that_only_the_redo_log_has_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided, and the broker died before anything of it was in a partition: a first id of both."""
    world = World()
    client = world.connect()

    def transaction(client: Client) -> None:
        client.say("BEGIN", transaction="t")
        for name in ("/queue/a", "/queue/b"):
            send(client, name, None, dedup_id="x", destination=name, transaction="t")
        client.say("COMMIT", receipt="done", transaction="t")

    transaction(client)
    first, *_ = world.take()
    first.write()
    world.kill()
    client = world.connect()
    transaction(client)
    world.settle()
    assert client.receipts() == ["done"]
    assert (stored(world, "/queue/a"), stored(world, "/queue/b")) == (["/queue/a"], ["/queue/b"])
    world.kill()
    assert list(again(world, "x")) == ["x"]


def test_a_message_that_a_failed_file_took_is_stored_when_it_comes_again() -> None:
    """It was receipted after the write, as the rule says; then syncs failed, and nothing could read it back."""
    world = World("defaults: {fsync: 50ms}", tail_bytes_max=1)
    for number in range(10):
        publish(world, number)
    segment = world.fs.nodes[layout.segment_path(layout.partition_path("/data", QUEUE), 0)].cache
    journal = world.fs.nodes["/data/journal/0000000001.rjl"].cache
    for cache in (segment, journal):
        cache[cache.index(b"dedup-id:5")] ^= 1
    world.fs.fail("fdatasync", times=2)
    for _ in range(5):
        world.tick(1)
    assert world.store.partitions[QUEUE].failed is None
    assert again(world, 4, 5, 6) == {"4": 4, "6": 6}
    for end in ENDS:
        getattr(world, end)()
        assert again(world, 4, 5, 6) == {"4": 4, "5": 10, "6": 6}
