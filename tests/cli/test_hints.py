"""Hints about names that are probably slips."""

from __future__ import annotations

import pytest

from radiator.cli.hints import suggestion
from radiator.cli.main import run
from tests.running import BrokerProcess

TOPIC = "; it is a topic, as the names of queues begin with /queue/"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("topic/rooms", "topic/rooms is another destination than /topic/rooms"),
        ("/topics/a", "/topics/a is another destination than /topic/a"),
        ("/Topic/a.b/c", "/Topic/a.b/c is another destination than /topic/a.b/c"),
        ("queue/a", f"queue/a is another destination than /queue/a{TOPIC}"),
        (
            "jobs",
            f"jobs is another destination than /queue/jobs and /topic/jobs{TOPIC}",
        ),
        (
            "rooms/a.*",
            f"rooms/a.* is another destination than /queue/rooms/a.* and /topic/rooms/a.*{TOPIC}",
        ),
        ("127.0.0.1:61613", "127.0.0.1:61613 is a destination here; give the broker with --url"),
        ("stomp://broker", "stomp://broker is a destination here; give the broker with --url"),
        ("/queue/", "/queue/ has no name after the prefix /queue/; did you mean /queue/NAME?"),
        ("/topic/a*", "a* in /topic/a* is a plain name: a wildcard is a whole segment"),
        ("/queue/a.*b/c", "*b in /queue/a.*b/c is a plain name: a wildcard is a whole segment"),
        ("/queues", "/queues has no name after the prefix /queue/; did you mean /queue/NAME?"),
    ],
)
def test_a_slip_gets_a_hint(name: str, hint: str) -> None:
    assert suggestion(name) == hint


@pytest.mark.parametrize(
    "name",
    [
        "/queue/a",
        "/topic/a/b",
        "/topic/>",
        "/queue/>,/topic/a.*/b",
        "#",
        "*",
        ">",
        "/temp-queue/a",
        "/quote/a",
        "/a",
        "",
    ],
)
def test_other_names_get_none(name: str) -> None:
    assert suggestion(name) is None


def test_a_message_with_a_hint_is_sent_all_the_same(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "topic/rooms", "x", "--url", broker.address]) == 0
    out, err = capfd.readouterr()
    assert out == "1 message stored: topic/rooms offset 0\n"
    assert err == "radiator: hint: topic/rooms is another destination than /topic/rooms\n"
    assert run(["tail", "topic/rooms", "-o", "first", "-e", "--url", broker.address]) == 0
    assert capfd.readouterr().out == "x\n"
