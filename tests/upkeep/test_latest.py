"""Receive times in the future are found, and lowered: a log that a clock a year ahead has poisoned works again."""

from __future__ import annotations

import shutil
from copy import copy
from pathlib import Path

import pytest

from radiator import limits
from radiator.clock import NS_PER_SECOND
from radiator.errors import StorageError
from radiator.storage import archived, dedup_file, index, layout
from radiator.storage.files import FileSystem
from radiator.storage.format import clamp_times, decode, encode_batch
from radiator.storage.reader import batches, list_partitions
from radiator.upkeep.findings import Finding
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.latest import ClampTimes
from radiator.upkeep.repair import Repair
from tests.broker.harness import Client, World
from tests.clocks import both
from tests.storage.faults import FaultyFileSystem

HOUR = 3_600
YEAR = 365 * 86_400
TOPIC = "/topic/t"
RULES = """
destinations:
  - match: /topic/t
    segment: {size: 64KiB}
    retention: {age: 2h}
    dedup: {window: 1h}
  - match: /queue/*
    segment: {size: 64KiB}
"""
BODY = b"x" * 20_000


class Poisoned:
    """A store that was written an hour before, while the clock was a year ahead, and after it was put right.

    Attributes:
        now_ns: When it was put right and stopped.
        number: How many messages were sent to each destination.
    """

    def __init__(self, root: str, fs: FileSystem) -> None:
        self.root = root
        self.fs = fs
        world = World(RULES, fs=fs, root=root)
        client = world.connect()
        self.number = 0
        self._publish(world, client, 5)
        world.tick(HOUR)
        world.step(YEAR)
        world.tick(1)
        world.broker.timing.clock.accept()
        self._publish(world, client, 6)
        world.step(-YEAR)
        world.tick(1)
        self._publish(world, client, 3)
        client.subscribe("/queue/q")
        world.settle()
        for _ in range(4):
            client.ack(client.messages()[0])
            world.settle()
        world.stop()
        self.now_ns = world.now
        self.before = self.records()

    def _publish(self, world: World, client: Client, count: int) -> None:
        for _ in range(count):
            client.publish(TOPIC, BODY + b"%d" % self.number, dedup_id=self.number)
            client.publish("/queue/q", b"%d" % self.number)
            world.settle()
            self.number += 1

    @property
    def directory(self) -> str:
        return layout.partition_path(self.root, TOPIC)

    def records(self) -> dict[str, list[tuple[int, int, bytes, bytes]]]:
        """Offset, receive time, header block and body of all that is stored."""
        found: dict[str, list[tuple[int, int, bytes, bytes]]] = {}
        for partition in list_partitions(self.root, self.fs):
            rows = found.setdefault(partition.name, [])
            for batch in batches(partition, fs=self.fs):
                rows += zip(batch.offsets, batch.receive_ns, batch.blocks, batch.bodies, strict=True)
        return found

    def start(self, later_seconds: float = 0) -> World:
        """A broker starts over it, with a clock that is right."""
        world = World(RULES)
        world.fs, world.root = FileSystem(), self.root
        world.now = self.now_ns + int(later_seconds * NS_PER_SECOND)
        world.start()
        return world

    def copy(self, directory: Path) -> Poisoned:
        """The same in another place."""
        other = copy(self)
        other.root = str(directory / "data")
        shutil.copytree(self.root, other.root)
        return other


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Poisoned:
    return Poisoned(str(tmp_path_factory.mktemp("poisoned") / "data"), FileSystem())


@pytest.fixture
def store(made: Poisoned, tmp_path: Path) -> Poisoned:
    return made.copy(tmp_path)


def check(root: str, latest_ns: int) -> list[Finding]:
    return list(Fsck(root, latest_ns=latest_ns).run())


def lower(root: str, latest_ns: int, fs: FileSystem | None = None) -> list[str]:
    with ClampTimes(root, latest_ns, fs) as lowering:
        return list(lowering.run())


def test_only_the_receive_times_change_and_fsck_is_clean(store: Poisoned) -> None:
    assert sorted({finding.kind for finding in check(store.root, store.now_ns)}) == ["future"]
    sizes = {path: path.stat().st_size for path in Path(store.root).rglob("*.rlog")}
    heads = {path: path.read_bytes() for path in Path(store.root).rglob("head")}
    assert lower(store.root, store.now_ns)
    expected = {
        name: [(offset, min(time, store.now_ns), block, body) for offset, time, block, body in rows]
        for name, rows in store.before.items()
    }
    assert store.records() == expected != store.before
    assert check(store.root, store.now_ns) == []
    assert {path: path.stat().st_size for path in Path(store.root).rglob("*.rlog")} == sizes
    assert {path: path.read_bytes() for path in Path(store.root).rglob("head")} == heads
    assert lower(store.root, store.now_ns) == []


