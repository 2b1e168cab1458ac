"""Two clocks, and two types that tell their moments apart.

The wall clock says what time it is, in nanoseconds since 1970 (UTC). It can step: NTP, an operator or a hypervisor sets
it. Only moments that are stored or shown to people are wall times: receive times, expiry, ``deliver-at``, retention.
The monotonic clock never steps. Time-outs, pauses, intervals, retries and heart-beats are monotonic times.

The core reads no clock: its entry points take a ``Now``. The shells (server, CLI, client) read the clocks here, and a
simulation passes numbers of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, NewType

NS_PER_SECOND: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000

WallNs = NewType("WallNs", int)
"""A moment: nanoseconds since 1970 (UTC), by a clock that can step."""

MonoNs = NewType("MonoNs", int)
"""A moment: nanoseconds since an arbitrary point, by a clock that never steps."""


class Now(NamedTuple):
    """Both clocks, read together."""

    wall: WallNs
    mono: MonoNs


BEFORE: Final = Now(WallNs(0), MonoNs(0))
"""Earlier than every present time, on both clocks."""


# These run for each visit of a connection. A Python call costs as much as reading a clock, so these are the functions
# of ``time`` themselves, with other types.

now_ns: Callable[[], WallNs] = time.time_ns  # type: ignore[assignment]
"""Read the wall clock."""

monotonic_ns: Callable[[], MonoNs] = time.monotonic_ns  # type: ignore[assignment]
"""Read the monotonic clock."""


def now() -> Now:
    """Read both clocks."""
    return tuple.__new__(Now, (now_ns(), monotonic_ns()))
