"""When messages may be delivered: those that expire, or that are not to come before a moment.

The clock of the simulation is set forward and back, and a client hears what the broker has sent earlier. So a message
has come too early only if at no time since it was said its moment had been there; and too late only if at every time
since it had expired. One that had expired at some time may be gone, and only such a one: by the trusted clock, as a
step forward that is not confirmed must destroy nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from radiator.clock import NS_PER_MS
from radiator.stomp.frames import Frame


@dataclass
class Moment:
    """Of one message. ``earliest_ns`` and ``latest_ns``: what the clock has shown since it was said.
    ``trusted_ns``: the latest that was to be trusted."""

    earliest_ns: int
    latest_ns: int
    trusted_ns: int
    delay_ns: int
    expires_ns: int


class Moments:
    """Those of all messages that have any."""

    def __init__(self) -> None:
        self._of: dict[bytes, Moment] = {}
        self._ahead_ns = 0  # how far the clock is ahead of what is to be trusted

    def said(self, body: bytes, now_ns: int, headers: dict[str, str]) -> None:
        """A message is on its way to the broker."""
        if "delay" in headers or "expires" in headers:
            delay_ns, expires_ns = (int(headers.get(name, "0")) * NS_PER_MS for name in ("delay", "expires"))
            trusted_ns = now_ns - self._ahead_ns
            self._of[body] = Moment(trusted_ns, now_ns, trusted_ns, delay_ns, expires_ns)

    def shows(self, now_ns: int, trusted_ns: int) -> None:
        """The clock does, before or after it is set. ``trusted_ns``: what the broker has to take it for."""
        self._ahead_ns = now_ns - trusted_ns
        for moment in self._of.values():
            moment.earliest_ns = min(moment.earliest_ns, trusted_ns)
            moment.latest_ns = max(moment.latest_ns, now_ns)
            moment.trusted_ns = max(moment.trusted_ns, trusted_ns)

    def fault(self, frame: Frame, now_ns: int) -> str:
        """What is wrong with this delivery; empty if nothing is."""
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
        """Whether it may come behind what was sent after it."""
        return body in self._of

    def over(self, body: bytes) -> bool:
        """Whether its time may have come to an end."""
        moment = self._of.get(body)
        return moment is not None and 0 < moment.expires_ns <= moment.trusted_ns
