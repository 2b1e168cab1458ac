"""``fan_out``: bound queues that get the messages of another destination, the fan-out source, without a copy.

The log of the source is written once. Each bound queue is an ordinary queue with its own log and cursor for messages
sent to it directly, and one more cursor over each log of the source. Its destination filter selects its records. So a
bound queue follows its own rule, and records that all bound queues have settled may be reclaimed.

``cursor_starts`` gives the start of a bound queue's cursor over a log of the source.

Logs that the rule of the source does not name any more are drained by each bound queue (``orphaned``). A queue that is
removed from the rule keeps its own log; its cursors over the logs of the source are deleted at the next start. A source
that becomes a queue of its own starts at the position of the slowest of its bound queues.

The module knows the registry, but not subscriptions.
Invariants: neither a fan-out source nor a bound queue is ever removed. The subscriptions of a bound queue count as
subscribers of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.routing.pattern import PatternSet


def read_for(destination: Destination) -> list[Feed]:
    """Return the feeds that have the messages of a destination, for a reader that looks at it without consuming."""
    feeds = [*destination.orphaned, *destination.feeds]
    for parent in destination.parents:
        feeds += [feed for feed in parent.feeds if feed not in feeds]
    return feeds


def is_passed_over(destination: Destination, patterns: PatternSet, browser: bool) -> bool:
    """Return True if a SUBSCRIBE to these patterns skips the destination: a fan-out source that is a queue.

    Args:
        destination: A destination that matches.
        patterns: The patterns of the SUBSCRIBE.
        browser: True for a browser, which may look at the destination.

    Raises:
        ProtocolError: The SUBSCRIBE names the destination without a wildcard (bad-destination).
    """
    if browser or not destination.is_parent:
        return False
    if destination.name in patterns.names:
        policy = destination.policy
        raise ProtocolError(
            "bad-destination",
            f"{destination.name[:200]!r} has fan_out: other queues deliver its messages",
            f"Expected one of {', '.join(policy.fan_out)}, or browser:true to read without consuming. The rule on line "
            f"{policy.rule.line} of the configuration sets fan_out.",
        )
    return True
