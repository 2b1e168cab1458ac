"""The verbs that act on the broker: clients, queues, durable subscriptions, the clock, drains, maintenance, reloads.

A verb checks its arguments and passes them on; the work is done by the services of the broker. A verb whose change is
stored later answers then. Those over cursors are in ``cursor_verbs``.

This module does not know how answers are sent. It checks the right over a queue.

Invariant: a purge settles no message that a consumer has, and none that was sent after it began.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from radiator import limits
from radiator.broker.admin import suggestions
from radiator.broker.admin.request import bad_request
from radiator.broker.durable.declared import DECLARED_UNITS, parse
from radiator.broker.logs import cursor_names
from radiator.broker.maintenance_run import TASKS
from radiator.broker.monitoring import figures
from radiator.broker.reload import Outcome, ReloadRequest
from radiator.config.subscriptions import SUBSCRIPTION, DeclaredSubscription
from radiator.errors import ProtocolError, printable
from radiator.routing.pattern import parse_list
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Generator

    from radiator.broker.admin.request import Request, Work
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services

REASON_CHARS_MAX: Final = 500
SETTLED_TOGETHER: Final = 100  # messages that were returned, deferred or skipped
SETTLED_A_UNIT: Final = 2  # such messages
PORTIONS_MAX: Final = 50  # of a log, because each portion looks at all returned messages
BATCH_UNITS: Final = 50  # for a batch of a shared log that is read
WAITING_MAX: Final = 100  # requests that wait for the end of a drain


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
    request.session.require("admin", name)
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


# --- pauses -----------------------------------------------------------------------------------------------------------


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
        raise _no_queue(name)
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
        raise _no_queue(name)
    pauses.remove(cursor)
    _answer(broker, request, cursor, {"name": name, "paused": False})


def _no_queue(name: str) -> ProtocolError:
    return ProtocolError("not-found", f"there is no queue {name[:200]!r}", "`radiator ls --url ADDRESS` lists them.")


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
        request.session.require_all("admin")
        durable = broker.durable.by_key.get(name)
        return name, None if durable is None else durable.queue
    name = name.removeprefix(cursor_names.QUEUE)
    request.session.require("admin", name)
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


# --- declared subscriptions -------------------------------------------------------------------------------------------


def apply(broker: Services, request: Request) -> Work:
    """Create and change durable subscriptions, in steps (``subscriptions.apply``).

    ``subscriptions`` is a list of objects with the keys of an entry of ``subscriptions:``. With ``prune`` those that
    were declared before, and are neither in the list nor in the configuration in force, are deleted. With ``check``
    nothing changes.

    Raises:
        ProtocolError: An entry is malformed.
    """
    given = request.args.get("subscriptions")
    if not isinstance(given, list):
        raise bad_request("subscriptions: expected a list of objects", f"got {given!r}"[:200])
    by_title: dict[str, DeclaredSubscription] = {}
    for index, each in enumerate(given):
        entry = _read_subscription(each, index)
        if by_title.setdefault(entry.title, entry) is not entry:
            raise bad_request(f"subscriptions[{index}]: {entry.title} is in the list twice", "A name has one entry.")
        parse(entry, request.now.wall)
        broker.budget.spend(2 * DECLARED_UNITS)
        yield True
    wanted = list(by_title.values())
    prune = request.flag("prune")
    changes = yield from broker.declarations.plan(wanted, prune)
    applied = bool(changes) and not request.flag("check") and not any(change.refused for change in changes)
    if applied:
        yield from broker.declarations.apply(wanted, prune)
    request.done_with(changes)
    return {"changed": bool(changes), "applied": applied, "changes": [change.row() for change in changes]}


def _read_subscription(entry: Any, index: int) -> DeclaredSubscription:
    keys = {key.path: key for key in SUBSCRIPTION}
    path = f"subscriptions[{index}]"
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise bad_request(f"{path}: expected an object of texts", f"got {entry!r}"[:200])
    if not entry.keys() <= keys.keys() or ("name" in entry) == ("group" in entry) or "destination" not in entry:
        raise bad_request(f"{path}: expected destination, and name or group", f"got {entry!r}"[:200])
    try:
        return DeclaredSubscription(**{keys[name].field: keys[name].type.read(value) for name, value in entry.items()})
    except ValueError as error:
        raise bad_request(f"{path}: {error}", f"got {entry!r}"[:200]) from None


# --- the clock --------------------------------------------------------------------------------------------------------


def clock(broker: Services, request: Request) -> dict[str, Any]:
    """Return the answer to ``clock``: wall clock, trusted time, and when a step forward is confirmed."""
    return _clock_facts(broker)


def accept_clock(broker: Services, request: Request) -> dict[str, Any]:
    """Trust the wall clock as it is now (``clock.accept``). ``accepted_ns`` in the answer is how far it was ahead."""
    return {"accepted_ns": broker.timing.clock.accept(), **_clock_facts(broker)}


def _clock_facts(broker: Services) -> dict[str, Any]:
    """Return the state of the trusted clock, in nanoseconds. ``ahead_ns`` is 0 if the wall clock is right."""
    timing = broker.timing
    clock = timing.clock
    return {
        "wall_ns": timing.shown_ns,
        "trusted_ns": timing.shown_ns - clock.ahead_ns,
        "ahead_ns": clock.ahead_ns,
        "confirmed_in_ns": clock.confirmed_in_ns(timing.now.mono),
    }


# --- drains -----------------------------------------------------------------------------------------------------------


def drain(broker: Services, request: Request) -> dict[str, Any] | None:
    """Begin or cancel a drain, and return its state; with ``wait`` later, when it has ended (``broker.drain``).

    Without ``seconds``, a drain that has begun continues unchanged.
    """
    draining, now_ns = broker.draining, request.now.mono
    if request.flag("cancel"):
        draining.cancel()
        return _drain_state(broker)
    wait = request.flag("wait")
    if wait and draining.waiting >= WAITING_MAX:
        raise ProtocolError("too-many", f"{WAITING_MAX} requests wait for the end of the drain", "Leave out wait.")
    if "seconds" in request.args or not draining.active:
        draining.begin(request.number("seconds", limits.DRAIN_SECONDS, 0, limits.DRAIN_SECONDS_MAX), now_ns)
    if wait and not draining.done:
        draining.when_done(lambda: request.answer(_drain_state(broker)))
        return None
    return _drain_state(broker)


def _drain_state(broker: Services) -> dict[str, Any]:
    """Return the fields of the answer."""
    draining = broker.draining
    seconds = (
        math.ceil(draining.seconds_left(broker.timing.now.mono)) if draining.active and not draining.done else None
    )
    return {"draining": draining.active, "ends_in_seconds": seconds, "connections": draining.left}


# --- maintenance ------------------------------------------------------------------------------------------------------


def run_maintenance(broker: Services, request: Request) -> dict[str, Any] | None:
    """Run maintenance now, and answer when it has ended (``maintenance.run``).

    ``tasks`` is a list of ``TASKS``, by default all. ``match`` limits the logs to those of some destinations. With
    ``background`` the answer comes at once.

    Raises:
        ProtocolError: An argument is bad, or maintenance is running already.
    """
    tasks = request.args.get("tasks", list(TASKS))
    if not isinstance(tasks, list) or not tasks or not all(isinstance(each, str) and each in TASKS for each in tasks):
        raise bad_request(f"tasks: expected a list of {', '.join(TASKS)}", f"got {tasks!r}"[:200])
    match = request.text("match", "")
    background = request.flag("background")
    broker.maintenance_run.begin(
        tuple(each for each in TASKS if each in tasks),
        parse_list(match) if match else None,
        None if background else request.answer,
    )
    return broker.maintenance_run.progress() if background else None


def maintenance_status(broker: Services, request: Request) -> dict[str, Any]:
    """Return the progress of the run, or the result of the last one (``maintenance.status``)."""
    return broker.maintenance_run.progress()


# --- reloads ----------------------------------------------------------------------------------------------------------


def reload(broker: Services, request: Request) -> None:
    """Reload the configuration, or compare only (``config.reload``). The answer is sent later.

    With ``check`` nothing changes. ``text`` (only with ``check``) is compared instead of the file of the broker;
    ``source`` is its name in messages, and ``environ`` has the environment variables in it.

    Raises:
        ProtocolError: An argument is wrong, or this broker has no configuration file.
    """
    if broker.reloader is None:
        raise ProtocolError("unsupported", "this broker cannot reload its configuration")
    text = request.text("text") if "text" in request.args else None
    environ = request.args.get("environ", {})
    if not isinstance(environ, dict) or not all(isinstance(value, str) for value in environ.values()):
        raise bad_request("environ: expected an object of texts", f"got {environ!r}"[:200])
    check = request.flag("check")
    if text is not None and not check:
        raise bad_request("text can be compared only", "Expected check: true; a reload reads the broker's own file.")
    asked = ReloadRequest(check=check, text=text, source=request.text("source", "configuration"), environ=environ)

    def done(found: Outcome | ProtocolError) -> None:
        if isinstance(found, ProtocolError):
            request.refuse(found)
            return
        request.done_with(found.changes)
        changes = [change.row() for change in found.changes]
        request.answer({"changed": bool(changes), "applied": found.applied, "changes": changes})

    broker.reloader.begin(asked, done)
