"""Lines that peers cause are bounded in number, from however many addresses; all that they cause is counted."""

from __future__ import annotations

import logging
import re

import pytest

from radiator.broker.access import Login
from radiator.broker.peer_log import FULL_PER_KIND, FULL_PER_ORIGIN, INTERVAL_NS, ORIGINS_MAX, SUMMARIES, PeerLog
from radiator.errors import ProtocolError
from tests.broker.harness import Client, World


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def counted(text: str) -> int:
    return sum(map(int, re.findall(r": (\d+) more from", text)))


def test_the_first_lines_are_written_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    peers = PeerLog()
    for number in range(10_000):
        peers.line(logging.INFO, "knocks", "10.0.0.1", "knock %d", number)
    assert caplog.messages == [f"knock {number}" for number in range(FULL_PER_ORIGIN)]
    caplog.clear()
    peers.tick(1)
    peers.tick(INTERVAL_NS)
    assert not caplog.messages
    peers.tick(INTERVAL_NS + 1)
    assert caplog.messages == [f"knocks: {10_000 - FULL_PER_ORIGIN} more from 10.0.0.1 in the last 60 s"]
    peers.line(logging.INFO, "knocks", "10.0.0.1", "knock again")
    assert caplog.messages[1:] == ["knock again"]
    peers.tick(3 * INTERVAL_NS)
    peers.tick(4 * INTERVAL_NS)
    assert len(caplog.messages) == 2  # nothing was held back


def test_kinds_and_origins_are_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    peers = PeerLog()
    for origin in ("10.0.0.1", "10.0.0.2"):
        for kind in ("knocks", "rings"):
            for _ in range(FULL_PER_ORIGIN + 1):
                peers.line(logging.INFO, kind, origin, "%s by %s", kind, origin)
    assert len(caplog.messages) == 4 * FULL_PER_ORIGIN
    peers.summarise()
    assert len(caplog.messages) == 4 * FULL_PER_ORIGIN + 4


def test_however_many_addresses_there_are_the_lines_are_few_and_the_table_small(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peers, times = PeerLog(), 3 * ORIGINS_MAX
    for number in range(times):
        for _ in range(2):
            peers.line(logging.INFO, "knocks", f"10.0.{number >> 8}.{number & 255}", "knock")
    (kind,) = peers._kinds.values()
    assert len(kind.held_back) <= ORIGINS_MAX + 1 and len(kind.written) <= FULL_PER_KIND
    peers.summarise()
    assert len(caplog.messages) == FULL_PER_KIND + SUMMARIES + 1
    assert counted(caplog.text) == 2 * times - FULL_PER_KIND
    assert "at least" in caplog.messages[-1]


def test_a_level_that_is_not_logged_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    peers = PeerLog()
    peers.line(logging.DEBUG, "knocks", "10.0.0.1", "knock")
    assert not peers._kinds and not caplog.messages


def guess(world: World) -> None:
    Client(world, "1.2").say("CONNECT", accept_version="1.2", host="test", login="eve", passcode="guess")


def test_a_wrong_login_is_one_line_and_all_of_them_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    refusal = ProtocolError("denied", "the login was refused")

    def refuse(asking: Login) -> None:
        asking.decide(refusal)

    world.broker.access.authenticator = refuse
    guess(world)
    (line,) = caplog.messages
    assert "'eve'" in line and "test" in line and "guess" not in line
    for _ in range(999):
        guess(world)
    assert len(caplog.messages) == FULL_PER_ORIGIN
    assert world.broker.stats.logins_refused == world.broker.stats.refused == 1_000


def test_frames_that_break_rules_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for number in range(1_000):
        client = world.connect()
        client.say("SUBSCRIBE", id=str(number))
    assert len(caplog.messages) == FULL_PER_ORIGIN
    assert world.broker.stats.refused == 1_000
