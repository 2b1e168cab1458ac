"""A broker process whose wall clock steps forward while clients are at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from radiator.cli.main import run
from tests.server.test_admin import Served
from tests.server.wire import Wire

RULES = """
destinations:
  - match: /queue/work
    ack_timeout: 60s
    redeliver: {max: 2}
"""
DAY = 86_400


class Stepping(Served):
    """The broker, and the file that says how far its clock is ahead."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, RULES)
        self.program = ["tests.server.stepping_broker"]
        self._ahead = directory / "ahead"

    def step(self, seconds: int) -> None:
        """The wall clock is ahead by so many seconds from now on."""
        new = self._ahead.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self._ahead)


@pytest.fixture
def stepping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stepping]:
    monkeypatch.setenv("STEPPED", str(tmp_path / "ahead"))
    broker = Stepping(tmp_path)
    broker.step(0)
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.text()


def test_a_message_at_work_goes_to_no_second_worker_whatever_the_clock_does(stepping: Stepping) -> None:
    with Wire(stepping) as first, Wire(stepping) as second, Wire(stepping) as probe:
        first.open().say("SUBSCRIBE", destination="/queue/work", id="0", ack="client-individual")
        probe.open().say("SUBSCRIBE", destination="/queue/probe", id="0", ack="auto")
        first.say("SEND", b"x", destination="/queue/work")
        message = first.hear("MESSAGE")
        second.open().say("SUBSCRIBE", destination="/queue/work", id="0", ack="client-individual")
        second.barrier()
        for number in range(1, 4):
            probe.say("SEND", b"%d" % number, destination="/queue/probe", delay="100s", receipt=f"r{number}")
            probe.hear("RECEIPT")
            stepping.step(120 * number)
            assert probe.hear("MESSAGE").body == b"%d" % number, "the timers were looked at after the step"
        second.barrier()  # no MESSAGE came before its receipt
        first.say("ACK", id=message.headers["ack"], receipt="done")
        first.hear("RECEIPT")
        assert stepping.ask("/stats")[1]["stats"]["ack_timeouts"] == 0


def test_an_operator_sees_a_step_and_confirms_it(stepping: Stepping, capfd: pytest.CaptureFixture[str]) -> None:
    url = ["--url", f"stomp://{stepping.address}"]
    assert run(["clock", *url]) == 0
    assert "the clock is trusted" in capfd.readouterr().out
    with Wire(stepping) as wire:
        wire.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto")
        wire.say("SEND", b"x", destination="/queue/a", delay="1h", receipt="r")
        wire.hear("RECEIPT")
        stepping.step(DAY)
        wire.hear("MESSAGE")
    assert stepping.ask("/stats")[1]["now"]["clock_ahead_seconds"] == DAY
    ready = stepping.ask("/ready")
    assert ready[0] == 200 and "stepped forward by 86400 s" in ready[1]["held_back"][0]
    assert run(["clock", *url]) == 0
    assert "the clock stepped forward by 86400 s" in capfd.readouterr().out
    assert run(["clock", "--accept", *url]) == 0
    assert "a step forward of 86400 s is confirmed" in capfd.readouterr().out
    assert stepping.ask("/ready") == (200, {"ready": True})
    assert stepping.logs("is confirmed by an operator")
