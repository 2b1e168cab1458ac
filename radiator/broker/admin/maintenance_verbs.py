"""Verbs over maintenance, and over the clock that it depends on.

These are ``maintenance.run``, ``maintenance.status``, ``clock`` and ``clock.accept``. After a step forward of the wall
clock, retention and expiry ignore the step until it is confirmed.

This module reads the arguments. ``maintenance_run`` does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker.admin.request import bad_request
from radiator.broker.maintenance_run import TASKS
from radiator.routing.pattern import parse_list

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.services import Services


def run(broker: Services, request: Request) -> dict[str, Any] | None:
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


def status(broker: Services, request: Request) -> dict[str, Any]:
    """Return the progress of the run, or the result of the last one (``maintenance.status``)."""
    return broker.maintenance_run.progress()


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
