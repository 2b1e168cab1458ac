"""Checks of delivery times: of messages that expire, and of scheduled messages.

The simulation sets its clock forward and back, and a client receives messages later than the broker sends them. So a
message is too early only if the clock has shown its time at no moment since it was sent, and too late only if it was
expired at every moment since. A message may be missing only if it was expired at some moment, by the trusted clock,
since a forward step that is not confirmed must destroy nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from radiator.clock import NS_PER_MS
from radiator.stomp.frames import Frame


@dataclass
class Moment:
    """The times of one message. ``earliest_ns`` and ``latest_ns``: what the clock has shown since it was sent.
    ``trusted_ns``: the latest trusted time."""

    earliest_ns: int
    latest_ns: int
    trusted_ns: int
    delay_ns: int
    expires_ns: int


class Moments:
    """The times of all messages that have any."""

    def __init__(self) -> None:
        self._of: dict[bytes, Moment] = {}
        self._ahead_ns = 0  # how far the clock is ahead of what is to be trusted

    def said(self, body: bytes, now_ns: int, headers: dict[str, str]) -> None:
        """Note that a message was sent to the broker."""
        if "delay" in headers or "expires" in headers:
            delay_ns, expires_ns = (int(headers.get(name, "0")) * NS_PER_MS for name in ("delay", "expires"))
            trusted_ns = now_ns - self._ahead_ns
            self._of[body] = Moment(trusted_ns, now_ns, trusted_ns, delay_ns, expires_ns)

    def shows(self, now_ns: int, trusted_ns: int) -> None:
        """Note what the clock shows, before or after it is set. ``trusted_ns``: the time that the broker must trust."""
        self._ahead_ns = now_ns - trusted_ns
        for moment in self._of.values():
            moment.earliest_ns = min(moment.earliest_ns, trusted_ns)
            moment.latest_ns = max(moment.latest_ns, now_ns)
            moment.trusted_ns = max(moment.trusted_ns, trusted_ns)

    def fault(self, frame: Frame, now_ns: int) -> str:
        """Return what is wrong with this delivery, or an empty text."""
        moment = self._of.get(frame.body)
        if moment is None or "dlq-reason" in frame.headers:
            return ""
        due_ns = int(frame.headers.get("deliver-at", "0")) * NS_PER_MS
        if due_ns < moment.earliest_ns + moment.delay_ns - NS_PER_MS and moment.delay_ns:
            return f"was to wait {moment.delay_ns} ns from {moment.earliest_ns} at least, and says {due_ns}"
        if max(now_ns, moment.latest_ns) < due_ns:
            return f"came {due_ns - max(now_ns, moment.latest_ns)} ns too early"
        if moment.expires_ns and min(now_ns, moment.earliest_ns) >= moment.expires_ns:
            return f"came, and had expired at {moment.expires_ns}"
        return ""

    def waited(self, body: bytes) -> bool:
        """Return whether it may come behind messages that were sent after it."""
        return body in self._of

    def over(self, body: bytes) -> bool:
        """Return whether it may have expired."""
        moment = self._of.get(body)
        return moment is not None and 0 < moment.expires_ns <= moment.trusted_ns
