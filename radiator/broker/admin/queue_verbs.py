"""Verbs over one queue: ``queues.purge``, ``queues.pause``, ``queues.resume``.

A pause is stored, and ``queues.pause`` and ``queues.resume`` answer when it is. A durable subscription can be paused
too, by the name of its cursor.

This module checks the right over the queue. It does not know how answers are sent.

Invariant: a purge settles no message that a consumer has, and none that was sent after it began.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.admin import suggestions
from radiator.broker.admin.request import bad_request
from radiator.broker.logs import cursor_names
from radiator.broker.monitoring import figures
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Generator

    from radiator.broker.admin.request import Request, Work
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services

SETTLED_TOGETHER: Final = 100  # messages that were returned, deferred or skipped
SETTLED_A_UNIT: Final = 2  # such messages
PORTIONS_MAX: Final = 50  # of a log, because each portion looks at all returned messages
BATCH_UNITS: Final = 50  # for a batch of a shared log that is read


def purge(broker: Services, request: Request) -> Work:
    """Settle all waiting messages of the queue ``name``, scheduled ones too, in steps (``queues.purge``).

    Raises:
        ProtocolError: There is no such queue, or it is a topic or a fan-out source.
    """
    name = request.text("name")
    request.session.identity.require("admin", name)
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


class Stored:
    """Answers a request once its change is stored.

    Args:
        request: The request.
        fields: The fields of the answer.
    """

    def __init__(self, request: Request, fields: dict[str, Any]) -> None:
        self._request = request
        self._fields = fields

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Send the answer: the change is stored, or storing it has failed."""
        if failure is None:
            self._request.answer(self._fields)
            return
        what = f"{failure.message}. It applies now, and the broker tries again to store it."
        self._request.refuse(ProtocolError("storage", "the change could not be stored", what))


def pause(broker: Services, request: Request) -> Work | None:
    """Deliver no more messages of a queue (``queues.pause``), also after a restart.

    Raises:
        ProtocolError: There is no such queue, or it cannot be paused.
    """
    name = request.text("name")
    cursor, queue = _find(broker, request, name)
    if queue is None:
        return _refuse_unknown(broker, request, name)
    queue.pause()
    pauses = broker.registry.pauses
    pauses.pause(cursor, request.now.wall)
    _answer(broker, request, cursor, {"name": name, "paused": True})
    return None


def resume(broker: Services, request: Request) -> Work | None:
    """Deliver the messages of a queue again (``queues.resume``). A queue that is not paused is left as it is.

    Raises:
        ProtocolError: There is no such queue, and no pause of one.
    """
    name = request.text("name")
    cursor, queue = _find(broker, request, name)
    pauses = broker.registry.pauses
    if queue is not None:
        queue.resume()
        broker.ready.queue(queue)
    elif not pauses.has(cursor):
        return _refuse_unknown(broker, request, name)
    pauses.remove(cursor)
    _answer(broker, request, cursor, {"name": name, "paused": False})
    return None


def _refuse_unknown(broker: Services, request: Request, name: str) -> Work:
    """Refuse a request for a queue or durable subscription that does not exist, in steps.

    Raises:
        ProtocolError: Always, with the closest name that the client may pause.
    """
    if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)):
        raise (yield from suggestions.not_found(broker, "cursor", name, broker.durable.by_key))
    name = name.removeprefix(cursor_names.QUEUE)
    shown = partial(request.session.rights.may, "admin")
    raise (yield from suggestions.not_found(broker, "queue", name, broker.destinations, shown))


def _answer(broker: Services, request: Request, cursor: str, fields: dict[str, Any]) -> None:
    pauses = broker.registry.pauses
    if pauses.is_stored(cursor):
        request.answer(fields)
    else:
        pauses.wait(Stored(request, fields))


def _find(broker: Services, request: Request, name: str) -> tuple[str, Queue | None]:
    """Return the name of a queue's cursors, and the queue if it exists.

    ``name`` is that of a queue, or of a cursor with its prefix: ``sub:NAME`` and ``group:NAME`` are durable
    subscriptions.

    Raises:
        ProtocolError: The client has no right over it, or it is no queue.
    """
    if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)):
        request.session.identity.require_all("admin")
        durable = broker.durable.by_key.get(name)
        return name, None if durable is None else durable.queue
    name = name.removeprefix(cursor_names.QUEUE)
    request.session.identity.require("admin", name)
    cursor = cursor_names.of_queue(name)
    destination = broker.destinations.get(name)
    if destination is None or broker.registry.pauses.has(cursor):
        return cursor, None if destination is None else destination.queue
    if name.startswith(TEMPORARY):
        raise ProtocolError("unsupported", "a temporary queue cannot be paused", "It ends with its connection.")
    if destination.is_parent:
        bound = ", ".join(destination.policy.fan_out)
        raise ProtocolError(
            "unsupported",
            f"{name[:200]!r} has fan_out and delivers nothing itself",
            f"Pause its bound queues: {bound}.",
        )
    if destination.queue is None:
        raise ProtocolError(
            "unsupported",
            f"{name[:200]!r} is a topic, and only queues can be paused",
            "A durable subscription or a group can be paused by its name: sub:NAME or group:NAME.",
        )
    return cursor, destination.queue
