"""``queues.settle_delayed``: to settle what waits for its moment, which no consumer can be given.

Knows: queues and what they have put off. Must not know: who may ask for what (it says over which name), the wire.
Invariant: only what is below the offset that was named for its log is settled, and nothing that a consumer holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.queues.queue import QueueSource
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.services import Services

SETTLE_UNITS = 1  # of a message


def settle(broker: Services, request: Request) -> Work:
    """What the queue ``name`` has put off, up to the offsets that ``until`` names by partition, each included."""
    name = request.text("name")
    request.require(name)
    destination = broker.destinations.get(name)
    if destination is None or destination.queue is None:
        raise ProtocolError("not-found", f"there is no queue {name[:200]!r} with messages of its own")
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
    offsets = source.deferred.remove(0, stop)
    source.settle(offsets)
    return len(offsets)
