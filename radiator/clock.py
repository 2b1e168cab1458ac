"""Time, as the core sees it.

The core never asks what time it is: every entry point takes ``now_ns``, nanoseconds since the Unix epoch (UTC).
Only the shells (server, CLI, client) read this clock; a simulation passes its own numbers.
"""

from __future__ import annotations

import time

NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000


def now_ns() -> int:
    """The wall clock, in nanoseconds since the Unix epoch."""
    return time.time_ns()


def monotonic_ns() -> int:
    """A clock that never steps, in nanoseconds since an arbitrary point; for time-outs and heart-beats."""
    return time.monotonic_ns()
