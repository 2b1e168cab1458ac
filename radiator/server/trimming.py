"""Return memory to the system after many clients have released it.

Freed blocks lie between blocks in use, so the allocator keeps them: after 200 half-received frames of 3 MB each the
process stayed at 322 MiB although it held almost nothing. Comparing the account of ``limits.memory`` is cheap; the
allocator is trimmed only if much less is in use than before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from radiator import clock, limits, malloc
from radiator.clock import MonoNs

if TYPE_CHECKING:
    from radiator.memory import MemoryAccount

FREED_BYTES: Final = 8 * limits.MIB  # less is not worth a trim
PAUSE_NS: Final = 3 * clock.NS_PER_SECOND  # memory that is needed again at once is not returned


class Trimming:
    """Watch one memory account.

    Args:
        account: The memory that clients hold.
        aside: Runs a function on a thread beside the event loop.
    """

    __slots__ = ("_account", "_aside", "_fallen_ns", "_peak_bytes")

    def __init__(self, account: MemoryAccount, aside: Callable[[Callable[[], object]], None]) -> None:
        self._account = account
        self._aside = aside
        self._peak_bytes = 0  # since the last trim
        self._fallen_ns: MonoNs | None = None  # since when ``FREED_BYTES`` less than that are in use

    def check(self, now_ns: MonoNs) -> None:
        """Trim the allocator if ``FREED_BYTES`` have been free for ``PAUSE_NS``. Called regularly."""
        used = self._account.take_peak()  # not ``bytes``: a flood may come and go between two checks
        self._peak_bytes = max(self._peak_bytes, used)
        if self._peak_bytes - used < FREED_BYTES:
            self._fallen_ns = None
        elif self._fallen_ns is None:
            self._fallen_ns = now_ns
        elif now_ns - self._fallen_ns >= PAUSE_NS:
            self._peak_bytes, self._fallen_ns = used, None
            self._aside(malloc.trim)
