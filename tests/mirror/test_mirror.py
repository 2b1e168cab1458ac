"""mirror: a copy that follows a real broker is the same store, record for record, whoever is killed meanwhile."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import Message, connect
from radiator.mirror.copy import Copy
from radiator.mirror.follow import Mirror, stored_block
from radiator.storage.files import FileSystem
from radiator.storage.reader import batches, list_partitions
from tests.clocks import both
from tests.crash.asking import replay
from tests.load import QUEUE, TOPIC, Client, Consumer, Producer, Records
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
StartBroker = Callable[..., BrokerProcess]
Row = tuple[Any, ...]


def rows(data: Path) -> dict[str, dict[int, Row]]:
    """Everything that the records of a store say, by partition and offset."""
    found: dict[str, dict[int, Row]] = {}
    for partition in list_partitions(str(data)):
        records = found[partition.name] = {}
        for batch in batches(partition):
            for index, offset in enumerate(batch.offsets):
                event = batch.event_ns[index] if batch.event_ns is not None else -(1 << 63)
                transmit = batch.transmit_ns[index] if batch.transmit_ns is not None else -(1 << 63)
                name = batch.names[batch.destination_ids[index]]
                times = (batch.receive_ns[index], event, transmit)
                records[offset] = (name, *times, batch.blocks[index], batch.bodies[index])
    return found


def once(capfd: pytest.CaptureFixture[str], broker: BrokerProcess, target: Path, *more: str) -> dict[str, Any]:
    """Brings the copy up to the end, and returns the last line."""
    code = run(["mirror", "--from", broker.address, "--to", str(target), "--once", "--json", *more])
    out, err = capfd.readouterr()
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


class Following:
    """``radiator mirror`` as a process, which tells its progress line by line."""

    def __init__(self, broker: BrokerProcess, target: Path, *more: str) -> None:
        command = [sys.executable, "-m", "radiator", "mirror", "--from", broker.address, "--to", str(target), "--json"]
        command += more
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def wait_for(self, event: str, records: int = 0) -> dict[str, Any]:
        return next(each for each in self.events() if each["event"] == event and each.get("records", 0) >= records)


@pytest.mark.thorough
def test_a_mirror_is_the_same_store_though_the_broker_and_it_are_killed_under_load(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = "defaults: {segment: {size: 256KiB}, retention: {acked: keep}}"
    broker, copy, records = start_broker(config), tmp_path / "copy", Records()

    def load(number: int) -> list[Client]:
        clients: list[Client] = [Producer(broker, records, f"p{number}.{each}") for each in range(2)]
        return [*clients, Consumer(broker, records, f"c{number}")]

    clients = load(0)
    with Following(broker, copy) as following:
        records.wait_for(stored=1500, acked=50)
        broker.kill()
        following.wait_for("disconnected")
        broker.start()
        clients += load(1)
        records.wait_for(stored=1500, acked=50)
        following.process.kill()
    with Following(broker, copy) as following:
        following.wait_for("progress")
        records.wait_for(stored=500, acked=0)
        following.process.send_signal(signal.SIGTERM)
        following.wait_for("end")
        assert following.process.wait(30) == 0
    broker.kill()
    for client in clients:
        client.result()
    broker.start()
    end = once(capfd, broker, copy)
    assert end["lost"] == 0
    assert broker.stop() == 0
    original, copied = rows(broker.data), rows(copy)
    assert sorted(original) == sorted([TOPIC, QUEUE]) == sorted(copied)
    assert {name: list(found) for name, found in copied.items()} == {
        name: list(found) for name, found in original.items()
    }
    assert copied == original
    assert all(
        copied[name][offset][-1] == body for name in records.stored for offset, body in records.stored[name].items()
    )

    directory = tmp_path / "again"
    directory.mkdir()
    copy.rename(directory / "data")
    again = BrokerProcess(directory, config)
    again.start()
    try:
        for name in (TOPIC, QUEUE):
            assert replay(again, name) == {offset: row[-1] for offset, row in original[name].items()}
        assert again.stop() == 0
    finally:
        if again.running:
            again.kill()
    assert "WARNING" not in again.text()


STRANGE = {"tag-a": "b:c\\d", "tag-ü": "é\r\nx", "event-time": "2013-01-01T05:15:00Z", "content-type": "", "empty": ""}


@pytest.mark.thorough
def test_what_the_source_has_given_back_is_missing_without_complaint(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of a queue whose messages are settled go, or are written again without them: no loss, and no damage."""
    broker, copy, records = start_broker("defaults: {segment: {size: 64KiB}}"), tmp_path / "copy", Records()
    clients: list[Client] = [Producer(broker, records, "p")]
    for number in range(3):
        clients.append(Consumer(broker, records, f"c{number}"))
        records.wait_for(stored=1000, acked=300)
        once(capfd, broker, copy)
    broker.kill()
    for client in clients:
        client.result()
    broker.start()
    once(capfd, broker, copy)
    assert broker.stop() == 0
    original, copied = rows(broker.data), rows(copy)
    assert all(copied[name].items() >= original[name].items() for name in (TOPIC, QUEUE))
    assert set(records.stored[QUEUE].values()) - {row[-1] for row in copied[QUEUE].values()} <= records.acked
    mirror = Copy(str(copy))
    assert mirror.open(both(0)) == []
    mirror.close(both(0))


