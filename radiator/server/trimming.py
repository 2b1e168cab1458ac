"""Memory that a flood of clients has left free goes back to the system.

Freed blocks lie between blocks that stay, so the allocator keeps them: after 200 halves of frames, of 3 MB each, the
process stayed at 322 MiB although it held next to nothing. A look at ``limits.memory``'s account is cheap; only when
much less is held than before is the allocator made to return what is free.

Knows: the account. Must not know: who held what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from radiator import clock, limits, malloc
from radiator.clock import MonoNs

if TYPE_CHECKING:
    from radiator.memory import MemoryAccount

FREED_BYTES: Final = 8 * limits.MIB  # less is not worth the work
PAUSE_NS: Final = 3 * clock.NS_PER_SECOND  # a flood that comes again at once finds its memory still there


class Trimming:
    """The looks at one account.

    Args:
        account: what clients hold.
        aside: runs a function on a thread beside the event loop.
    """

    __slots__ = ("_account", "_aside", "_fallen_ns", "_peak_bytes")

    def __init__(self, account: MemoryAccount, aside: Callable[[Callable[[], object]], None]) -> None:
        self._account = account
        self._aside = aside
        self._peak_bytes = 0  # since the last trim
        self._fallen_ns: MonoNs | None = None  # when ``FREED_BYTES`` less than that were in use, and have been since

    def check(self, now_ns: MonoNs) -> None:
        """Called regularly: trim once ``FREED_BYTES`` have been free for ``PAUSE_NS``."""
        used = self._account.bytes
        self._peak_bytes = max(self._peak_bytes, used)
        if self._peak_bytes - used < FREED_BYTES:
            self._fallen_ns = None
        elif self._fallen_ns is None:
            self._fallen_ns = now_ns
        elif now_ns - self._fallen_ns >= PAUSE_NS:
            self._peak_bytes, self._fallen_ns = used, None
            self._aside(malloc.trim)