def test_a_new_message_is_received_now_and_is_found_by_time(store: Poisoned) -> None:
    lower(store.root, store.now_ns)
    world = store.start(60)
    client = world.connect()
    client.publish(TOPIC, "new")
    world.settle()
    client.subscribe(TOPIC, ack="auto", start_position=f"time:{store.now_ns + 1}")
    client.subscribe(TOPIC, id="1", ack="auto", start_position="ago:30m")
    world.settle()
    messages = client.messages()
    by_time = [each for each in messages if each.headers["subscription"] == "0"]
    assert [each.body for each in by_time] == [b"new"]
    assert by_time[0].headers["receive-time"] == str(store.now_ns + 60 * NS_PER_SECOND)
    ago = [each.body[20_000:] for each in messages if each.headers["subscription"] == "1" and each.body != b"new"]
    assert ago == [b"%d" % number for number in range(5, store.number)], "what came less than half an hour ago"
    world.stop()


def test_without_it_a_new_message_has_a_time_in_the_future(store: Poisoned) -> None:
    world = store.start(60)
    client = world.connect()
    client.publish(TOPIC, "new")
    client.subscribe(TOPIC, ack="auto", start_position="last")
    world.settle()
    (message,) = [each for each in client.messages() if each.body == b"new"]
    assert int(message.headers["receive-time"]) > store.now_ns + YEAR // 2 * NS_PER_SECOND
    world.stop()


def test_retention_by_age_removes_what_it_should(store: Poisoned) -> None:
    lower(store.root, store.now_ns)
    world = store.start(3 * HOUR)
    partition = world.broker.destination(TOPIC).feeds[0].partition
    world.connect().publish(TOPIC, "new")
    for _ in range(20):
        world.tick(11)
    assert partition.log_start_offset >= store.number - 3
    world.stop()


def test_the_window_of_ids_and_the_cursors_are_as_they_were(store: Poisoned) -> None:
    lower(store.root, store.now_ns)
    rows = dedup_file.decode(Path(layout.dedup_path(store.directory)).read_bytes()).rows
    assert max(dedup_file.columns_of(rows)[3]) == store.now_ns
    world = store.start(60)
    client = world.connect()
    client.publish(TOPIC, BODY, dedup_id=store.number - 1)
    client.subscribe("/queue/q", ack="auto")
    world.settle()
    assert world.broker.stats.duplicates == 1
    assert [int(body) for body in client.bodies()] == list(range(4, store.number))
    world.stop()
    world = store.start(2 * HOUR)
    client = world.connect()
    client.publish(TOPIC, BODY, dedup_id=store.number - 1)
    world.settle()
    assert world.broker.stats.duplicates == 0, "its window is over"
    world.stop()


def test_indexes_are_lowered_as_well(store: Poisoned) -> None:
    lower(store.root, store.now_ns)
    for path in Path(store.directory).glob("*.idx"):
        base = layout.index_base(path.name)
        assert base is not None
        assert all(entry.min_receive_ns <= store.now_ns for entry in index.decode(path.read_bytes(), base))


# --- crashes ----------------------------------------------------------------------------------------------------------


