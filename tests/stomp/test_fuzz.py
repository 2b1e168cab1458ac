"""The targets of ``fuzz/wire.py``: any bytes, every cut of what is valid, and what was valid and has changed.

The slow tests try a million changed conversations from a fixed seed; ``make fuzz`` lets atheris look for more.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.run import WIRE
from fuzz.wire import CONVERSATIONS, SMALL, TARGETS, answered, connection, cut, mutated, parser, served
from tests.broker.harness import World

assert set(WIRE) == set(TARGETS)
INDEXES = range(len(CONVERSATIONS))
A_MILLION = [pytest.param(seed, 50_000, marks=pytest.mark.slow) for seed in range(1, 11)]  # of two targets


@pytest.mark.parametrize("name", TARGETS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("index", INDEXES)
def test_a_conversation_cut_anywhere_gives_the_same_frames(index: int) -> None:
    data = CONVERSATIONS[index]
    whole = served([data])
    for place in range(len(data) + 1):
        assert served([data[:place], data[place:]]) == whole, place
    assert served(cut(data, 1)) == whole


@pytest.mark.thorough
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 17])
@pytest.mark.parametrize("index", INDEXES)
def test_a_conversation_cut_anywhere_gets_the_same_answers(index: int, step: int) -> None:
    data = CONVERSATIONS[index]
    whole = answered([data])
    assert answered(cut(data, 1)) == whole, "byte by byte"
    for place in range(index % step, len(data) + 1, step):
        assert answered([data[:place], data[place:]]) == whole, place


def test_the_conversations_say_everything_that_there_is_to_say() -> None:
    said = b"".join(CONVERSATIONS)
    answers = b"".join(answered([data]) for data in CONVERSATIONS)
    for command in ("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"):
        assert command.encode() + b"\n" in said
    for command in ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"):
        assert command.encode() + b"\n" in answers
    assert sum(b"ERROR\n" not in answered([data]) for data in CONVERSATIONS) > len(CONVERSATIONS) // 2


@pytest.mark.parametrize(("seed", "rounds"), [(0, 2_000), *A_MILLION])
@pytest.mark.parametrize("target", [parser, connection])
def test_a_changed_conversation_is_parsed_or_refused(target: object, seed: int, rounds: int) -> None:
    random = Random(seed)
    for _ in range(rounds):
        data = random.randbytes(1) + mutated(random, random.choice(CONVERSATIONS))
        try:
            target(data)  # type: ignore[operator]
        except Exception as error:
            raise AssertionError(f"{data!r}") from error


@pytest.mark.parametrize("rounds", [300, pytest.param(30_000, marks=pytest.mark.slow)])
def test_a_changed_conversation_is_answered_or_refused(rounds: int) -> None:
    random = Random(rounds)
    world = World(SMALL)
    for number in range(rounds):
        data = mutated(random, random.choice(CONVERSATIONS))
        if number % 100 == 0:
            world = World(SMALL)
        try:
            answered(cut(data, random.randrange(256)), world)
        except Exception as error:
            raise AssertionError(f"{data!r}") from error
