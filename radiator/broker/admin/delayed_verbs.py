"""``queues.settle_delayed``: settle scheduled messages of a queue, which consumers cannot get yet.

This module knows queues and their deferred messages. It does not know rights (it names the queue to check) or the wire.

Invariant: only messages up to the offset that the request names for their log are settled, and none in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.queues.queue import QueueSource
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.services import Services

SETTLE_UNITS = 1  # per message


def settle(broker: Services, request: Request) -> Work:
    """Settle deferred messages of the queue ``name``, in steps.

    ``until`` has the last offset to settle, for each partition by name.

    Raises:
        ProtocolError: There is no such queue, or an argument is bad.
    """
    name = request.text("name")
    request.require(name)
    destination = broker.destinations.get(name)
    if destination is None or destination.queue is None:
        raise ProtocolError("not-found", f"there is no queue {name[:200]!r} that stores messages")
    until = request.args.get("until")
    if not isinstance(until, dict) or not all(type(each) is int for each in until.values()):
        raise ProtocolError("bad-request", "until: expected the last offset of each partition, by its name")
    settled = 0
    for source in list(destination.queue.sources):
        count = _settle(source, until.get(source.feed.partition.name, -1) + 1)
        settled += count
        broker.budget.spend(SETTLE_UNITS * count)
        yield True
    return {"settled": settled}


def _settle(source: QueueSource, stop: int) -> int:
    offsets = [offset for offset in source.deferred.offsets() if offset < stop]
    source.settle(offsets)
    return len(offsets)
