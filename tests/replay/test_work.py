"""The loop with a clock that passes only when somebody waits, and a sender that is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from radiator.client.receipts import Receipt
from radiator.client.sending import Outgoing
from radiator.clock import NS_PER_SECOND
from radiator.errors import ConfigError
from radiator.export.rows import Row
from radiator.replay.messages import Targets, message
from radiator.replay.progress import Progress
from radiator.replay.schedule import Schedule, parse_speed
from radiator.replay.work import SLACK_NS, Replay
from radiator.routing.pattern import parse_list

S = NS_PER_SECOND


def row(offset: int, seconds: float, event_seconds: float | None = None, **headers: str) -> Row:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    event_ns = None if event_seconds is None else int(event_seconds * S)
    return Row("/topic/a.b", "p", offset, f"p@{offset}", int(seconds * S), event_ns, None, {}, named, b"%d" % offset)


class Stage:
    """Clock, waiting and sender in one: ``said`` is what happened, in order, with its moment."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.said: list[tuple[float, str]] = []
        self.on_receipts: Any = None
        self.gathered = 0

    def wait(self, seconds: float) -> None:
        self.said.append((self.now_ns / S, f"wait {seconds:g}"))
        self.now_ns += int(seconds * S)

    def send(self, message: Outgoing) -> None:
        self.said.append((self.now_ns / S, bytes(message.body).decode()))  # type: ignore[arg-type]
        self.gathered += 1

    def flush(self) -> None:
        count, self.gathered = self.gathered, 0
        self.on_receipts(count, [Receipt() for _ in range(count)])

    def close(self) -> None:
        self.said.append((self.now_ns / S, "end"))

    def abandon(self) -> None:
        self.said.append((self.now_ns / S, "given up"))

    def replay(self, speed: str, progress: Progress | None = None, **more: Any) -> Replay:
        def make_sender(on_receipts: Any) -> Any:
            self.on_receipts = on_receipts
            return self

        return Replay(
            make_sender, Targets("/topic/again", None), Schedule(parse_speed(speed)),
            progress or Progress(None, {}, "r"), monotonic_ns=lambda: self.now_ns, wait=self.wait, **more,
        )  # fmt: skip


def test_messages_are_sent_when_they_are_due_and_a_pause_is_one_wait() -> None:
    stage = Stage()
    result = stage.replay("2x").run([row(0, 100), row(1, 110), row(2, 110.001), row(3, 1000)])
    assert stage.said == [(0, "0"), (0, "wait 5"), (5, "1"), (5, "2"), (5, "wait 445"), (450, "3"), (450, "end")]
    assert (result.sent, result.stored) == (4, 4)


def test_a_late_replay_does_not_wait_until_it_has_caught_up() -> None:
    stage = Stage()

    def slow_rows() -> Iterator[Row]:
        yield row(0, 0)
        stage.now_ns = 7 * S
        yield row(1, 5)
        yield row(2, 6)
        yield row(3, 8)

    stage.replay("original").run(slow_rows())
    assert stage.said == [(0, "0"), (7, "1"), (7, "2"), (7, "wait 1"), (8, "3"), (8, "end")]


def test_no_wait_is_shorter_than_the_slack() -> None:
    stage = Stage()
    stage.replay("10000/s").run(row(number, 0) for number in range(1_000))
    waits = [float(what.split()[1]) * S for _, what in stage.said if what.startswith("wait")]
    assert waits and min(waits) >= SLACK_NS


def test_the_clock_may_be_that_of_the_events() -> None:
    stage = Stage()
    stage.replay("original", by_event_time=True).run([row(0, 0, 10), row(1, 99, 13), row(2, 100, 12), row(3, 101)])
    assert stage.said == [(0, "0"), (0, "wait 3"), (3, "1"), (3, "2"), (3, "3"), (3, "end")]


def test_a_stop_ends_it_between_two_messages_and_what_was_sent_is_stored() -> None:
    stage, stopping = Stage(), threading.Event()
    replay = stage.replay("original", stopping=stopping, on_step=lambda result, row: row.offset == 1 and stopping.set())
    result = replay.run([row(0, 0), row(1, 0), row(2, 0)])
    assert (result.sent, result.stored) == (2, 2)
    assert stage.said[-1] == (0, "end")


