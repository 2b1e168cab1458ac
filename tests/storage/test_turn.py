"""A turn tells those who wait for it once, with all that could not be stored."""

from __future__ import annotations

from radiator.storage.partition import BatchBuilder
from radiator.storage.turn import Turn


def test_waiters_are_called_when_the_last_job_has_ended() -> None:
    turn = Turn()
    first, second = BatchBuilder(0, turn), BatchBuilder(0, turn)
    turn.waiters.append("receipts")
    assert turn.begun and turn.ends(first, None) == []
    assert turn.ends(second, None) == ["receipts"]
    assert not turn.begun and not turn.waiters and not turn.failures


def test_each_failure_is_kept_and_no_other_turn_has_it() -> None:
    turn, other = Turn(), Turn()
    places = [BatchBuilder(0, turn) for _ in range(3)]
    told = [turn.ends(place, failure) for place, failure in zip(places, ["full", None, "broken"], strict=True)]
    assert told == [[], [], []] and turn.failures == {places[0]: "full", places[2]: "broken"}
    assert not other.failures and not Turn().failures
