"""Who is to be looked at when, because of heart-beats: a heap by the time at which something may be due.

A look costs what is due and not what is connected: ten thousand quiet clients with beats of 10 s are two thousand looks
a second. Bytes that come or go only set a time in the connection's ``HeartBeat``; its entry here stays where it is, is
met too early, and goes to its new place.

Invariants: each transport with heart-beats that is open has one entry; of those that are closed there are fewer than of
the open ones, but for a few.
"""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from radiator.clock import MonoNs
from radiator.stomp.heartbeat import HeartBeat

SPARE = 64  # closed ones that are not worth a clearing-up


class HeartbeatTransport(Protocol):
    """A transport."""

    closed: bool
    heart_beat: HeartBeat | None

    def check_heartbeat(self, now_ns: MonoNs) -> None: ...


class HeartbeatTimers:
    """Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[MonoNs, int, Any]] = []  # due, a number that no two share, the transport
        self._number = 0
        self._closed = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, transport: HeartbeatTransport) -> None:
        assert transport.heart_beat is not None
        self._push(transport.heart_beat.next_check_ns, transport)

    def drop(self) -> None:
        """One of them has been closed."""
        self._closed += 1
        if self._closed * 2 > len(self._heap) + SPARE:
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)
            self._closed = 0

    def check(self, now_ns: MonoNs) -> int:
        """Have every transport that is due do its part; returns how many there were."""
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
    """When to look again. What is sent now leaves at the end of this turn; who should be dead and is not has been given
    another time."""
    found = []
    if heart_beat.send_ns:
        found.append((now_ns if sends else heart_beat.last_sent_ns) + heart_beat.send_ns)
    if heart_beat.silence_ns:
        dead_ns = heart_beat.last_received_ns + heart_beat.silence_ns + 1
        found.append(dead_ns if dead_ns > now_ns else now_ns + heart_beat.silence_ns)
    return MonoNs(min(found))
