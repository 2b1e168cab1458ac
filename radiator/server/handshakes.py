"""Limit the TLS handshakes, and the tiny frames of tunnels, that are processed in a round of the event loop.

A TLS handshake takes a millisecond of computation, and so do the tiny frames that fit into one packet. A thousand of
them must not block other connections for a second.

Invariant: between two polls of all sockets at most PER_ROUND connections are processed, or twice as many if the event
loop is late. Connections with tiny frames share the time of a round with others (``scheduler``). The rest wait.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

PER_ROUND = 8
ROUND_SECONDS = 0.001


class WaitingHandshake(Protocol):
    """A transport whose handshake is not complete, or which has unprocessed bytes."""

    def continue_handshake(self) -> None:
        """Process the next part."""


class Handshakes:
    """Schedule handshakes.

    Args:
        loop: The event loop of gevent.

    Attributes:
        in_round: The number of connections that are processed one after another in this round.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._round = 0.0  # the time of the round that is counted
        self._count = 0
        self._waiting: deque[WaitingHandshake] = deque()
        self.in_round = 1  # processed one after another
        self._timer = loop.timer(ROUND_SECONDS, ROUND_SECONDS)

    def admits(self, transport: WaitingHandshake) -> bool:
        """Return True if the transport may continue at once; else its ``continue_handshake`` is called later."""
        now = self._loop.now()
        if now != self._round:
            self._round, self._count = now, 0
        self._count += 1
        if self._count <= PER_ROUND and not self._waiting:
            return True
        self.wait(transport)
        return False

    def wait(self, transport: WaitingHandshake) -> None:
        """Call ``continue_handshake`` of this transport in a later round."""
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
        """Drop the waiting transports and stop the timer."""
        self._waiting.clear()
        self._timer.stop()
        self._timer.close()
