"""The policy of a queue: the settings of its messages, and its dead-letter queue.

A queue of one destination has that destination's settings. A durable subscription reads many topics, so each of its
sources has a policy of its own. If one source reads several topics, ``agreed`` returns the settings for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.config import Settings
from radiator.routing.pattern import DELIVERIES
from radiator.routing.rules import DEFAULTS_LABEL, label_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from radiator.routing.policy import Policy

# ``redeliver.delay: auto``. A message that is refused for a passing reason is redelivered at once, and a message
# that no consumer can handle does not circulate at full speed.
AUTO_AT_ONCE = 3
AUTO_FIRST_NS = 10 * NS_PER_MS
AUTO_MOST_NS = NS_PER_SECOND
EXPONENT_MAX = 60  # a higher exponent exceeds every maximum


class QueuePolicy(NamedTuple):
    """The policy of a queue.

    Attributes:
        settings: The settings of the destination.
        dead_letter: The name of the dead-letter queue, or None.
        line: The line of the rule in the configuration.
        rule: The label of the rule in metrics.
        has_rows: True if the rows of ``record: deliveries`` are among its messages. Their deliveries have no rows.
    """

    settings: Settings = Settings()
    dead_letter: str | None = None
    line: int = 0
    rule: str = DEFAULTS_LABEL
    has_rows: bool = False

    @classmethod
    def of(cls, policy: Policy) -> QueuePolicy:
        """Return the policy of a destination's queue."""
        has_rows = policy.destination == DELIVERIES
        return cls(policy.settings, policy.dead_letter_name, policy.rule.line, label_of(policy), has_rows)

    @property
    def buries_expired(self) -> bool:
        """True if expired messages go to the dead-letter queue."""
        return self.settings.dead_letter_expired and self.dead_letter is not None

    def requeuing(self) -> QueuePolicy:
        """Return this policy with ``on_unacked: requeue``."""
        return self if self.settings.on_unacked == "requeue" else self._replace(settings=_requeuing(self.settings))

    def pause_ns(self, deliveries: int, offset: int) -> int:
        """Return the delay of a message that was refused after ``deliveries`` deliveries, in nanoseconds.

        The jitter is derived from ``offset`` and ``deliveries``, so that a recorded history can be replayed.
        """
        settings = self.settings
        delay_ns = settings.redeliver_delay_ns
        if delay_ns is None:
            if deliveries <= AUTO_AT_ONCE:
                return 0
            return min(AUTO_MOST_NS, AUTO_FIRST_NS << min(deliveries - AUTO_AT_ONCE - 1, EXPONENT_MAX))
        pause = delay_ns * settings.redeliver_backoff ** min(deliveries - 1, EXPONENT_MAX)
        if settings.redeliver_jitter:
            pause *= 1 + settings.redeliver_jitter * (crc32(b"%d:%d" % (offset, deliveries)) / (1 << 31) - 1)
        return int(min(pause, max(settings.redeliver_max_delay_ns, delay_ns)))


def agreed(policies: Iterable[QueuePolicy]) -> QueuePolicy:
    """Return the policy for topics that share a log and are read with one cursor.

    A setting that deletes or takes back messages applies only if all topics have it, with the longest time. A dead
    letter is stored if one of the topics stores it. Deliveries are recorded if one topic has the key, and never if the
    rows are among the messages: each row would be delivered, and have a row.
    """
    known = list({(id(each.settings), each.dead_letter): each for each in policies}.values())
    first = known[0]
    if len(known) == 1:
        return first
    found = [each.settings for each in known]
    has_rows = any(each.has_rows for each in known)

    def longest(values: list[int | None]) -> int | None:
        given = [each for each in values if each is not None]
        return max(given) if len(given) == len(values) else None

    changes: dict[str, Any] = {
        "message_ttl_ns": longest([each.message_ttl_ns for each in found]),
        "ack_timeout_ns": longest([each.ack_timeout_ns for each in found]),
        "redeliver_max": longest([each.redeliver_max for each in found]),
        "dead_letter_expired": any(each.dead_letter_expired for each in found),
        "record_deliveries": any(each.record_deliveries for each in found) and not has_rows,
        "on_unacked": found[0].on_unacked if len({each.on_unacked for each in found}) == 1 else "requeue",
    }
    settings = found[0]
    if any(getattr(settings, name) != value for name, value in changes.items()):  # an unchanged object is shared
        settings = replace(settings, **changes)
    dead_letter = next((each.dead_letter for each in known if each.dead_letter is not None), None)
    return QueuePolicy(settings, dead_letter, first.line, first.rule, has_rows)


@lru_cache(maxsize=1_000)
def _requeuing(settings: Settings) -> Settings:
    """Return the same object for all destinations of a rule."""
    return replace(settings, on_unacked="requeue")
