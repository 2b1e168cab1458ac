"""``clients.disconnect`` and ``queues.purge``: end a connection, and settle what waits in a queue.

This module does not know how answers are sent. It checks the right over a queue.

Invariant: a purge settles no message that a consumer has, and none that was sent after it began.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from radiator.broker.admin import suggestions
from radiator.broker.admin.request import bad_request
from radiator.broker.logs import cursor_names
from radiator.broker.monitoring import figures
from radiator.errors import ProtocolError, printable

if TYPE_CHECKING:
    from collections.abc import Generator

    from radiator.broker.admin.request import Request, Work
    from radiator.broker.queues.queue import QueueSource
    from radiator.broker.services import Services

REASON_CHARS_MAX: Final = 500
SETTLED_TOGETHER: Final = 100  # messages that were returned, deferred or skipped
SETTLED_A_UNIT: Final = 2  # such messages
PORTIONS_MAX: Final = 50  # of a log, because each portion looks at all returned messages
BATCH_UNITS: Final = 50  # for a batch of a shared log that is read


def disconnect(broker: Services, request: Request) -> Work:
    """End the connection ``session`` with an ERROR ``disconnected``, in steps (``clients.disconnect``).

    Raises:
        ProtocolError: There is no such client, or it is the one that asks.
    """
    name, reason = request.text("session"), printable(request.text("reason", "")[:REASON_CHARS_MAX])
    session = broker.sessions.get(name)
    if session is None or session.closing:
        raise (yield from suggestions.not_found(broker, "client", name, broker.sessions))
    if session is request.session:
        raise bad_request("a client cannot disconnect itself", "DISCONNECT ends a connection.")
    text = "an administrator ended this connection"
    broker.refuse(session, ProtocolError("disconnected", text, reason or "No reason was given."))
    return {"disconnected": name}


def purge(broker: Services, request: Request) -> Work:
    """Settle all waiting messages of the queue ``name``, scheduled ones too, in steps (``queues.purge``).

    Raises:
        ProtocolError: There is no such queue, or it is a topic or a fan-out source.
    """
    name = request.text("name")
    request.require(name)
    destination = broker.destinations.get(name)
    if destination is None:
        if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)):
            raise bad_request(f"{name[:200]!r} is a cursor, and no queue", "cursors.set to next skips all messages.")
        shown = partial(request.session.rights.may, "admin")
        raise (yield from suggestions.not_found(broker, "queue", name, broker.destinations, shown))
    if destination.is_parent:
        bound = ", ".join(filter(request.view.shows, destination.policy.fan_out))
        raise bad_request(
            f"{name[:200]!r} has fan_out: its bound queues have the messages", f"Purge {bound or 'them'}."
        )
    queue = destination.queue
    if queue is None:
        raise bad_request(f"{name[:200]!r} is a topic, and only queues can be purged", "Retention removes its history.")
    marks = {source: source.feed.partition.next_offset for source in queue.sources}
    purged = 0
    for source, mark in marks.items():
        purged += yield from _purge(broker, source, mark)
    left = figures.counts(queue, broker.timing.shown_ns)
    return {"purged": purged, "in_flight": left["in_flight"], "dead_lettering": left["dead_lettering"]}


def _purge(broker: Services, source: QueueSource, mark: int) -> Generator[bool, None, int]:
    """Settle the messages of one log below ``mark``, and return their number."""
    partition, purged = source.feed.partition, 0

    def stored() -> bool:
        return source.closed or partition.high_watermark >= mark or partition.next_offset < mark

    def may_read() -> bool:
        return source.closed or not source.loading

    def may_settle() -> bool:
        return source.closed or not source.held_by_record

    yield from broker.background.until(stored)
    while not source.closed and source.next_offset < min(mark, partition.high_watermark):
        if may_read() and may_settle():
            purged += source.purge_fresh(mark)
        broker.budget.spend(BATCH_UNITS)
        yield True
        yield from broker.background.until(may_read)
        yield from broker.background.until(may_settle)
    waiting = source.examined_below(mark)
    together = max(SETTLED_TOGETHER, len(waiting) // PORTIONS_MAX)
    for first in range(0, len(waiting), together):
        yield from broker.background.until(may_settle)
        if source.closed:
            break
        purged += source.purge_examined(waiting[first : first + together])
        broker.budget.spend(together // SETTLED_A_UNIT)
        yield True
    yield from broker.background.until(may_settle)
    while not source.closed and (some := source.purge_skipped(mark, SETTLED_TOGETHER)):
        purged += some
        broker.budget.spend(some // SETTLED_A_UNIT + 1)
        yield True
        yield from broker.background.until(may_settle)
    return purged
