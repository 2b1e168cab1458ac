"""``maintenance.run`` and ``maintenance.status``: maintenance on request.

This module knows requests and the run (``maintenance_run``). It does not know the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.admin.request import Answer, bad_request
from radiator.broker.maintenance_run import TASKS
from radiator.routing.pattern import parse_list

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.services import Services


def run(broker: Services, request: Request) -> Answer | None:
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


def status(broker: Services, request: Request) -> Answer:
    """Return the progress of the run, or the result of the last one (``maintenance.status``)."""
    return broker.maintenance_run.progress()
