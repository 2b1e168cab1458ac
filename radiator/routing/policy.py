"""The policy of one destination: what its rule, and the rule's templates, make of its name.

Its values are plain, so that the broker can pass them to storage while neither knows the other.
"""

from __future__ import annotations

import msgspec

from radiator.config import Rule, Settings
from radiator.config.settings import Kind


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The values that depend on the name, and the ``settings``, which many destinations share."""

    destination: str
    kind: Kind
    rule_index: int  # in Config.rules; -1: no rule matched, the defaults hold
    rule: Rule
    settings: Settings  # of the rule, but a dead-letter queue has others, see ``dead_letter``
    partitions: tuple[str, ...]  # names, one per partition, in order of their number
    priority: bool  # the partitions are priority levels, from 0 to 9, made when they are first used
    dead_letter_name: str | None
    fan_out: tuple[str, ...]  # the queues that get messages sent here
    copied_to: tuple[str, ...]  # the destinations that store a copy of messages sent here; see ``template.dated``
