"""How long one connection may keep the loop before the others have their turn.

A round of the loop visits every connection that has bytes or frames left. What bounds a visit is time: a frame costs
five microseconds or five hundred, and sixty thousand of them fit in one read. The busy share the time of a round, so
that somebody else who sends one message waits for a round, however many they are.

Knows: the clock. Must not know: sockets, frames.
"""

from __future__ import annotations

from typing import Final

from radiator import clock, limits
from radiator.clock import NS_PER_MS

ROUND_NS: Final = 10 * NS_PER_MS  # of all that are busy: what is read together is stored and sent together
VISIT_NS_MIN: Final = NS_PER_MS // 2
CROWD: Final = 4  # more that are busy at once are read in smaller pieces, as a piece is parsed as a whole
CROWD_RECV_BYTES: Final = 8 * limits.KIB


class Visits:
    """Those of one driver."""

    __slots__ = ("_busy", "_left", "_share_ns", "_until_ns", "recv_bytes")

    def __init__(self) -> None:
        self._busy = 0  # visits of this round that gave way
        self._share_ns = ROUND_NS
        self._until_ns = 0
        self._left = 0  # bytes
        self.recv_bytes = limits.RECV_BYTES

    def begin(self, among: int = 1) -> Visits:
        """The next connection has its turn, one of so many that are known to have a turn in this round."""
        self._until_ns = clock.monotonic_ns() + min(self._share_ns, ROUND_NS // among)
        self._left = limits.RECV_VISIT_BYTES_MAX
        return self

    def over(self) -> bool:
        """True once it should give way, which it then does: it had more to do."""
        if clock.monotonic_ns() <= self._until_ns:
            return False
        self._busy += 1
        return True

    def spent(self, size: int) -> bool:
        """So many more bytes were read and done with. True if it gives way."""
        self._left -= size
        if self._left <= 0:
            self._busy += 1
            return True
        return self.over()

    def next_round(self) -> None:
        """Everybody has had a turn: those who had more to do share the time of the next one."""
        busy, self._busy = self._busy, 0
        self._share_ns = max(VISIT_NS_MIN, ROUND_NS // max(1, busy))
        self.recv_bytes = limits.RECV_BYTES if busy <= CROWD else CROWD_RECV_BYTES
