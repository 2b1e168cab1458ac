"""Find the connections whose heart-beats are due, with a heap ordered by time.

The cost depends on the number of due connections, not of all: ten thousand quiet clients with heart-beats of 10 s cause
two thousand checks a second. Bytes that arrive or leave only change the time in the connection's ``HeartBeat``. Its
entry in the heap then comes up too early, and is inserted again at the new time.

Invariants: each open transport with heart-beats has one entry. There are fewer entries of closed transports than of
open ones, plus SPARE.
"""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from radiator.clock import MonoNs
from radiator.stomp.heartbeat import HeartBeat

SPARE = 64  # entries of closed transports that are tolerated


class HeartbeatTransport(Protocol):
    """A transport with heart-beats."""

    closed: bool
    heart_beat: HeartBeat | None

    def check_heartbeat(self, now_ns: MonoNs) -> None:
        """Send a heart-beat if one is due, or close the connection if the peer is silent for too long."""


class HeartbeatTimers:
    """The times at which heart-beats are checked, in monotonic nanoseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[MonoNs, int, Any]] = []  # (time, unique number, transport)
        self._number = 0
        self._closed = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, transport: HeartbeatTransport) -> None:
        """Check this transport from now on."""
        assert transport.heart_beat is not None
        self._push(transport.heart_beat.next_check_ns, transport)

    def drop(self) -> None:
        """Note that one of the transports was closed."""
        self._closed += 1
        if self._closed * 2 > len(self._heap) + SPARE:
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)
            self._closed = 0

    def check(self, now_ns: MonoNs) -> int:
        """Check every transport that is due, and return how many there were."""
        heap = self._heap
        checked = 0
        while heap and heap[0][0] <= now_ns:
            transport = heapq.heappop(heap)[2]
            if transport.closed:
                self._closed -= 1
                continue
            checked += 1
            heart_beat = transport.heart_beat
            sends = heart_beat.should_send(now_ns)
            transport.check_heartbeat(now_ns)
            heap = self._heap  # a close may have replaced it
            if not transport.closed:
                self._push(_next_ns(heart_beat, now_ns, sends), transport)
        return checked

    def _push(self, due_ns: MonoNs, transport: HeartbeatTransport) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due_ns, self._number, transport))


def _next_ns(heart_beat: HeartBeat, now_ns: MonoNs, sends: bool) -> MonoNs:
    """Return the time of the next check.

    Bytes to send leave at the end of this turn, so they count as sent now. A peer that should be dead and was not
    closed has been given another interval.
    """
    found = []
    if heart_beat.send_ns:
        found.append((now_ns if sends else heart_beat.last_sent_ns) + heart_beat.send_ns)
    if heart_beat.silence_ns:
        dead_ns = heart_beat.last_received_ns + heart_beat.silence_ns + 1
        found.append(dead_ns if dead_ns > now_ns else now_ns + heart_beat.silence_ns)
    return MonoNs(min(found))
