"""Priority levels: the logs of a queue with priorities, one for each level, created at first use.

The priority level of a message is its header ``priority``. The sources of such a queue are ordered from the highest
level to the lowest, and a level is served only while all higher levels are empty. Everything else (order, requeue in
the original place, restart) is as in any log.

The module knows levels and their order, but not consumers or records.
Invariant: the log of the default priority exists as long as the queue, so a reader of the queue is found there.
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
    """Return the priority of a message, 0 to 9. A number outside of this range counts as the nearest in it.

    Raises:
        ProtocolError: The header is not a number (bad-header).
    """
    text = headers.get("priority")
    if text is None:
        return DEFAULT_PRIORITY
    if _NUMBER.fullmatch(text) is None:
        raise ProtocolError(
            "bad-header",
            f"header priority: not a number: {text[:100]!r}",
            f"Expected 0 to {PRIORITIES - 1}, because the rule of the destination sets priority: true.",
        )
    return min(max(int(text), 0), PRIORITIES - 1)


def first_logs(policy: Policy, stored: Mapping[str, object]) -> list[str]:
    """Return the logs that a new destination starts with: the default priority, and the levels that are ``stored``."""
    names = policy.partitions
    return [name for priority, name in enumerate(names) if priority == DEFAULT_PRIORITY or name in stored]


def priority_of_log(partition: str) -> int:
    """Return the priority level of an orphaned partition by its name; the default for other logs."""
    found = _PRIORITY_LOG.search(partition)
    return DEFAULT_PRIORITY if found is None else int(found[1])
