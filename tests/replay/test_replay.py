"""``radiator replay`` between real files and a real broker."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import connect
from radiator.client.message import Message
from tests.running import BrokerProcess
from tests.spark.stores import MS, START_NS, Writer, numbered
from tests.spark.stores import Message as Record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """500 messages to a and b in one partition, and 100 to a queue in another, received in turns."""
    writer = Writer(tmp_path / "old", segment_bytes=64 << 10)
    for i in range(10):
        writer.append("ab", numbered("/topic/w.a", 25, 50 * i, tag="x"))
        writer.append("ab", numbered("/topic/w.b", 25, 50 * i + 25))
        writer.append("/queue/q", [each._replace(destination="/queue/q") for each in numbered("", 10, 50 * i)])
        writer.commit()
    writer.close()
    return str(writer.root)


def replay(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    assert run(["replay", "--speed", "max", *args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def held(broker: BrokerProcess, destination: str) -> list[Message]:
    with connect(broker.address) as connection:
        return list(connection.subscribe(destination, start_position="first", stop_position="end"))


def test_all_of_a_store_is_sent_in_the_order_of_receiving(
    shared_broker: BrokerProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = replay(capsys, "--data", store, "--to", "/topic/all", "--url", shared_broker.address)
    assert (reported["messages"], reported["stored"], reported["destinations"]) == (600, 600, {"/topic/all": 600})
    found = held(shared_broker, "/topic/all")
    numbers = [int(each.headers["number"]) for each in found]
    assert numbers == sorted(numbers)  # of two partitions, by the times of the records
    assert len({each.headers["replayed-from"] for each in found}) == 600
    third = next(each for each in found if each.headers["replayed-from"] == "ab@2")
    assert third.text == "body 2" and third.tags == {"tag": "x"}


def test_a_damaged_receive_time_changes_no_order(
    shared_broker: BrokerProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted(Path(store, "partitions", "ab").glob("*.rlog"))[0]
    data = bytearray(segment.read_bytes())
    data[24 + 7] ^= 1 << 5  # min_receive_ns of its first batch: 73 years later
    segment.write_bytes(data)
    args = ("--data", store, "--to", "/topic/odd", "--url", shared_broker.address, "--skip-damaged")
    assert replay(capsys, *args, code=6)["lost"][0]["first"] == 0
    numbers = [int(each.headers["number"]) for each in held(shared_broker, "/topic/odd")]
    assert len(numbers) > 500 and numbers == sorted(numbers)


def test_a_part_is_chosen_by_name_partition_time_offset_and_header(
    shared_broker: BrokerProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def numbers(*args: str) -> list[int]:
        name = f"/topic/part.{len(args)}.{abs(hash(args))}"
        replay(capsys, "--data", store, "--to", name, "--url", shared_broker.address, *args)
        return sorted(int(each.headers["number"]) for each in held(shared_broker, name))

    assert len(numbers("--destination", "/topic/w.*")) == 500
    assert len(numbers("--partition", "/queue/q")) == 100
    assert numbers("--destination", "/topic/w.a", "--from", "0", "--until", "9") == list(range(10))
    start, stop = START_NS + 100 * MS, START_NS + 110 * MS
    assert numbers("--destination", "/topic/>", "--from", f"@{start}", "--until", f"@{stop}") == list(range(100, 110))
    assert numbers("--where", "\"tag-tag\" = 'x' AND number >= 470 AND destination LIKE '/topic/%'") == list(
        range(470, 475)
    )
    assert numbers("--destination", "/topic/>", "--limit", "7") == list(range(7))


def test_a_template_gives_each_destination_its_own(
    shared_broker: BrokerProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--data", store, "--destination", "/topic/w.*", "--to", "/topic/again.{1}", "-H", "why:a test")
    reported = replay(capsys, *args, "--url", shared_broker.address)
    assert reported["destinations"] == {"/topic/again.a": 250, "/topic/again.b": 250}
    assert held(shared_broker, "/topic/again.b")[0].headers["why"] == "a test"


def test_the_same_id_stores_only_what_is_missing(
    shared_broker: BrokerProcess, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--data", store, "--to", "/topic/once", "--url", shared_broker.address, "--id", "monday")
    assert replay(capsys, *args, "--limit", "200")["repeats"] == 0
    assert replay(capsys, *args)["repeats"] == 200
    assert len(held(shared_broker, "/topic/once")) == 600
    replay(capsys, *args[:-2])  # without one it is another replay
    assert len(held(shared_broker, "/topic/once")) == 1200


def test_many_destinations_are_sent_to_one_only_after_a_question(
    shared_broker: BrokerProcess, store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["replay", "--speed", "max", "--data", store, "--url", shared_broker.address, "--to", "/topic/asked"]
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    monkeypatch.setattr("sys.stderr", Terminal())
    assert run(args) == 130
    question = "send the messages of all 3 destinations to /topic/asked? (--destination selects some)"
    assert capfd.readouterr().out == ""
    assert question in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert held(shared_broker, "/topic/asked") == []
    assert run([*args, "--yes"]) == 0
    assert run([*args, "--destination", "#"]) == 0
    monkeypatch.undo()
    capfd.readouterr()
    assert run(args) == 0  # a script is not asked
    assert capfd.readouterr().err.startswith("radiator: sending the messages of all 3 destinations to /topic/asked;")
    assert run([*args[:-1], "/topic/asked.{name}"]) == 0
    assert capfd.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_of_progress_goes_on_where_it_stopped(
    shared_broker: BrokerProcess, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = str(tmp_path / "notes.json")
    args = ("--data", store, "--to", "/topic/resumed", "--url", shared_broker.address, "--resume", notes)
    assert replay(capsys, *args, "--limit", "250")["messages"] == 250
    assert replay(capsys, *args)["messages"] == 350
    assert replay(capsys, *args)["messages"] == 0
    assert run(["replay", *args]) == 0
    assert capsys.readouterr().out == "sent nothing: all selected records were sent before\n"
    assert len(held(shared_broker, "/topic/resumed")) == 600


def test_a_file_of_progress_belongs_to_a_store_wherever_the_command_is_run(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.json"
    args = ["replay", "--to", "/topic/a", "--resume", str(notes), "--url", "127.0.0.1:1", "--timeout", "0.1"]
    assert run([*args, "--data", store, "--to", "/topic/{1}"]) == 2
    assert not notes.exists()  # nothing was sent
    assert run([*args, "--data", store]) == 3
    name = json.loads(notes.read_text())["name"]
    monkeypatch.chdir(Path(store).parent)
    assert run([*args, "--data", f"./{Path(store).name}"]) == 3
    assert json.loads(notes.read_text())["name"] == name
    capfd.readouterr()
    os.rename(store, tmp_path / "before")
    other = Writer(store)  # another one in its place
    other.write("ab", numbered("/topic/w.a", 3))
    other.close()
    assert run([*args, "--data", store]) == 2
    assert "belongs to another replay" in capfd.readouterr().err


def test_no_secret_of_a_uri_gets_into_a_file_of_progress(store: str) -> None:
    from radiator.cli.replay import _read_from

    assert _read_from(None, "s3://AKIA:s3cr3t@bucket/archive?token=s3cr3t")["archive"] == "s3://bucket/archive"
    assert _read_from(store, "file:///srv/a%20b")["archive"] == _read_from(store, "/srv/a b")["archive"] == "/srv/a b"


def test_a_rehearsal_says_what_would_be_sent_and_needs_no_broker(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["replay", "--data", store, "--to", "/topic/{name}", "--destination", "/topic/w.a", "--dry-run"]
    assert run([*args, "--speed", "10x", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["messages"] == 250 and reported["seconds"] == pytest.approx(0.0474)
    assert run(args) == 0
    assert "would send 250 messages" in capsys.readouterr().out
    assert run([*args, "--from", "2100-01-01T00:00:00Z"]) == 0
    assert capsys.readouterr().out == "would send nothing: no record is selected\n"


def test_what_is_wrong_is_reported_with_an_exit_code(
    store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def reported(code: int, *args: str) -> str:
        assert run(["replay", *args]) == code
        return capfd.readouterr().err

    assert "no radiator store here" in reported(5, "--data", str(tmp_path), "--to", "/topic/a")
    assert "--speed': expected original, max" in reported(2, "--data", store, "--to", "/topic/a", "--speed", "fast")
    assert "--from: expected first" in reported(2, "--data", store, "--to", "/topic/a", "--from", "monday")
    assert "--until: expected N (an offset), " in reported(2, "--data", store, "--to", "/topic/a", "--until", "monday")
    assert "between braces, got '{1}'" in reported(2, "--data", store, "--to", "/topic/{1}", "--dry-run")
    assert "--where: at character" in reported(2, "--data", store, "--to", "/topic/a", "--where", "a ==")
    again = ("--to", "/topic/a", "--from", "-1h", "--id", "monday")
    assert "changes with each run" in reported(2, "--data", store, *again)
    assert "there is no partition x; `radiator ls`" in reported(
        5, "--data", store, "--to", "/topic/a", "--partition", "x"
    )
    near = reported(5, "--data", store, "--to", "/topic/a", "--partition", "/queue/Q")
    assert "no partition /queue/Q; did you mean /queue/q?" in near
    for header in ("destination:/topic/b", "receipt:1"):
        assert "belongs to the frame" in reported(2, "--data", store, "--to", "/topic/a", "-H", header)
    away = ("--url", "127.0.0.1:1", "--timeout", "0.1", "--speed", "max")
    assert "cannot connect to 127.0.0.1:1" in reported(3, "--data", store, "--to", "/topic/a", *away)


def test_damage_is_an_error_or_skipped_and_reported(
    shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(tmp_path / "hurt")
    writer.write("p", numbered("/topic/p", 30), per_batch=10)
    writer.close()
    (segment,) = Path(writer.root, "partitions", "p").glob("*.rlog")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    segment.write_bytes(raw)
    args = ("--data", str(writer.root), "--to", "/topic/hurt", "--url", shared_broker.address)
    assert run(["replay", "--speed", "max", *args]) == 6
    assert "--skip-damaged leaves them out" in capsys.readouterr().err
    reported = replay(capsys, *args, "--id", "second", "--skip-damaged", code=6)
    assert reported["messages"] == 20
    assert reported["lost"] == [{"partition": "p", "first": 10, "last": 19, "why": "damaged or removed"}]


@pytest.fixture
def slow_replay(shared_broker: BrokerProcess, tmp_path: Path) -> Iterator[tuple[list[str], Path]]:
    """A command whose second half is an hour away, and where it notes its progress."""
    writer = Writer(tmp_path / "slow")
    writer.write("p", [*numbered("/topic/p", 50), Record("/topic/p", b"late", receive_ns=START_NS + 3_600_000 * MS)])
    writer.close()
    notes = tmp_path / "notes.json"
    command = [sys.executable, "-m", "radiator", "replay", "--data", str(writer.root)]
    yield [*command, "--url", shared_broker.address, "--resume", str(notes)], notes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_replay_that_waits_and_says_how_it_goes_on(
    slow_replay: tuple[list[str], Path], shared_broker: BrokerProcess, number: int
) -> None:
    command, notes = slow_replay
    command += ["--to", f"/topic/slow.{number}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
    with connect(shared_broker.address) as connection:
        arriving = connection.subscribe(f"/topic/slow.{number}", start_position="first")
        for _ in range(50):
            assert arriving.fetch(60) is not None
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"50 messages stored for certain" in err
    assert json.loads(notes.read_text())["next_offsets"] == {"p": 50}
