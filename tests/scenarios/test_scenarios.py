"""Every conversation of this directory, in memory and over TCP."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from radiator.errors import ERROR_CODES
from tests.running import BrokerProcess
from tests.scenarios.script import Conversation, MemoryStage, Play, TcpStage, conversations
from tests.tiers import sampled

ALL = list(conversations())
OVER_TCP = [each for each in ALL if not each.memory_only]
SHARING = [each for each in OVER_TCP if not each.config and not each.restarts]
ALONE = [each for each in OVER_TCP if each.config or each.restarts]  # each has a broker of its own

# Codes of the table that no conversation can reach, and why.
NOT_SPOKEN = {
    "not-stomp": "answered in the peer's language: tests/server",
    "shutting-down": "said when the broker stops: tests/server",
    "disconnected": "said to a client that an administrator disconnects: tests/broker/admin",
    "draining": "said when the broker is drained: tests/server",
    "timeout": "needs a clock: tests/server",
    "storage": "needs a broken disk: tests/broker, tests/crash",
    "internal": "needs a bug: tests/server/test_internal_errors.py",
    "bad-request": "said in the JSON of the admin channel: tests/broker",
    "rejected": "needs a schema or a middleware: tests/server/test_errors.py",
}


@pytest.mark.parametrize("conversation", ALL, ids=str)
def test_in_memory(conversation: Conversation) -> None:
    Play(conversation, MemoryStage(conversation.config)).run()


@pytest.mark.parametrize("conversation", [*sampled(SHARING, 60), *sampled(ALONE, 4)], ids=str)
def test_over_tcp(conversation: Conversation, request: pytest.FixtureRequest) -> None:
    if conversation in ALONE:
        start: Callable[..., BrokerProcess] = request.getfixturevalue("start_broker")
        broker = start(conversation.config or None)
        Play(conversation, TcpStage(broker)).run()
        assert broker.stop() == 0, broker.text()
        assert "a bug in the broker" not in broker.text()
    else:
        Play(conversation, TcpStage(request.getfixturevalue("shared_broker"))).run()


def test_titles_are_unique() -> None:
    assert [title for title, count in Counter(map(str, ALL)).items() if count > 1] == []


def test_conversations_that_share_a_broker_share_no_destination() -> None:
    conversation_of: dict[str, str] = {}
    for conversation in SHARING:
        text = "\n".join(line for _, line in conversation.lines)
        for name in set(re.findall(r"(?:/topic/|/queue/)[^\s,\"]+", text)):
            assert conversation_of.setdefault(name, str(conversation)) == str(conversation), name


def test_every_error_that_can_be_had_by_talking_is_talked_about() -> None:
    lines = [line for each in ALL for _, line in each.lines]
    heard = set(re.findall(r"error-code:(\S+)", "\n".join(lines)))
    assert heard <= set(ERROR_CODES)
    assert set(ERROR_CODES) - heard == set(NOT_SPOKEN)
