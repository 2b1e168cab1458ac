"""``queues.pause`` and ``queues.resume``: stop and continue the delivery of a queue.

A name is that of a queue, or of a cursor with its prefix: ``sub:NAME`` and ``group:NAME`` are durable subscriptions.
The change applies at once; the answer is sent once the change is stored.

This module knows destinations, durable subscriptions and the stored pauses. It does not know the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker.logs import cursor_names
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services


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


def pause(broker: Services, request: Request) -> None:
    """Deliver no more messages of a queue (``queues.pause``), also after a restart.

    Raises:
        ProtocolError: There is no such queue, or it cannot be paused.
    """
    name = request.text("name")
    cursor, queue = _find(broker, request, name)
    if queue is None:
        raise ProtocolError("not-found", f"there is no queue {name[:200]!r}", "`radiator ls --url ADDRESS` lists them.")
    queue.pause()
    pauses = broker.registry.pauses
    pauses.pause(cursor, request.now.wall)
    _answer(broker, request, cursor, {"name": name, "paused": True})


def resume(broker: Services, request: Request) -> None:
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
        raise ProtocolError("not-found", f"there is no queue {name[:200]!r}", "`radiator ls --url ADDRESS` lists them.")
    pauses.remove(cursor)
    _answer(broker, request, cursor, {"name": name, "paused": False})


def _answer(broker: Services, request: Request, cursor: str, fields: dict[str, Any]) -> None:
    pauses = broker.registry.pauses
    if pauses.is_stored(cursor):
        request.answer(fields)
    else:
        pauses.wait(Stored(request, fields))


def _find(broker: Services, request: Request, name: str) -> tuple[str, Queue | None]:
    """Return the name of a queue's cursors, and the queue if it exists.

    Raises:
        ProtocolError: The client has no right over it, or it is no queue.
    """
    if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)):
        request.session.require_all("admin")
        durable = broker.durable.by_key.get(name)
        return name, None if durable is None else durable.queue
    name = name.removeprefix(cursor_names.QUEUE)
    request.require(name)
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