class Dying(FileSystem):
    """The process dies at the ``after``-th step that changes a directory."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def _step(self) -> None:
        self.after -= 1
        if self.after < 0:
            raise KeyboardInterrupt

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self._step()
        super().sync_dir(path)

    def fdatasync(self, fd: int) -> None:
        self._step()
        super().fdatasync(fd)


@pytest.mark.thorough
def test_a_crash_at_any_step_leaves_a_store_that_can_be_read_and_lowered_again(made: Poisoned, tmp_path: Path) -> None:
    step, died = 0, True
    while died:
        store = made.copy(tmp_path / str(step))
        try:
            lower(store.root, store.now_ns, Dying(step))
            died = False
        except KeyboardInterrupt:
            pass
        for name, rows in store.records().items():
            assert [row[:1] + row[2:] for row in rows] == [row[:1] + row[2:] for row in store.before[name]]
            assert [row[1] for row in rows] == sorted(row[1] for row in rows)
            assert {new[1] for new, old in zip(rows, store.before[name], strict=True)} <= {
                *(old[1] for old in store.before[name]),
                store.now_ns,
            }
        left = {finding.kind for finding in check(store.root, store.now_ns)}
        assert left <= {"future", "index", "leftover", "ids"}, left
        with Repair(store.root, both(store.now_ns)) as mending:
            list(mending.run(*mending.check()))
        lower(store.root, store.now_ns)
        assert check(store.root, store.now_ns) == []
        step += 1
    assert step > 10


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync", "rename", "sync_dir"])
def test_a_failure_and_a_power_cut_lose_nothing(verb: str) -> None:
    nth, failed = 0, True
    while failed:
        nth += 1
        fs = FaultyFileSystem()
        store = Poisoned("/data", fs)
        fs.fail(verb, nth)
        try:
            lower(store.root, store.now_ns, fs)
            failed = False
        except StorageError:
            pass
        fs.heal()
        fs.power_cut()
        with Repair(store.root, both(store.now_ns), fs) as mending:  # head is synced by a start
            list(mending.run(*mending.check()))
        for name, rows in store.records().items():
            assert [row[:1] + row[2:] for row in rows] == [row[:1] + row[2:] for row in store.before[name]]
            assert [row[1] for row in rows] == sorted(row[1] for row in rows)
        lower(store.root, store.now_ns, fs)
        assert list(Fsck(store.root, fs, latest_ns=store.now_ns).run()) == []
    assert nth > 2


# --- what is left alone -----------------------------------------------------------------------------------------------


def test_a_log_whose_times_an_archive_has_is_left_as_it_is(store: Poisoned) -> None:
    archived.write(FileSystem(), store.directory, store.number - 1)
    (finding,) = [each for each in check(store.root, store.now_ns) if each.path == store.directory]
    assert "are in an archive with these times" in finding.text
    said = lower(store.root, store.now_ns)
    assert any("left as it is: offsets 5 to" in each for each in said)
    assert store.records()[TOPIC] == store.before[TOPIC] and store.records()["/queue/q"] != store.before["/queue/q"]
    Path(layout.archived_path(store.directory)).unlink()
    lower(store.root, store.now_ns)
    assert check(store.root, store.now_ns) == []


def test_what_an_archive_has_may_end_before_the_wrong_times(store: Poisoned) -> None:
    archived.write(FileSystem(), store.directory, 5)
    lower(store.root, store.now_ns)
    assert check(store.root, store.now_ns) == []


def test_damage_stays_where_it_is_and_the_rest_is_lowered(store: Poisoned) -> None:
    segment = max(Path(store.directory).glob("*.rlog"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)
    lost = {finding.first_offset for finding in check(store.root, store.now_ns) if finding.kind == "damaged"}
    lower(store.root, store.now_ns)
    found = check(store.root, store.now_ns)
    assert {finding.kind for finding in found} == {"damaged"}
    assert {finding.first_offset for finding in found} == lost


def test_it_is_refused_beside_a_running_broker(store: Poisoned) -> None:
    world = store.start()
    with pytest.raises(StorageError, match="stop it first"):
        lower(store.root, store.now_ns)
    world.stop()


# --- one batch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, limits.PARTIAL_CRC_BYTES_MIN])
@pytest.mark.parametrize("level", [0, limits.ZSTD_LEVEL])
@pytest.mark.parametrize("deltas", [None, [0, 2, 9]])
def test_a_batch_of_any_kind_is_as_if_it_had_been_written_with_the_lower_times(
    size: int, level: int, deltas: list[int] | None
) -> None:
    def encoded(times: list[int]) -> bytes:
        blocks, bodies = [b"a:b\n" * 9] * 3, [b"%d" % each * size for each in range(3)]
        pieces = encode_batch(
            7, times, [1, 2, 3], None, [0, 1, 0], ["a", "b"], blocks, bodies, 0, deltas, salt=99, level=level
        )
        return b"".join(pieces)

    data = encoded([10, 20, 30])
    lowered, count = clamp_times(data, decode(data)[0], 15)
    assert lowered == encoded([10, 15, 15]) and count == 2
    one = b"".join(encode_batch(7, [20], None, None, [0], ["a"], [b""], [b"x" * size], salt=9))
    other = b"".join(encode_batch(7, [15], None, None, [0], ["a"], [b""], [b"x" * size], salt=9))
    assert clamp_times(one, decode(one)[0], 15) == (other, 1)
