"""Lanes: the logs of a queue with priorities, one for each priority, made when they are first used.

A message's lane is its header ``priority``. Sources of such a queue stand in it from the highest lane to the lowest,
and nothing is taken from a lane while a higher one has something (``Queue.pump``). All else (order, requeue in the
original place, restart) is what a log has anyway.

Knows: which lane, and in which order. Must not know: consumers, records.
Invariant: the lane of the default priority exists with the queue, so whoever watches the queue is found there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.errors import ProtocolError
from radiator.routing.rules import DEFAULT_PRIORITY, PRIORITIES

if TYPE_CHECKING:
    from radiator.routing.policy import Policy

_PRIORITY_LOG = re.compile(r"-p([0-9])\Z", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,9}", re.ASCII)


def priority_of(headers: Mapping[str, str]) -> int:
    """The priority of a message, 0 to 9; what lies beyond is the nearest of them. Raises ProtocolError."""
    text = headers.get("priority")
    if text is None:
        return DEFAULT_PRIORITY
    if _NUMBER.fullmatch(text) is None:
        raise ProtocolError(
            "bad-header",
            f"header priority: not a number: {text[:100]!r}",
            f"Expected 0 to {PRIORITIES - 1}, as the rule of the destination says priority: true.",
        )
    return min(max(int(text), 0), PRIORITIES - 1)


def first_logs(policy: Policy, stored: Mapping[str, object]) -> list[str]:
    """The lanes that a destination begins with: that of the default priority, and those that are ``stored``."""
    names = policy.partitions
    return [name for priority, name in enumerate(names) if priority == DEFAULT_PRIORITY or name in stored]


def priority_of_log(partition: str) -> int:
    """The priority of what a former log has: its name tells if it was a lane."""
    found = _PRIORITY_LOG.search(partition)
    return DEFAULT_PRIORITY if found is None else int(found[1])
