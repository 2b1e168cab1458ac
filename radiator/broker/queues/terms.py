"""The terms of a queue: what its rule says about messages that wait, are refused or are not answered.

Plain values out of a policy, so that a queue that no single rule owns (a named subscription over many topics) can have
terms too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from radiator.clock import NS_PER_MS, NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from radiator.config.model import OnFull, OnUnacked
    from radiator.routing.policy import Policy

# Without a word in the rule: who refuses a message for a passing reason gets it back at once, and one that nobody can
# handle does not turn in circles at the speed of the machine.
AUTO_AT_ONCE = 3
AUTO_FIRST_NS = 10 * NS_PER_MS
AUTO_MOST_NS = NS_PER_SECOND
EXPONENT_MAX = 60  # beyond that every back-off has reached its most, or never grows


class Terms(NamedTuple):
    """``None`` means never or off; ``delay_ns`` None is ``auto``."""

    ttl_ns: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    on_full: OnFull = "reject"
    block_timeout_ns: int | None = None
    line: int = 0  # of the rule, in the configuration
    ack_timeout_ns: int | None = None
    max_deliveries: int | None = None
    delay_ns: int | None = None
    backoff: float = 1.0
    max_delay_ns: int = AUTO_MOST_NS
    jitter: float = 0.0
    dead_letter: str | None = None
    dead_letter_expired: bool = False
    on_unacked: OnUnacked = "requeue"

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        return cls(
            ttl_ns=policy.rule.message_ttl_ns,
            max_messages=policy.rule.max_messages,
            max_bytes=policy.rule.max_bytes,
            on_full=policy.rule.on_full,
            block_timeout_ns=policy.rule.block_timeout_ns,
            line=policy.rule.line,
            ack_timeout_ns=policy.rule.ack_timeout_ns,
            max_deliveries=policy.rule.redeliver_max,
            delay_ns=policy.rule.redeliver_delay_ns,
            backoff=policy.rule.redeliver_backoff,
            max_delay_ns=max(policy.rule.redeliver_max_delay_ns, policy.rule.redeliver_delay_ns or 0),
            jitter=policy.rule.redeliver_jitter,
            dead_letter=policy.dead_letter_name,
            dead_letter_expired=policy.rule.dead_letter_expired,
            on_unacked=policy.rule.on_unacked,
        )

    @classmethod
    def of_all(cls, terms: Iterable[Terms]) -> Terms:
        """Of topics that are kept in one log, for one who reads them there with one cursor: what deletes a message or
        takes it back holds as far as all agree, and no dead letter is dropped that some would keep."""
        known = list(dict.fromkeys(terms))
        first = known[0]
        if len(known) == 1:
            return first

        def longest(values: list[int | None]) -> int | None:
            given = [each for each in values if each is not None]
            return max(given) if len(given) == len(values) else None

        return first._replace(
            ttl_ns=longest([each.ttl_ns for each in known]),
            ack_timeout_ns=longest([each.ack_timeout_ns for each in known]),
            max_deliveries=longest([each.max_deliveries for each in known]),
            dead_letter=next((each.dead_letter for each in known if each.dead_letter is not None), None),
            dead_letter_expired=any(each.dead_letter_expired for each in known),
            on_unacked=first.on_unacked if len({each.on_unacked for each in known}) == 1 else "requeue",
        )

    @property
    def keeps_expired(self) -> bool:
        """True if what has expired goes to the dead letters."""
        return self.dead_letter_expired and self.dead_letter is not None

    def pause_ns(self, deliveries: int, offset: int) -> int:
        """How long a message that was refused waits, after so many deliveries. Never more than ``max_delay_ns``; the
        jitter comes from what the message is, so that a history can be played again."""
        if self.delay_ns is None:
            if deliveries <= AUTO_AT_ONCE:
                return 0
            return min(AUTO_MOST_NS, AUTO_FIRST_NS << min(deliveries - AUTO_AT_ONCE - 1, EXPONENT_MAX))
        pause = self.delay_ns * self.backoff ** min(deliveries - 1, EXPONENT_MAX)
        if self.jitter:
            pause *= 1 + self.jitter * (crc32(b"%d:%d" % (offset, deliveries)) / (1 << 31) - 1)
        return int(min(pause, self.max_delay_ns))
