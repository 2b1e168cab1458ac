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

from radiator.broker.destinations.claim import Names
from radiator.broker.named import cursor_names
from radiator.broker.queues.source import QueueSource
from radiator.errors import ProtocolError
from radiator.storage.cursor import Cursor

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.destinations.opening import Opening
    from radiator.broker.destinations.registry import Registry
    from radiator.routing.pattern import PatternSet
    from radiator.routing.policy import Policy

    PreviousUse = dict[Feed, list[tuple[Destination, Cursor]]]


def children_of(registry: Registry, name: str, policy: Policy) -> list[Destination]:
    """The queues of a parent that is about to be; those that are new are made. Raises ProtocolError."""
    children = []
    for child in policy.fan_out:
        theirs = registry.rules.policy_for(child)
        wrong = "is itself fed to others" if theirs.fan_out else "has priorities" if theirs.priority else ""
        wrong = wrong or ("" if theirs.kind == "queue" else "is a topic")
        if wrong or child == name:
            raise ProtocolError(
                "bad-destination",
                f"{name[:200]!r} cannot be fed to {child[:200]!r}: that {wrong or 'is the same'}",
                f"The rule on line {policy.rule.line} of the configuration has it in fan_out; expected other queues.",
            )
        children.append(registry.destinations.get(child) or registry.add(child, theirs))
    return children


def attach(registry: Registry, parent: Destination, children: list[Destination], fed: PreviousUse) -> None:
    """Let the children read the parent's logs, with these cursors."""
    for child in children:
        queue = child.queue
        assert queue is not None
        assert isinstance(queue.claim, Names)
        queue.claim.owned.add(parent.name)
        child.parents.append(parent)
        for consumer in queue.consumers:
            consumer.enter(parent)
    for feed in parent.feeds:
        for child, cursor in fed[feed]:
            queue = child.queue
            assert queue is not None
            there = next((each for each in queue.sources if each.feed is feed), None)
            if there is not None:  # that of another parent; or it has something of its own in the log, from before
                if there.former:
                    queue.rota.drop(there)
                    there.former = there.first = False
                    child.former.remove(feed)
                    queue.rota.rouse(there)
                there.fed = True
                continue
            source = QueueSource(queue, feed, cursor, registry.dirty_sources)
            source.fed = True
            queue.add(source)
            feed.join(source)
        if parent.policy.kind == "queue":
            registry.cursors.delete(cursor_names.of_queue(parent.name), feed.partition.name)
        feed.pin()
    for child in children:
        assert child.queue is not None
        for source in child.queue.sources:  # in logs of its own too there may be messages of the parent
            source.feed.claims_changed()
            source.feed.pin()
    registry.cursors.sync_soon()


def cursors_of(registry: Registry, opening: Opening, parent: Destination, children: list[Destination]) -> PreviousUse:
    """The cursors of the children over the logs of a parent that is about to be. Raises StorageError."""
    feeding = {parent.name: parent.policy}
    return {
        feed: [
            (child, registry.beginnings.open(opening, child.name, child.policy, feed.partition, feeding))
            for child in children
            if feed not in child.feeds
        ]
        for feed in parent.feeds
    }


def read_for(destination: Destination) -> list[Feed]:
    """The logs that have what somebody wants who looks at this destination."""
    feeds = [*destination.former, *destination.feeds]
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
