"""Live windows: published by a stream, tailed by clients that know STOMP and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import stomp

from radiator.cli.live import live
from radiator.cli.main import run as command
from radiator.client import connect
from radiator.client.subscription import Subscription
from radiator.errors import ConfigError
from radiator.spark.live import publish_windows
from radiator.spark.spelling import over
from tests.running import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

MINUTE_NS = 60_000_000_000
NOON_NS = 1_356_998_400_000_000_000  # 2013-01-01T00:00:00Z, for events
WAIT = 120.0
NOW = {"availableNow": True}


def send(broker: BrokerProcess, destination: str, minutes: list[float], size: int = 10) -> None:
    with connect(broker.address) as connection:
        connection.send_many(
            (destination, b"x" * size, {"event-time": NOON_NS + int(minute * MINUTE_NS)}) for minute in minutes
        )


def published(broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    with connect(broker.address) as connection:
        return [each.json() for each in connection.subscribe(topic, start_position="first", stop_position="end")]


def counted(found: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    """The latest of each window: minute and destination to messages and bytes."""
    latest: dict[tuple[str, str], tuple[int, int]] = {}
    for each in found:
        key = (each["start"][11:16], each["destination"])
        latest[key] = max(latest.get(key, (0, 0)), (each["messages"], each["bytes"]))
    return latest


def run(spark: Any, broker: BrokerProcess, to: str, checkpoint: Path, **options: Any) -> Any:
    given = {"time": "event_time", "starting_offsets": "earliest", "trigger": NOW, "query": to, **options}
    return publish_windows(
        spark, str(broker.data), f"stomp://{broker.address}", to, checkpoint=str(checkpoint), **given
    )


class Tail(stomp.ConnectionListener):
    """What a client of another house sees."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def on_message(self, frame: Any) -> None:
        self.bodies.append(json.loads(frame.body))


def until(subscription: Subscription, destination: str, messages: int) -> None:
    while (message := subscription.fetch(WAIT)) is not None:
        found = message.json()
        if (found["destination"], found["messages"]) == (destination, messages):
            return
    raise AssertionError("it did not come")


@pytest.fixture
def tail(shared_broker: BrokerProcess) -> Iterator[Tail]:
    listener = Tail()
    connection = stomp.Connection12([("127.0.0.1", shared_broker.port)])
    connection.set_listener("tail", listener)
    connection.connect(wait=True)
    connection.subscribe("/topic/ops.live", id="1")
    yield listener
    connection.disconnect()


def test_windows_are_tailed_while_messages_come(
    spark: Any, shared_broker: BrokerProcess, tmp_path: Path, tail: Tail
) -> None:
    send(shared_broker, "/topic/live.a", [0.1, 0.2, 1.5])
    options = {"destination": "/topic/live.*,/topic/ops.*", "trigger": {"processingTime": "0 seconds"}}
    query = run(spark, shared_broker, "/topic/ops.live", tmp_path / "checkpoint", **options)
    try:
        with connect(shared_broker.address) as connection:
            windows = connection.subscribe("/topic/ops.live", start_position="first")
            until(windows, "/topic/live.a", 2)
            send(shared_broker, "/topic/live.a", [0.3])
            until(windows, "/topic/live.a", 3)
            send(shared_broker, "/topic/live.b", [1.1], size=7)
            until(windows, "/topic/live.b", 1)
    finally:
        query.stop()
    found = published(shared_broker, "/topic/ops.live")
    assert counted(found) == {
        ("00:00", "/topic/live.a"): (3, 30),
        ("00:01", "/topic/live.a"): (1, 10),
        ("00:01", "/topic/live.b"): (1, 7),
    }
    assert [each for each in tail.bodies if each not in found] == []
    assert len(tail.bodies) >= 3
    assert found[0]["end"].endswith(":00.000000Z")


