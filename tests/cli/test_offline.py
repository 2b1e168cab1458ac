"""ls and dump: what lies on the disk, beside a running broker and without one, whole and damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.common import size
from radiator.cli.main import run
from radiator.client import connect
from tests.running import BrokerProcess

CONFIG = """
version: 1
destinations:
  - match: /topic/weather.*
    partition: weather
"""
QUEUE = "%2Fqueue%2Fjobs"
FIRST_SEGMENT = "0" * 20 + ".rlog"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that still runs, with ten jobs in ten batches, three of them done, and a shared partition."""
    broker = BrokerProcess(tmp_path_factory.mktemp("filled"), CONFIG)
    broker.start()
    with connect(broker.address) as connection:
        for number in range(10):
            connection.send("/queue/jobs", f"job {number}", {"tag-n": number, "event-time": 1_357_034_400_000_000_000})
        connection.send_many([(f"/topic/weather.{name}", b"\xff") for name in ("a", "b", "c", "d", "\x1b[2J")])
        jobs = connection.subscribe("/queue/jobs")
        for _ in range(3):
            message = jobs.fetch(20)
            assert message is not None
            message.ack(receipt=True)
    yield broker
    assert broker.stop() == 0


def printed(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert run(args) == code
    return capfd.readouterr().out


def test_ls_shows_partitions_and_cursors(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    out = printed(capfd, "ls", "--data", str(filled.data))
    lines = [line.split() for line in out.splitlines()]
    jobs = next(line for line in lines if line[:1] == ["/queue/jobs"])
    assert jobs[1:5] == ["=", "0", "10", "10"]
    weather = next(line for line in out.splitlines() if line.startswith("weather"))
    assert "/topic/weather.a, /topic/weather.b and 2 more" in weather
    assert "\x1b" not in out
    cursor = next(line for line in lines if line[:1] == ["queue:/queue/jobs"])
    assert cursor[1:] == ["/queue/jobs", "3", "7"]


def test_ls_as_json(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capfd, "ls", "--data", str(filled.data), "--json"))
    jobs = next(each for each in found["partitions"] if each["partition"] == "/queue/jobs")
    assert (jobs["records"], jobs["next_offset"], jobs["segments"]) == (10, 10, 1)
    assert jobs["oldest_receive_ns"] < jobs["newest_receive_ns"]
    assert jobs["destinations"] == ["/queue/jobs"]
    cursor = next(each for each in found["cursors"] if each["cursor"] == "queue:/queue/jobs")
    assert (cursor["ack_floor"], cursor["backlog"], cursor["partition"]) == (3, 7, "/queue/jobs")


def test_ls_shows_a_queue_with_priorities_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broker = BrokerProcess(tmp_path, "destinations: [{match: /queue/*, priority: true}]")
    broker.start()
    with connect(broker.address) as connection:
        for priority in (1, 4, 4, 9):
            connection.send("/queue/urgent", "x", {"priority": priority})
        connection.send("/topic/a-p1", "x")
    assert broker.stop() == 0
    lines = printed(capfd, "ls", "--data", str(broker.data)).splitlines()
    assert [line.split()[:3] for line in lines if "urgent" in line] == [
        ["/queue/urgent-p*", "/queue/urgent", "4"],
        ["queue:/queue/urgent", "/queue/urgent-p*", "4"],
    ]
    assert sum(line.startswith("/topic/a-p1 ") for line in lines) == 1
    found = json.loads(printed(capfd, "ls", "--data", str(broker.data), "--json"))
    assert [each["records"] for each in found["partitions"] if "urgent" in each["partition"]] == [1, 2, 1]


def test_ls_shows_it_once_where_nothing_was_stored_with_the_usual_priority(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerProcess(tmp_path, "destinations: [{match: /queue/*, priority: true}]")
    broker.start()
    with connect(broker.address) as connection:
        connection.send("/queue/urgent", "x", {"priority": 3})
        connection.send("/queue/other", "x", {"priority": 4})
    assert broker.stop() == 0
    lines = printed(capfd, "ls", "--data", str(broker.data), "/queue/urgent").splitlines()
    assert [line.split()[:2] for line in lines if "urgent" in line] == [
        ["/queue/urgent-p*", "/queue/urgent"],
        ["queue:/queue/urgent", "/queue/urgent-p*"],
    ]
    assert next(line for line in lines if line.startswith("queue:")).split()[-1] == "1"
    assert not [line for line in lines if "other" in line]


def test_ls_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["ls", "--data", str(tmp_path / "nowhere")]) == 5
    assert run(["ls", "--data", str(tmp_path)]) == 5
    assert "no radiator store here" in capfd.readouterr().err
    (tmp_path / "partitions").mkdir()
    assert "contains no partitions yet" in printed(capfd, "ls", "--data", str(tmp_path))


def test_ls_of_a_name_without_messages_says_so(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    line = printed(capfd, "ls", "--data", str(filled.data), "/queue/nosuch")
    assert line == f"no partition in {filled.data} has messages of /queue/nosuch\n"


def test_dump_shows_each_record_as_it_would_be_delivered(
    filled: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = str(filled.data / "partitions" / QUEUE)
    lines = [json.loads(line) for line in printed(capfd, "dump", directory, "--json").splitlines()]
    assert [line["body"] for line in lines] == [f"job {number}" for number in range(10)]
    assert [line["offset"] for line in lines] == list(range(10))
    with connect(filled.address) as connection:
        browsed = list(connection.subscribe("/queue/jobs", start_position="first", stop_position="end"))
    for line, message in zip(lines, browsed, strict=True):
        assert line["message_id"] == message.id
        assert line["tags"] == message.tags
        assert line["event_time"] == message.event_time == 1_357_034_400_000_000_000
        assert line["receive_time"] == message.receive_time
        delivered = dict(message.headers)
        for name in ("subscription", "content-length", "replayed", "ack"):
            delivered.pop(name, None)
        assert line["headers"] == delivered
    positions = [line["position"] for line in lines]
    assert positions == sorted(positions)


def test_dump_accepts_the_format_letters_of_tail(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    segment = str(filled.data / "partitions" / QUEUE / FIRST_SEGMENT)
    assert printed(capfd, "dump", segment, "-f", "%p %o %g %s;").startswith("/queue/jobs 0 n=0 job 0;")
    assert printed(capfd, "dump", segment).splitlines()[9].endswith("/queue/jobs@9 job 9")
    batches = printed(capfd, "dump", segment, "--batches").splitlines()
    assert len(batches) == 10
    assert batches[0].startswith("0: offsets 0 to 0, 1 record, ")
    as_json = [json.loads(line) for line in printed(capfd, "dump", segment, "--batches", "--json").splitlines()]
    assert [each["base_offset"] for each in as_json] == list(range(10))


def test_dump_shows_no_control_characters(filled: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    out = printed(capfd, "dump", str(filled.data / "partitions" / "weather"))
    assert "/topic/weather.\\x1b[2J@4" in out
    assert "\x1b" not in out


@pytest.fixture
def segment(filled: BrokerProcess, tmp_path: Path) -> Path:
    """A copy of the queue's segment, on its own."""
    copy = tmp_path / FIRST_SEGMENT
    copy.write_bytes((filled.data / "partitions" / QUEUE / FIRST_SEGMENT).read_bytes())
    return copy


def test_damage_is_reported_and_skipped_and_has_its_exit_code(segment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in printed(capfd, "dump", str(segment), "--json").splitlines()]
    data = bytearray(segment.read_bytes())
    data[lines[4]["position"] + 100] ^= 1
    segment.write_bytes(data)
    assert run(["dump", str(segment), "--json"]) == 6
    out, err = capfd.readouterr()
    found: list[Any] = [json.loads(line) for line in out.splitlines()]
    assert [line.get("offset") for line in found] == [0, 1, 2, 3, None, 5, 6, 7, 8, 9]
    assert found[4]["damage"]["position"] == lines[4]["position"]
    assert found[4]["damage"]["end"] == lines[5]["position"]
    assert f"{segment}: damage at bytes {lines[4]['position']} to {lines[5]['position']}: " in err


def test_a_torn_tail_is_damage(segment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(data[: len(data) - len(data) % 8 - 16])
    assert run(["dump", str(segment), "-f", "%o "]) == 6
    out, err = capfd.readouterr()
    assert out.split() == [str(number) for number in range(9)]
    assert "damage at bytes" in err


def test_dump_of_what_is_no_segment_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    assert run(["dump", str(tmp_path / "nowhere")]) == 5
    assert run(["dump", str(tmp_path / "a.txt")]) == 2
    assert run(["dump", str(tmp_path / "empty")]) == 2
    assert run(["dump", str(tmp_path), "--batches", "-f", "%s"]) == 2
    err = capfd.readouterr().err
    assert "expected a segment file" in err and "`radiator ls --data DIR` lists the partitions" in err


def test_sizes_are_for_people() -> None:
    assert [size(count) for count in (0, 1023, 1024, 1_572_864, 2**40, 2**51)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 MiB", "1.0 TiB", "2048.0 TiB"
    ]  # fmt: skip
