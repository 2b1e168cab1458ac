"""How much of tunnels the loop does at a time: a handshake of TLS is a millisecond of cryptography, and so much are the
tiny frames that a peer can put into one packet. A thousand of them must not be a second in which nobody else is served.

Invariant: between two looks at all sockets few have a turn (PER_ROUND, or twice that where the loop is late), and who
looks at tiny frames shares the time of a round with the others (``visits``); what is more waits its turn.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

PER_ROUND = 8
ROUND_SECONDS = 0.001


class WaitingHandshake(Protocol):
    """A transport whose tunnel does not stand yet, or is behind."""

    def continue_handshake(self) -> None:
        """Its turn has come."""


class Handshakes:
    """``loop`` is gevent's."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._round = 0.0  # the time of the loop's round that is counted
        self._count = 0
        self._waiting: deque[WaitingHandshake] = deque()
        self.in_round = 1  # that have their turn one right behind the other
        self._timer = loop.timer(ROUND_SECONDS, ROUND_SECONDS)

    def admits(self, transport: WaitingHandshake) -> bool:
        """Whether it may go on at once; if not, its ``continue_handshake`` is called later."""
        now = self._loop.now()
        if now != self._round:
            self._round, self._count = now, 0
        self._count += 1
        if self._count <= PER_ROUND and not self._waiting:
            return True
        self.wait(transport)
        return False

    def wait(self, transport: WaitingHandshake) -> None:
        """Its ``continue_handshake`` is called later."""
        if not self._waiting:
            self._timer.again(self._continue_waiting)
        self._waiting.append(transport)

    def _continue_waiting(self) -> None:
        waiting = self._waiting
        self.in_round = min(PER_ROUND, len(waiting))
        for _ in range(self.in_round):
            waiting.popleft().continue_handshake()
        if not waiting:
            self._timer.stop()

    def stop(self) -> None:
        self._waiting.clear()
        self._timer.stop()
        self._timer.close()
