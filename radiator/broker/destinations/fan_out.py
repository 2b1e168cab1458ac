"""``fan_out``: queues that get the messages of another destination, the parent, without a copy of them.

The parent's log is written once. Each child is a queue like any other, with a log and a cursor of its own for what is
sent to it directly, and one more cursor over each of the parent's logs; what of these is its own says its claim. So a
child obeys its own rule, and what all children have settled may be reclaimed.

Where a child's cursor over a log of the parent begins is in ``beginnings``.

Logs of the parent that its rule names no more are drained by each child for itself (``former``). A queue
that leaves the rule keeps its own log; its cursors over the parent's are deleted at the next start. A parent
that becomes a queue of its own begins where the slowest of its children had come to.

Knows: the registry. Must not know: subscriptions, but that those of a child are among those of the parent.
Invariant: a parent is never dropped, and neither is a child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.routing.pattern import PatternSet


def read_for(destination: Destination) -> list[Feed]:
    """The logs that have what somebody wants who looks at this destination."""
    feeds = [*destination.orphaned, *destination.feeds]
    for parent in destination.parents:
        feeds += [feed for feed in parent.feeds if feed not in feeds]
    return feeds


def is_passed_over(destination: Destination, patterns: PatternSet, browser: bool) -> bool:
    """True if a SUBSCRIBE to these patterns takes no part in this destination: a parent that is a queue has no
    consumers. Raises ProtocolError if it is named."""
    if browser or not destination.is_parent:
        return False
    if destination.name in patterns.names:
        policy = destination.policy
        raise ProtocolError(
            "bad-destination",
            f"the messages of {destination.name[:200]!r} go to other queues",
            f"Expected one of {', '.join(policy.fan_out)}; or browser:true, to look at them without taking them. The "
            f"rule on line {policy.rule.line} of the configuration says fan_out.",
        )
    return True
