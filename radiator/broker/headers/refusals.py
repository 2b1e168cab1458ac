"""The headers ``requeue`` and ``delay`` of NACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from radiator.broker.headers.values import delay_ms, flag
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from radiator.stomp.frames import Frame


class Refusal(NamedTuple):
    """The request of a NACK.

    Attributes:
        requeue: Return the message to its queue.
        delay_ns: The back-off in nanoseconds; None for that of the rule.
    """

    requeue: bool = True
    delay_ns: int | None = None


def read_refusal(frame: Frame) -> Refusal:
    """Return the request of a NACK.

    Raises:
        ProtocolError: A value is bad (bad-header).
    """
    headers = frame.head.headers
    requeue, delay = flag(headers, "requeue") is not False, headers.get("delay")
    return Refusal(requeue, None if delay is None else delay_ms("delay", delay) * NS_PER_MS)
