"""Both clocks in tests: a wall clock and a monotonic one that start far apart, so that no test confuses them."""

from __future__ import annotations

from typing import Any

from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS

APART_NS = 1_699_995_000 * NS_PER_SECOND  # between the two, as long as no clock steps


def mono(wall_ns: int) -> MonoNs:
    """The monotonic time at which the wall clock shows ``wall_ns``, if it has not stepped."""
    return MonoNs(wall_ns - APART_NS)


def both(wall_ns: int) -> Now:
    """Both clocks when the wall clock shows ``wall_ns``, if it has not stepped."""
    return Now(WallNs(wall_ns), mono(wall_ns))


def stepped(wall_ns: int, by_ns: int) -> Now:
    """Both clocks as ``both`` says, but the wall clock has stepped ``by_ns``."""
    return Now(WallNs(wall_ns + by_ns), mono(wall_ns))


def deadline(store: Any, wall_ns: int) -> int | None:
    """What the wall clock will show at the store's next deadline, if it does not step; None if nothing is planned."""
    next_ns = store.next_deadline_ns(both(wall_ns))
    return None if next_ns == NEVER_NS else next_ns + APART_NS
