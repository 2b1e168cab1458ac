"""Heart-beats, with a clock made of numbers."""

from __future__ import annotations

import pytest

from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.stomp.heartbeat import HeartBeat, negotiate


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"),
    [
        ((0, 0), (0, 0), (0, 0)),
        ((10, 20), (0, 0), (0, 0)),
        ((0, 0), (10, 20), (0, 0)),
        ((10, 20), (30, 40), (40, 30)),
        ((10, 20), (5, 4), (10, 20)),
        ((10, 0), (30, 40), (40, 0)),
        ((0, 20), (30, 40), (0, 30)),
        ((10, 20), (0, 40), (40, 0)),
        ((10, 20), (30, 0), (0, 30)),
    ],
)
def test_each_direction_takes_the_larger_wish_or_none(
    mine: tuple[int, int], theirs: tuple[int, int], agreed: tuple[int, int]
) -> None:
    assert negotiate(mine, theirs) == agreed


def test_both_sides_agree() -> None:
    server, client = (10_000, 20_000), (7_000, 30_000)
    assert negotiate(server, client) == negotiate(client, server)[::-1]


def test_a_beat_is_due_after_half_the_promised_silence() -> None:
    beat = HeartBeat(1_000, 0, 2.0, now_ns=0)
    assert not beat.should_send(499 * NS_PER_MS)
    assert beat.should_send(500 * NS_PER_MS)
    beat.sent(500 * NS_PER_MS)
    assert not beat.should_send(900 * NS_PER_MS)
    assert not beat.is_dead(10**15)


def test_a_peer_is_dead_after_its_silence_times_grace() -> None:
    beat = HeartBeat(0, 1_000, 2.0, now_ns=NS_PER_SECOND)
    assert not beat.is_dead(3 * NS_PER_SECOND)
    assert beat.is_dead(3 * NS_PER_SECOND + 1)
    beat.received(3 * NS_PER_SECOND)
    assert not beat.is_dead(5 * NS_PER_SECOND)
    assert not beat.should_send(10**15)


@pytest.mark.parametrize("pair", [(0, 0), (1_000, 0), (0, 1_000), (1_000, 5_000), (9_000, 1_000)])
def test_looking_again_at_the_next_check_misses_nothing(pair: tuple[int, int]) -> None:
    beat = HeartBeat(*pair, 1.5, now_ns=5)
    at = beat.next_check_ns
    assert not beat.should_send(at - 1)
    assert not beat.is_dead(at - 1)
    assert (beat.should_send(at) or beat.is_dead(at)) == (pair != (0, 0))