def test_an_error_gives_the_connection_up_without_a_farewell() -> None:
    stage = Stage()

    def rows() -> Iterator[Row]:
        yield row(0, 0)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        stage.replay("max").run(rows())
    assert (0, "given up") in stage.said


def test_stored_records_are_reported_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, told = Stage(), []
    progress = Progress(str(tmp_path / "progress.json"), {})
    monkeypatch.setattr(progress, "stored", lambda *place: told.append(place))
    stage.replay("original", progress=progress).run([row(3, 0), row(4, 1), row(9, 2)])
    assert told == [("p", 3), ("p", 4), ("p", 9)]


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_message_carries_what_was_said_and_where_it_is_from() -> None:
    old = row(7, 0, note="x", event_time="1", dedup_id="old", expires="5", deliver_at="6", reply_to="/temp-queue/a@s-1")
    new = message(old, "/topic/again", "r", {"note": "y", "more": "z"})
    assert new == Outgoing(
        "/topic/again",
        b"7",
        {"note": "y", "event-time": "1", "more": "z", "replayed-from": "p@7", "dedup-id": "r/p@7"},
    )
    assert message(row(1, 0, reply_to="/queue/answers"), "/q", "r", {}).headers["reply-to"] == "/queue/answers"  # type: ignore[index]


def test_a_template_names_what_the_wildcards_stood_for() -> None:
    targets = Targets("/topic/replay.{1}", parse_list("/topic/a.*,/queue/*"))
    assert targets.of("/topic/a.b") == "/topic/replay.b"
    assert targets.of("/queue/c") == "/topic/replay.c"
    assert Targets("{name}.again", None).of("/topic/a") == "/topic/a.again"
    with pytest.raises(ConfigError, match=r"expected \{name\}, \{1\} between braces, got '\{2\}'"):
        Targets("/topic/{2}", parse_list("/topic/*")).of("/topic/a")


# --- how far it came --------------------------------------------------------------------------------------------------


def test_progress_is_found_again_and_another_replay_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "progress.json")
    first = Progress(path, {"to": "/topic/a"})
    first.stored("p", 41)
    first.stored("q", 7)
    first.write()
    again = Progress(path, {"to": "/topic/a"})
    assert (again.name, again.next_offsets) == (first.name, {"p": 42, "q": 8})
    for chosen, name in (({"to": "/topic/b"}, None), ({"to": "/topic/a"}, "other")):
        with pytest.raises(ConfigError, match="belongs to another replay"):
            Progress(path, chosen, name)


def test_progress_is_written_once_a_second_at_most(tmp_path: Path) -> None:
    path, now = tmp_path / "progress.json", [0.0]
    progress = Progress(str(path), {}, monotonic=lambda: now[0])
    progress.stored("p", 0)
    before = path.read_text()
    progress.stored("p", 1)
    assert path.read_text() == before
    now[0] = 1.5
    progress.stored("p", 2)
    assert '"p": 3' in path.read_text()


def test_progress_is_on_the_disk_before_the_first_message_and_before_a_pause(tmp_path: Path) -> None:
    path, stage = tmp_path / "progress.json", Stage()
    progress = Progress(str(path), {"a": 1}, monotonic=lambda: stage.now_ns / S)
    seen: list[object] = []

    def wait(seconds: float) -> None:
        seen.append(json.loads(path.read_text())["next_offsets"])
        Stage.wait(stage, seconds)

    def rows() -> Iterator[Row]:
        yield row(0, 0)
        assert Progress(str(path), {"a": 1}).name == progress.name  # killed here, it keeps the name of its ids
        yield row(1, 0.4)
        yield row(2, 0.5)
        yield row(3, 4000)

    assert not path.exists()  # what is refused before anything is sent leaves none
    stage.wait = wait  # type: ignore[method-assign]
    stage.replay("original", progress=progress).run(rows())
    assert seen == [{}, {}, {"p": 3}]  # at most once a second, and all there is before the hour


def test_a_file_that_is_none_of_a_replay_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, eggs")
    with pytest.raises(ConfigError, match="is not a progress file of a replay"):
        Progress(str(path), {})
