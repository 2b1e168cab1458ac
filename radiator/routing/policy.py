"""The policy of one destination: its rule, and what the rule's templates make of the name.

Plain values, so that the broker can hand them on to storage without either knowing the other.
"""

from __future__ import annotations

import msgspec

from radiator.config import Rule
from radiator.config.model import Kind


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What depends on the name. All else is said by ``rule``, which many destinations share."""

    destination: str
    kind: Kind
    rule_index: int  # in Config.rules; -1: no rule matched, the defaults hold
    rule: Rule  # as it holds for this destination: a dead-letter queue keeps what it has, see ``dead_letter``
    partitions: tuple[str, ...]  # names, one per partition, in order of their number
    priority: bool  # the partitions are lanes, from 0 to 9, made when they are first used
    dead_letter_name: str | None
    fan_out: tuple[str, ...]  # the queues that get what is sent here
