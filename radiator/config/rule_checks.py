"""Check the keys of a rule that need or exclude one another.

A check takes the keys of one rule and yields its faults. ``CHECKS`` is the list of all checks.

This module knows the settings of a rule. It does not know YAML: the caller reports the faults with their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from radiator.config.keys import ONLY_OFF, REFUSED
from radiator.config.settings import SETTINGS

Fault: TypeAlias = tuple[str, str]  # the path of a key within the rule, or OF_RULE; and what is wrong

OF_RULE: Final = ""  # in place of a key: the rule as a whole
EVER: Final = 1 << 63  # nanoseconds


class RuleKeys(NamedTuple):
    """The keys of one rule.

    Attributes:
        names: The names of the keys that the file has, also of those with a faulty value.
        own: The values of these keys, by field.
        whole: The same, with the values of ``defaults:`` for all other settings.
    """

    names: Collection[str]
    own: Mapping[str, Any]
    whole: Mapping[str, Any]


def faults(rule: RuleKeys) -> Iterator[Fault]:
    """Yield the faults that all checks find in a rule."""
    for check in CHECKS:
        yield from check(rule)


def unacked_faults(rule: RuleKeys) -> Iterator[Fault]:
    """Yield a fault if ``on_unacked: dead_letter`` has no dead-letter queue. This applies to ``defaults:`` too."""
    if rule.whole["on_unacked"] == "dead_letter" and rule.whole["dead_letter"] is None:
        key = next((key for key in ("on_unacked", "dead_letter") if key in rule.own), None)
        if key is not None:
            yield key, "expected the name of a queue in dead_letter:, which on_unacked: dead_letter needs"


def _match(rule: RuleKeys) -> Iterator[Fault]:
    if ("match" in rule.names) == ("match_regex" in rule.names):
        yield OF_RULE, "expected one of match: and match_regex:"


def _memory(rule: RuleKeys) -> Iterator[Fault]:
    if rule.whole["store"] != "memory":
        return
    refused = (key.section for key in SETTINGS if key.in_memory is REFUSED and key.section in rule.names)
    switched_on = (key.path for key in SETTINGS if key.in_memory is ONLY_OFF and rule.own.get(key.field))
    for key in dict.fromkeys((*refused, *switched_on)):
        yield key, "has no effect with store: memory; leave it out"


def _on_full(rule: RuleKeys) -> Iterator[Fault]:
    """Yield a fault if ``on_full`` has no effect."""
    own, whole = rule.own, rule.whole
    if "on_full" not in own:
        return
    if not _topics_only(own):
        bounded = whole["max_messages"] is not None or whole["max_bytes"] is not None
        bounded |= own["on_full"] == "block" and whole["store"] == "memory"  # where the memory of a partition ends
        if not bounded:
            yield "on_full", "expected max_messages: or max_bytes: too; without a limit the queue is never full"
        return
    # In memory, retention removes the oldest messages one by one as new ones come, as drop_oldest does.
    retained = any(whole[field] is not None for field in ("retention_age_ns", "retention_bytes", "retention_count"))
    if not (own["on_full"] == "drop_oldest" and whole["store"] == "memory" and retained):
        yield (
            "on_full",
            "a topic is never full; for a topic only drop_oldest is allowed, with store: memory and a retention:",
        )


def _redelivery(rule: RuleKeys) -> Iterator[Fault]:
    if (rule.own.get("redeliver_delay_ns") or 0) > rule.own.get("redeliver_max_delay_ns", EVER):
        yield "redeliver", "expected a max_delay that is not less than delay"


def _limits(rule: RuleKeys) -> Iterator[Fault]:
    """Yield a fault for each limit of messages in a rule without a queue of its own."""
    for key in ("max_messages", "max_bytes"):
        if rule.own.get(key) is None:
            continue
        if _topics_only(rule.own):
            yield key, "limits a queue; for a topic use retention:"
        if rule.own.get("fan_out"):
            yield key, "limits a queue with consumers; with fan_out set it for the bound queues"


def _priority(rule: RuleKeys) -> Iterator[Fault]:
    """Yield the faults of a rule with ``priority:`` that is not one of queues with one log for each priority."""
    if not rule.own.get("priority"):
        return
    for key in ("partitions", "partition_by", "fan_out"):
        if rule.own.get(key) not in (None, 1, ()):
            yield key, "a queue with priorities has a log for each of them: expected priority: true without it"
    if _topics_only(rule.own):
        yield "priority", "is for queues: a topic is read in order"


def _idle(rule: RuleKeys) -> Iterator[Fault]:
    own, whole = rule.own, rule.whole
    own_key = own.get("idle_ns") or own.get("wait_for_archive")
    if own_key and whole["idle_ns"] is not None and whole["wait_for_archive"]:
        yield OF_RULE, "expire.idle removes messages whether or not an archive has them; leave it or wait_for: out"


def _compaction(rule: RuleKeys) -> Iterator[Fault]:
    if rule.own.get("compact_by") is not None and _queues_only(rule.own):
        yield "compact_by", "is for topics; for the settled messages of a queue use retention.acked"


def _topics_only(own: Mapping[str, Any]) -> bool:
    """Return True if the rule certainly owns no queue."""
    if "kind" in own:
        return bool(own["kind"] == "topic")
    return all(pattern.strip(" ").startswith("/topic/") for pattern in own.get("match", "").split(","))


def _queues_only(own: Mapping[str, Any]) -> bool:
    """Return True if the rule certainly owns no topic."""
    if "kind" in own:
        return bool(own["kind"] == "queue")
    return "match" in own and all(pattern.strip(" ").startswith("/queue/") for pattern in own["match"].split(","))


CHECKS: Final[tuple[Callable[[RuleKeys], Iterator[Fault]], ...]] = (
    _match,
    _memory,
    _on_full,
    _redelivery,
    unacked_faults,
    _limits,
    _priority,
    _idle,
    _compaction,
)