def test_an_epoch_that_is_run_again_publishes_nothing_twice(
    spark: Any, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    send(shared_broker, "/topic/again.a", [0.1, 0.2, 1.5, 2.5])
    options = {"destination": "/topic/again.*", "sink": {"messages_per_receipt": 1}}
    checkpoint = tmp_path / "checkpoint"
    run(spark, shared_broker, "/topic/ops.again", checkpoint, **options).awaitTermination()
    first = published(shared_broker, "/topic/ops.again")
    assert len(first) == 3
    for commit in (checkpoint / "commits").glob("*"):  # as if it had been killed before the epoch was noted as done
        commit.unlink()
    run(spark, shared_broker, "/topic/ops.again", checkpoint, **options).awaitTermination()
    assert published(shared_broker, "/topic/ops.again") == first


@pytest.mark.slow
def test_closed_windows_come_once_when_the_watermark_has_passed(
    spark: Any, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    options = {"destination": "/topic/closed.*", "closed": True, "watermark": "1 minute"}
    for minutes in ([0.1, 0.2], [0.3, 1.5], [5.0]):
        send(shared_broker, "/topic/closed.a", minutes)
        run(spark, shared_broker, "/topic/ops.closed", tmp_path / "checkpoint", **options).awaitTermination()
    found = published(shared_broker, "/topic/ops.closed")
    reported = [(each["start"][11:16], each["messages"]) for each in found]
    assert sorted(reported) == [("00:00", 3), ("00:01", 1)]  # two windows of one epoch come in any order


def test_contradictory_options_are_reported_before_the_start(
    spark: Any, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="time: expected receive_time or event_time"):
        run(spark, shared_broker, "/topic/ops.x", tmp_path, time="noon")
    with pytest.raises(ConfigError, match="option 'dedupe' is not known"):
        run(spark, shared_broker, "/topic/ops.x", tmp_path, sink={"dedupe": "row"})


def test_the_command_publishes_what_is_there(
    spark: Any, shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["report", "live", "--data", str(shared_broker.data), "--url", shared_broker.address, "--clock", "event"]
    args += ["--to", "/topic/ops.command", "--destination", "/topic/command.*", "--every", "10m", "--from", "first"]
    send(shared_broker, "/topic/command.a", [1.0, 2.0, 11.0])
    assert command([*args, "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 3
    found = [(each["start"][11:16], each["messages"]) for each in published(shared_broker, "/topic/ops.command")]
    assert sorted(found) == [("00:00", 2), ("00:10", 1)]


def test_what_the_command_publishes_is_not_counted_by_the_next_one(
    spark: Any, shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["report", "live", "--data", str(shared_broker.data), "--url", shared_broker.address, "--clock", "event"]
    args += ["--to", "/topic/own.live", "--destination", "/topic/own.*", "--every", "10m", "--from", "first"]
    send(shared_broker, "/topic/own.a", [1.0, 2.0, 11.0])
    for _ in range(2):
        assert command([*args, "--once", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["messages"] == 3


def test_the_command_reports_errors(
    spark: Any, shared_broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def reported(code: int, *args: str) -> str:
        assert command(["report", "live", *args]) == code
        return capfd.readouterr().err

    assert "no radiator store here" in reported(5, "--data", str(tmp_path))
    assert "expected a duration" in reported(2, "--every", "often")
    send(shared_broker, "/topic/wrong.a", [1.0])
    somewhere = ("--data", str(shared_broker.data), "--destination", "/topic/wrong.*", "--from", "first", "--once")
    refused = reported(2, *somewhere, "--url", shared_broker.address, "--to", "/topic/*")
    assert "bad-destination" in refused and "Traceback" not in refused


@pytest.mark.parametrize("option", ["every", "late", "trigger"])
def test_durations_reach_spark_to_the_millisecond(option: str) -> None:
    (parameter,) = [each for each in live.params if each.name == option]
    words = [parameter.process_value(click.Context(live), text) for text in ("1500ms", "1s1ms", "5m", "2000ms")]
    assert words == ["1500 milliseconds", "1001 milliseconds", "300 seconds", "2 seconds"]
    with pytest.raises(click.BadParameter, match="a second or more"):
        parameter.process_value(click.Context(live), "999ms")


def test_windows_are_as_wide_as_they_were_asked_for(
    spark: Any, shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["report", "live", "--data", str(shared_broker.data), "--url", shared_broker.address, "--clock", "event"]
    args += ["--to", "/topic/ops.narrow", "--destination", "/topic/narrow.*", "--every", "1500ms", "--late", "1500ms"]
    send(shared_broker, "/topic/narrow.a", [0.0, 0.02, 0.04])  # at 0, 1.2 and 2.4 s
    assert command([*args, "--trigger", "1500ms", "--from", "first", "--once"]) == 0
    found = [
        (each["start"][17:23], each["end"][17:23], each["messages"])
        for each in published(shared_broker, "/topic/ops.narrow")
    ]
    assert sorted(found) == [("00.000", "01.500", 2), ("01.500", "03.000", 1)]


def test_its_options_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8").partition("\n## report live\n")[2]
    own = {option for each in live.params for option in each.opts} - {
        "--url", "--login", "--user", "--passcode", "--passcode-file", "--ca", "--timeout"
    }  # fmt: skip
    assert {option for option in own if f"\n| `{option}" in text} == own


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "max_offsets_per_trigger"])
def test_a_limit_that_would_leave_records_out_is_refused(spark: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name}: .*watermark"):
        publish_windows(
            spark, str(tmp_path), "stomp://localhost:1", checkpoint=str(tmp_path / "c"), read_options={name: 400}
        )


def test_further_options_replace_ours_in_any_spelling() -> None:
    assert over({"starting_offsets": "latest", "destination": "#"}, {"startingOffsets": "earliest"}) == {
        "destination": "#",
        "startingOffsets": "earliest",
    }


def test_the_command_ends_with_the_code_of_denied_where_the_topic_may_not_be_written(
    spark: Any, start_broker: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users.yaml"
    users.write_text('users: {}\nanonymous: {browse: ">", read: ">", write: "/topic/in.>"}\n')
    broker = start_broker(f"auth: {{users_file: {users}}}\n")
    send(broker, "/topic/in.a", [1.0])
    args = ["report", "live", "--data", str(broker.data), "--url", broker.address, "--from", "first", "--once"]
    assert command([*args, "--to", "/topic/ops.denied"]) == 4
    assert "denied" in capsys.readouterr().err
