"""Priority levels: the logs of a queue with priorities, one for each level, created at first use.

``Destination.choose`` reads the level of a message from its header ``priority``. The sources of such a queue are
ordered from the highest level to the lowest, and a level is served only while all higher levels are empty. Everything
else (order, requeue in the original place, restart) is as in any log.

The module knows levels and their order, but not consumers or records.
Invariant: the log of the default priority exists as long as the queue, so a reader of the queue is found there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.routing.rules import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from radiator.routing.policy import Policy

_PRIORITY_LOG = re.compile(r"-p([0-9])\Z", re.ASCII)


def first_logs(policy: Policy, stored: Mapping[str, object]) -> list[str]:
    """Return the logs that a new destination starts with: the default priority, and the levels that are ``stored``."""
    names = policy.partitions
    return [name for priority, name in enumerate(names) if priority == DEFAULT_PRIORITY or name in stored]


def priority_of_log(partition: str) -> int:
    """Return the priority level of an orphaned partition by its name; the default for other logs."""
    found = _PRIORITY_LOG.search(partition)
    return DEFAULT_PRIORITY if found is None else int(found[1])
