"""``overview`` and ``rates``: what is wrong first, then the numbers of the whole broker.

This module changes nothing. The survey of the monitor finds problems of queues and consumers; the others are read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.admin import gauges, lists, readiness
from radiator.broker.monitoring.history import STEP_NS
from radiator.broker.monitoring.survey import Problem
from radiator.clock import NS_PER_SECOND
from radiator.errors import printable
from radiator.words import are, counted

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.admin.view import View
    from radiator.broker.services import Services

SHOWN_MAX: Final = 50
PROBLEM_UNITS: Final = 2
FIGURES_UNITS: Final = 1_000
RATES_UNITS: Final = 700  # per request: 360 samples of seven series
DISK_SHARE: Final = 0.05  # less of the disk is free: a problem
DISK_TIMES: Final = 2  # or less than so many times disk.min_free
SEVERITIES: Final = ("error", "warning")
KINDS: Final = (
    *("not_ready", "damage", "disk", "memory_full", "deliveries_full", "stalled_consumer", "backlog_without_consumer"),
    *("lag_grows", "dead_letters", "clock_ahead"),
)
"""The kinds of problems, in the order in which they are shown among those of one severity."""


def overview(broker: Services, request: Request) -> Work:
    """Return what is wrong, and the numbers of the broker, in steps (``overview``)."""
    view, monitor = request.view, broker.monitor
    found: list[tuple[Any, ...]] = []  # problems with their place in the order, which is unique
    own = list(_of_broker(broker, view))
    for number, problem in enumerate((*own, *monitor.survey.problems)):
        broker.budget.spend(PROBLEM_UNITS)
        yield True
        name = problem.destination
        if view.everything or number < len(own) or (name is not None and view.shows(name)):
            place = (SEVERITIES.index(problem.severity), KINDS.index(problem.kind), -(problem.value or 0), number)
            found.append((*place, problem))
    runs = yield from lists.sorted_runs(broker.budget, found)
    shown = [problem for *_, problem in islice(merge(*runs), SHOWN_MAX)]
    broker.budget.spend(FIGURES_UNITS)
    yield True
    reasons = readiness.reasons(broker)
    return {
        "problems": [each._asdict() for each in shown],
        "more_problems": max(0, len(found) - SHOWN_MAX),
        "version": broker.server_name,
        "uptime_seconds": round(monitor.uptime_seconds, 3),
        "ready": not reasons,
        "draining": broker.draining.active,
        "reasons": reasons if view.everything else [],
        "counters": broker.stats.as_dict(),
        "now": gauges.now(broker),
        "store": broker.store.facts(),
        "disk": None if monitor.disk is None else {"free": monitor.disk[0], "size": monitor.disk[1]},
        "rates": monitor.history.rates(broker.timing.now, monitor.numbers()),
        "may_act": request.session.rights.has("admin"),
    }


def rates(broker: Services, request: Request) -> Work:
    """Return the last hour in samples of ten seconds, in steps (``rates``)."""
    broker.budget.spend(RATES_UNITS)
    yield True
    history = broker.monitor.history
    return {"step_seconds": STEP_NS // NS_PER_SECOND, "end_ns": history.end_ns, "series": history.series()}


def _of_broker(broker: Services, view: View) -> Iterator[Problem]:
    """Yield the problems that concern the broker as a whole, and damage."""
    reasons = readiness.reasons(broker)
    if not view.everything:  # they may have names of partitions
        reasons = ["messages cannot be stored now"] if reasons else []
    for text in reasons:
        yield Problem("error", "not_ready", text)
    for partition, names, damage in broker.reading.damages:
        shown = [name for name in names if view.shows(name)]
        if view.everything:
            only = names[0] if len(names) == 1 else None
            yield Problem("error", "damage", printable(f"{partition}: {damage}"), only, damage.lost)
        elif shown:
            text = f"{counted(damage.lost, 'message')} of a log {are(damage.lost)} damaged"
            yield Problem("error", "damage", text, shown[0], damage.lost)
    if view.everything:
        for text in broker.store.damages:
            yield Problem("error", "damage", printable(text))
        if damaged := broker.store.facts()["maintenance_damaged"]:
            text = f"{damaged} damaged segment{'s' if damaged > 1 else ''} found by maintenance; see the log"
            yield Problem("error", "damage", text, None, damaged)
    yield from _of_disk(broker)
    if full := broker.memory.full:
        text = f"limits.memory is used up for {', '.join(full)}: clients that need more must wait"
        yield Problem("error", "memory_full", text, None, broker.memory.figures()["total"])
    if why := broker.delivery_log.why_full():
        yield Problem("error", "deliveries_full", why, None, len(broker.recorder.blocks))
    for text in readiness.clock_held_back(broker):
        yield Problem("warning", "clock_ahead", text, None, broker.timing.clock.ahead_seconds)


def _of_disk(broker: Services) -> Iterator[Problem]:
    if broker.monitor.disk is None:
        return
    free, size = broker.monitor.disk
    if broker.files_refused is not None:
        yield Problem("error", "disk", "the disk is full: messages are refused", None, free)
    elif free < max(size * DISK_SHARE, min(broker.config.disk_min_free_bytes * DISK_TIMES, size / 2)):
        text = f"the disk is nearly full: {free / size:.1%} of {size:,} bytes are free" if size else "the disk is full"
        yield Problem("warning", "disk", text, None, free)
