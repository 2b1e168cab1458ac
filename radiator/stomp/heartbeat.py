"""Heart-beats: what two peers agree on, and when to send one or give the other up.

All times are monotonic nanoseconds that the caller passes in. Both directions are independent; 0 switches one off. A
beat is sent when half of the promised interval has passed in silence, so that a late timer never breaks the promise,
and a peer is dead when it was silent for its interval times ``grace``. Any bytes count as a beat.
"""

from __future__ import annotations

from radiator.clock import NS_PER_MS, MonoNs

_NEVER_NS = 1 << 62


def negotiate(own: tuple[int, int], peer: tuple[int, int]) -> tuple[int, int]:
    """Return (send_ms, expect_ms) for this side, from both offers: (can send every, wants one every)."""
    send_ms = max(own[0], peer[1]) if own[0] and peer[1] else 0
    expect_ms = max(own[1], peer[0]) if own[1] and peer[0] else 0
    return send_ms, expect_ms


class HeartBeat:
    """The heart-beat timers of one connection."""

    __slots__ = ("last_received_ns", "last_sent_ns", "send_ns", "silence_ns")

    def __init__(self, send_ms: int, expect_ms: int, grace: float, now_ns: MonoNs) -> None:
        self.send_ns = send_ms * NS_PER_MS // 2  # of silence, then a beat is due
        self.silence_ns = int(expect_ms * NS_PER_MS * grace)  # of the peer, then it is dead
        self.last_sent_ns = now_ns
        self.last_received_ns = now_ns

    def sent(self, now_ns: MonoNs) -> None:
        """Note that bytes were sent."""
        self.last_sent_ns = now_ns

    def received(self, now_ns: MonoNs) -> None:
        """Note that bytes came."""
        self.last_received_ns = now_ns

    def should_send(self, now_ns: MonoNs) -> bool:
        """Return whether a beat is due."""
        return self.send_ns > 0 and now_ns - self.last_sent_ns >= self.send_ns

    def is_dead(self, now_ns: MonoNs) -> bool:
        """Return whether the peer was silent for too long."""
        return self.silence_ns > 0 and now_ns - self.last_received_ns > self.silence_ns

    @property
    def next_check_ns(self) -> MonoNs:
        """When to check again; far in the future if there is nothing to do."""
        send = self.last_sent_ns + self.send_ns if self.send_ns else _NEVER_NS
        dead = self.last_received_ns + self.silence_ns + 1 if self.silence_ns else _NEVER_NS
        return MonoNs(min(send, dead))
