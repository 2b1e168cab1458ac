"""A bug of the broker, met over real sockets: it costs the connection that met it, and is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.test_admin import Served
from tests.server.wire import Wire

SLOW = 'destinations: [{match: "/queue/slow", rate_limit: {messages: 5, burst: 1}}]'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path, SLOW)
    broker.program = ["tests.server.buggy_broker"]
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.text()


def test_a_bug_is_answered_internal(served: Served) -> None:
    with Wire(served) as wire, Wire(served) as other:
        wire.open().say("SEND", b"x", destination="/queue/q", bug="once", receipt="r")
        (error,) = wire.rest()
        assert error.headers["error-code"] == "internal"
        assert error.headers["receipt-id"] == "r"
        other.open().barrier()
    assert served.ask("/stats")[1]["stats"]["internal_errors"] == 1
    assert served.logs("Traceback")


@pytest.mark.thorough
@pytest.mark.parametrize("receipt", ["once", "twice"])
def test_frames_before_one_that_fails_later_are_acted_on_once(served: Served, receipt: str) -> None:
    with Wire(served) as wire, Wire(served) as other:
        wire.open()
        wire.say("SEND", b"1", destination="/queue/slow")
        wire.say("SEND", b"2", destination="/queue/slow")  # waits a moment, and all behind it
        wire.say("SEND", b"once", destination="/queue/other")
        wire.say("SEND", b"x", destination="/queue/q", bug="later", receipt=receipt)
        frames = wire.rest()
        assert [frame.headers["error-code"] for frame in frames] == ["internal"] * (receipt == "once")
        other.open().say("SUBSCRIBE", destination="/queue/other", id="0", ack="auto")
        assert other.hear("MESSAGE").body == b"once"
        other.say("SEND", b"2", destination="/queue/other", receipt="sent")
        other.hear("RECEIPT")
        assert other.hear("MESSAGE").body == b"2"
    assert served.ask("/stats")[1]["stats"]["messages_in"] == 4