def test_headers_and_times_arrive_byte_for_byte(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version in ("1.0", "1.1", "1.2"):
        with connect(broker.address, version=version) as connection:
            headers = STRANGE if version != "1.0" else {"tag-a": "b", "content-length-like": "7"}
            connection.send("/topic/ü:x", b"\0\xff\n", headers)
            connection.send("/topic/bare", b"")
    with connect(broker.address, transmit_time=False) as connection:
        connection.send("/topic/bare", b"x" * 100_000)
    once(capfd, broker, tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(broker.data)
    assert any(row[2] == 1_357_017_300_000_000_000 for row in rows(tmp_path / "copy")["/topic/ü:x"].values())


def test_destinations_that_are_not_followed_are_gaps_without_a_finding(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker("destinations: [{match: '/topic/w.*', partition: shared}]")
    copy = tmp_path / "copy"
    with connect(broker.address) as connection:
        connection.send_many([(f"/topic/w.{'ab'[number % 2]}", b"%d" % number) for number in range(10)])
        connection.send("/topic/other", b"x")
        once(capfd, broker, copy, "--destinations", "/topic/w.b,/queue/>")
        connection.send_many([(f"/topic/w.{'ab'[number % 2]}", b"%d" % number) for number in range(10, 20)])
        connection.send("/queue/new", b"x")
    end = once(capfd, broker, copy, "--destinations", "/topic/w.b,/queue/>")
    assert (end["records"], end["lost"], end["partitions"]) == (6, 0, {"shared": 20, "/queue/new": 1})
    gaps: list[tuple[int, int]] = []
    for partition in list_partitions(str(copy)):
        assert list(batches(partition, 0, lambda first, last, _: gaps.append((first, last))))
    assert gaps == []
    assert run(["fsck", "--data", str(copy)]) == 0
    assert list(rows(copy)["shared"]) == list(range(1, 20, 2))
    mirror = Copy(str(copy))
    assert mirror.open(both(0)) == []
    mirror.close(both(0))


def test_what_retention_took_meanwhile_is_counted_and_no_damage_of_the_copy(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker("defaults: {segment: {size: 64KiB}, retention: {size: 128KiB}}")
    copy = tmp_path / "copy"
    with connect(broker.address) as connection:
        connection.send_many([("/topic/a", b"x" * 1000)] * 10)
        once(capfd, broker, copy)
        for _ in range(10):
            connection.send_many([("/topic/a", b"y" * 1000)] * 60)
    end = once(capfd, broker, copy)
    first = min(rows(broker.data)["/topic/a"])
    assert first > 10 and (end["lost"], end["removed"]) == (0, first - 10)
    gaps: list[tuple[int, int, bool]] = []
    (partition,) = list_partitions(str(copy))
    found = [offset for batch in batches(partition, 0, lambda *gap: gaps.append(gap)) for offset in batch.offsets]
    assert found == [*range(10), *range(first, 610)]
    assert gaps == []
    assert run(["fsck", "--data", str(copy)]) == 0
    mirror = Copy(str(copy))
    assert mirror.open(both(0)) == [] and mirror.ends == {"/topic/a": 610}
    mirror.close(both(0))


def test_what_a_queue_was_done_with_meanwhile_is_no_damage_of_the_copy(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker, copy = start_broker("defaults: {segment: {size: 64KiB}, prefetch: 1000}"), tmp_path / "copy"
    with connect(broker.address) as connection:
        connection.send_many([("/queue/a", b"x" * 1000)] * 10)
        once(capfd, broker, copy)
        connection.send_many([("/queue/a", b"y" * 1000)] * 300)
        with connection.subscribe("/queue/a") as worker:
            for _ in range(310):
                message = worker.fetch(60)
                assert message is not None
                message.ack()
        while min(rows(broker.data)["/queue/a"], default=310) <= 10:
            time.sleep(0.01)
        connection.send_many([("/queue/a", b"z")] * 5)
    end = once(capfd, broker, copy)
    assert end["lost"] == 0 and end["removed"] > 0
    assert rows(copy)["/queue/a"].keys() >= {*range(10), *range(310, 315)}
    assert run(["fsck", "--data", str(copy)]) == 0


def test_records_removed_on_purpose_are_distinguished_from_lost_ones(tmp_path: Path) -> None:
    copy = Copy(str(tmp_path / "copy"))
    copy.open(both(0))
    mirror = Mirror(copy, lambda: pytest.fail("not asked"), ["#"], once=True, report=lambda progress: None)

    def came(offset: int, **told: str) -> None:
        headers = {"partition": "p", "offset": str(offset), "receive-time": str(offset), "destination": "/topic/p"}
        mirror._take(Message({**headers, **told}, b"body", None, b"content-length:4\n"))  # type: ignore[arg-type]

    came(0)
    came(10, gap="9", **{"gap-removed": "9"})
    came(20, gap="9", **{"gap-removed": "4"})
    came(30, gap="9")
    copy.close(both(0))
    assert (copy.removed, copy.lost) == (9, 18)
    (log,) = list_partitions(str(tmp_path / "copy"))
    gaps: list[tuple[int, int, bool]] = []
    assert len(list(batches(log, 0, lambda *gap: gaps.append(gap)))) == 3
    assert gaps == [(11, 19, False), (21, 29, False)]


def test_each_partition_of_a_destination_goes_on_by_itself(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker("destinations: [{match: /topic/spread, partitions: 3}]")
    with connect(broker.address) as connection:
        for count in (7, 0, 31):
            connection.send_many([("/topic/spread", b"%d" % number) for number in range(count)])
            once(capfd, broker, tmp_path / "copy")
    found = rows(tmp_path / "copy")
    assert len(found) == 3 and found == rows(broker.data)
    assert run(["fsck", "--data", str(tmp_path / "copy")]) == 0


def test_a_source_that_is_not_the_same_log_any_more_is_refused(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker, copy = start_broker(), tmp_path / "copy"
    with connect(broker.address) as connection:
        connection.send("/topic/a", b"one")
        assert run(["backup", "--data", str(broker.data), "--to", str(tmp_path / "backup")]) == 0
        connection.send("/topic/a", b"two")
    once(capfd, broker, copy)
    assert broker.stop() == 0
    broker.data.rename(tmp_path / "old")
    assert run(["restore", str(tmp_path / "backup"), "--to", str(broker.data)]) == 0
    broker.start()
    assert run(["mirror", "--from", broker.address, "--to", str(copy), "--once"]) == 1
    assert "its log ends at 1" in capfd.readouterr().err
    with connect(broker.address) as connection:
        connection.send("/topic/a", b"other")
    assert run(["mirror", "--from", broker.address, "--to", str(copy), "--once"]) == 1
    assert "has another message at the source" in capfd.readouterr().err
    assert [row[-1] for row in rows(copy)["/topic/a"].values()] == [b"one", b"two"]


@pytest.mark.thorough
def test_a_log_in_memory_that_begins_again_is_refused_and_can_be_left_out(
    start_broker: StartBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker, copy = start_broker("destinations: [{match: /topic/memory, store: memory}]"), tmp_path / "copy"
    with connect(broker.address) as connection:
        connection.send_many([("/topic/memory", b"old")] * 5)
        connection.send("/topic/a", b"one")
    once(capfd, broker, copy)
    assert broker.stop() == 0
    broker.start()
    with connect(broker.address) as connection:
        connection.send("/topic/memory", b"new")
    assert run(["mirror", "--from", broker.address, "--to", str(copy), "--once"]) == 1
    assert "/topic/memory has no offset 4, its log ends at 1" in capfd.readouterr().err
    with Following(broker, copy, "--destinations", "/topic/a") as following:
        following.wait_for("progress")
        following.process.send_signal(signal.SIGTERM)
        assert following.process.wait(30) == 0
    assert broker.stop() == 0
    broker.start()
    with Following(broker, copy) as following:  # when it subscribes, that log is not there
        following.wait_for("progress")
        with connect(broker.address) as connection:
            connection.send("/topic/memory", b"new")
        assert following.process.wait(30) == 1
    assert rows(copy)["/topic/memory"][0][-1] == b"old"


def test_one_mirror_at_a_time_and_no_broker_beside_it(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mirror = Copy(str(tmp_path / "copy"))
    mirror.open(both(0))
    assert run(["mirror", "--from", broker.address, "--to", str(tmp_path / "copy"), "--once"]) == 1
    assert "in use by another broker" in capfd.readouterr().err
    mirror.close(both(0))
    broker.stop()
    assert run(["mirror", "--from", broker.address, "--to", str(tmp_path / "copy"), "--once"]) == 3
    assert "is a broker running there" in capfd.readouterr().err


def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["mirror", "--from", "nonsense:xx", "--to", str(tmp_path / "copy")]) == 2
    assert "nonsense:xx" in capfd.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_on_a_full_disk_it_ends_and_goes_on_when_it_is_started_again(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.address) as connection:
        connection.send_many([("/topic/a", b"x" * 100)] * 50)

    def full(fd: int, *args: Any) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".rlog"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwritev(fd, *args)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "pwritev", staticmethod(full))
        assert run(["mirror", "--from", broker.address, "--to", str(tmp_path / "copy")]) == 1
    err = capfd.readouterr().err
    assert "No space left" in err and "free some space there" in err and "retention" not in err
    assert once(capfd, broker, tmp_path / "copy")["records"] == 50
    assert rows(tmp_path / "copy") == rows(broker.data)


def test_nothing_is_called_caught_up_before_that_is_known(
    broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(broker.address) as connection:
        connection.send("/topic/a", b"x")
    assert run(["mirror", "--from", broker.address, "--to", str(tmp_path / "copy"), "--once"]) == 0
    out, err = capfd.readouterr()
    assert "1 record added; 1 partition" in out
    assert "0 records added, connected" in err and "caught up" not in err


@pytest.mark.thorough
def test_new_destinations_are_followed_as_they_come(broker: BrokerProcess, tmp_path: Path) -> None:
    with Following(broker, tmp_path / "copy") as following:
        following.wait_for("progress")
        with connect(broker.address) as connection:
            for name in ("/topic/born.later", "/queue/born", "/topic/born.later"):
                connection.send(name, b"x")
        following.wait_for("progress", records=3)
        following.process.send_signal(signal.SIGTERM)
        assert following.wait_for("end")["partitions"] == {"/topic/born.later": 2, "/queue/born": 1}
        assert following.process.wait(30) == 0
    assert rows(tmp_path / "copy") == rows(broker.data)


@pytest.mark.parametrize(
    ("raw", "block"),
    [
        (b"subscription:0\noffset:1\ncontent-length:5", b""),
        (b"content-length:5\na:b", b"a:b"),
        (b"subscription:content-length\ncontent-length:5\na:b\nc:d", b"a:b\nc:d"),
        (
            b"destination:/x\ncontent-length:0\nx-content-length:3\ncontent-length-x:4",
            b"x-content-length:3\ncontent-length-x:4",
        ),
    ],
)
def test_the_stored_block_is_what_follows_the_brokers_own_lines(raw: bytes, block: bytes) -> None:
    assert stored_block(raw) == block


def test_where_to_go_on_fits_into_a_header_and_the_longest_logs_come_first(tmp_path: Path) -> None:
    copy = Copy(str(tmp_path / "copy"))
    copy.ends = {f"/topic/{number:04d}" + "x" * 50: number for number in range(3000)}
    mirror = Mirror(copy, lambda: pytest.fail("not asked for"), ["#"], once=True, report=lambda progress: None)
    ids = mirror.start_at()["start-at"].split(",")
    assert ids[0] == f"%2Ftopic%2F2999{'x' * 50}@2998" and 500 < len(ids) < 3000
    assert len(",".join(ids)) <= 48 * 1024
    copy.ends = {"/topic/empty": 0}
    assert mirror.start_at() == {}
