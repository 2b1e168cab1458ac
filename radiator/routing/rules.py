"""The rules of a configuration, and the policy they give a name.

The first matching rule owns the destination; if none matches, the defaults apply. The policy of a name never changes
while a configuration is in force, so ``policy_for`` is a dict look-up after the first time.

The patterns, regular expressions and partition templates of a file are compiled here; a fault in one is a ConfigError
with the file and the line, like those of ``radiator.config``. So are rules that can never match first, and two rules
that write to one partition with different settings of the log.

A template is text with ``{name}`` (the whole destination) and ``{1}``, ``{2}``... (what the wildcards, or the groups of
a regular expression, matched). With ``partitions: N`` the partitions are ``<template>-0`` to ``<template>-<N-1>``.

Names under ``/temp-queue/`` and ``/temp-topic/`` belong to a connection and end with it: they are stored in memory and
no rule applies.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from radiator.config import Config, Rule, Settings
from radiator.config.model import ArchiveRule, ScheduleRule
from radiator.config.settings import OF_LOG, RULE_ONLY, SETTINGS, Kind
from radiator.errors import ConfigError, ProtocolError
from radiator.routing import cron, dead_letter, regex
from radiator.routing.pattern import (
    DELIVERIES,
    WILDCARDS,
    Pattern,
    PatternSet,
    has_wildcard_character,
    is_pattern,
    parse_list,
    segments,
)
from radiator.routing.policy import Policy
from radiator.routing.rule_index import Matcher, RuleIndex, captures_of
from radiator.routing.template import DATE, expand, fault

QUEUE_PREFIX: Final = "/queue/"
TEMP_QUEUE_PREFIX: Final = "/temp-queue/"
TEMPORARY: Final = (TEMP_QUEUE_PREFIX, "/temp-topic/")  # the second is another word for the first
DELIVERIES_PARTITION: Final = "deliveries"  # unless a rule names another
DEFAULTS_LABEL: Final = "(defaults)"
TEMPORARY_LABEL: Final = "(temporary)"
PRIORITIES: Final = 10  # 0 to 9, as JMS has them
DEFAULT_PRIORITY: Final = 4
POLICIES_MAX: Final = 10_000  # cached policies, 2 MB; bounded because clients choose the names
REGEX_CHARS_MAX: Final = 1_000  # the operator's own, but a slip of the keyboard should not hang the broker


class Step(NamedTuple):
    """One rule as tried for a name: ``line`` is 0 for the defaults."""

    rule_index: int
    line: int
    match: str
    matched: bool
    why: str


class _Compiled(NamedTuple):
    rule: Rule
    text: str
    matcher: Matcher


class Rules:
    """The rules of ``config``, compiled. Raises ConfigError."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._source = config.source or "configuration"
        self._compiled: list[_Compiled] = []
        self._policies: dict[str, Policy] = {}
        self._of_dead_letters: dict[int, Settings] = {}  # by index of the rule: the settings of its dead-letter queues
        faults: list[str] = []
        inherited = config.defaults.settings.dead_letter
        try:
            _check_template("dead_letter", inherited or "", 0)
            dead_letter.check(config.defaults)
        except ValueError as error:
            faults.append(f"{self._source}: defaults.{error}")
        for index, rule in enumerate(config.rules):
            try:
                compiled = _compile(rule, own_dead_letter=rule.settings.dead_letter != inherited)
                _check_reachable(rule, self._compiled)
                self._compiled.append(compiled)
            except ValueError as error:
                faults.append(f"{self._source}:{rule.line}: destinations[{index}].{error}")
        if config.regex_subscriptions and not regex.is_installed():
            need = "regex_subscriptions: true needs one more package: pip install 'radiator-broker[regex]'"
            faults.append(f"{self._source}: {need}")
        if not faults:
            faults = [f"{self._source}:{fault}" for fault in _shared_partitions(config.rules)]
        self._archive, of_archive = _archive_rules(config, self._source)
        of_others = of_archive + _schedule_faults(config, self._source)
        if faults:
            raise ConfigError("\n".join(faults + of_others))
        self._index = RuleIndex(each.matcher for each in self._compiled)
        self._temporary = _of_temporary_queues(config.defaults)
        faults = self._fan_out_faults() + self._delivery_faults()
        if not faults:
            faults = [f"{self._source}{fault}" for fault in dead_letter.cycles(config, self._find)]
        if faults or of_others:
            raise ConfigError("\n".join(faults + of_others))

    def _fan_out_faults(self) -> list[str]:
        """Return the faults of bound queues that rules name in full."""
        faults = []
        for index, rule in enumerate(self.config.rules):
            for child in (each for each in rule.fan_out if "{" not in each):
                owner = self._index.first(child)
                theirs = self.config.rules[owner[0]] if owner is not None else self.config.defaults
                wrong = ""
                if theirs.fan_out:
                    wrong = f"has fan_out itself, by the rule on line {theirs.line}"
                elif (theirs.kind or kind_of(child)) != "queue":
                    wrong = "is a topic"
                if wrong:
                    where = f"{self._source}:{rule.line}: destinations[{index}].fan_out"
                    faults.append(f"{where}: expected queues that have consumers of their own, and {child!r} {wrong}")
        return faults

    # --- names to policies ----------------------------------------------------------------------------------------

    def policy_for(self, name: str) -> Policy:
        """Return the policy of a destination. Raises ProtocolError if the template gives no partition name."""
        policy = self._policies.get(name)
        if policy is None:
            policy = self._find(name)
            if name.startswith(TEMPORARY):  # asked for once, and never again when its connection is gone
                return policy
            if len(self._policies) >= min(self.config.limits.destinations, POLICIES_MAX):
                self._policies.clear()
            self._policies[name] = policy
        return policy

    def _find(self, name: str) -> Policy:
        if name.startswith(TEMPORARY):
            return self._policy(name, -1, self._temporary, ())
        found = self._index.first(name)
        index, captures = (-1, ()) if found is None else found
        rule = self.config.defaults if found is None else self.config.rules[index]
        if name == DELIVERIES:
            rule = _of_deliveries(rule)
        return self._policy(name, index, rule, captures)

    @property
    def records_deliveries(self) -> bool:
        """True if a rule has ``record: deliveries``."""
        return any(each.settings.record_deliveries for each in (self.config.defaults, *self.config.rules))

    def _delivery_faults(self) -> list[str]:
        """Return why the log of deliveries could not be written, if a rule needs it."""
        if not self.records_deliveries:
            return []
        policy = self._find(DELIVERIES)
        if policy.settings.store != "file":
            wrong = "store: memory"
        elif policy.kind != "topic":
            wrong = "kind: queue"
        else:
            return []
        line = policy.rule.line
        where = f"{self._source}:{line}: the rule" if line else f"{self._source}: defaults"
        return [
            (
                f"{where} makes {DELIVERIES} have {wrong}, and record: deliveries needs a topic in files; "
                f"put a rule for {DELIVERIES} with store: file above it"
            )
        ]

    def _policy(self, name: str, index: int, rule: Rule, captures: tuple[str, ...]) -> Policy:
        partition = expand(rule.partition, name, captures)
        if not partition or "\0" in partition:
            raise ProtocolError(
                "bad-destination",
                "the destination has no partition",
                f"the rule on line {rule.line} makes {partition!r} of {name!r} by partition: {rule.partition}",
            )
        kind = rule.kind or kind_of(name)
        priority = rule.priority and kind == "queue"
        return Policy(
            destination=name,
            kind=kind,
            rule_index=index,
            rule=rule,
            settings=self._settings(index, rule, name),
            fan_out=tuple(dict.fromkeys(expand(template, name, captures) for template in rule.fan_out)),
            partitions=_priority_partitions(partition) if priority else _numbered(partition, rule.partitions),
            priority=priority,
            dead_letter_name=dead_letter.name_for(rule.settings.dead_letter, name, captures),
            copied_to=self._copied_to(name),
        )

    def _copied_to(self, name: str) -> tuple[str, ...]:
        """Return the targets of the ``archive:`` rules that match a destination, which is none of them itself."""
        if name.startswith(TEMPORARY):
            return ()
        found = [(rule.to, captures_of(patterns)(name)) for rule, patterns in self._archive]
        names = dict.fromkeys(expand(to, name, captures) for to, captures in found if captures is not None)
        names.pop(name, None)
        return tuple(names)

    def _settings(self, index: int, rule: Rule, name: str) -> Settings:
        """Return the settings of this name: one object for all names of a rule with the same settings."""
        template = rule.settings.dead_letter
        if template is None or not dead_letter.is_dead_letter(template, name):
            return rule.settings
        if index not in self._of_dead_letters:
            self._of_dead_letters[index] = dead_letter.settings_of_dead_letters(rule.settings)
        return self._of_dead_letters[index]

    # --- explaining -----------------------------------------------------------------------------------------------

    def steps(self, name: str) -> tuple[Step, ...]:
        """Return the rules tried for ``name``, in order, up to the first match."""
        if name.startswith(TEMPORARY):
            return (
                Step(-1, 0, TEMP_QUEUE_PREFIX, True, "belongs to its connection: stored in memory, no rule applies"),
            )
        steps: list[Step] = []
        for index, (rule, text, matcher) in enumerate(self._compiled):
            found = captures_of(matcher)(name)
            if found is None:
                steps.append(Step(index, rule.line, text, False, "does not match"))
                continue
            taken = ", ".join(f"{{{number}}}={value!r}" for number, value in enumerate(found, 1))
            steps.append(Step(index, rule.line, text, True, "matches" + (f", {taken}" if taken else "")))
            return tuple(steps)
        return (*steps, Step(-1, 0, "(defaults)", True, "no rule matches: the defaults apply"))

    def explain(self, name: str) -> str:
        """Explain the policy of ``name`` as text: the rules tried, the match, and every value."""
        lines = [name]
        for step in self.steps(name):
            where = f"{self._source}:{step.line}" if step.line else "built in"
            lines.append(f"  {'=>' if step.matched else '  '} {where}: {step.match}: {step.why}")
        policy = self.policy_for(name)
        lines += [f"  {key}: {value}" for key, value in describe(policy).items()]
        if policy.copied_to:
            lines.append(f"  archive: {', '.join(policy.copied_to).replace(DATE, '{date}')}")
        return "\n".join(lines)


def kind_of(name: str) -> Kind:
    """Return the kind by the name alone: ``/queue/`` and temporary names are queues, all others topics."""
    return "queue" if name.startswith((QUEUE_PREFIX, *TEMPORARY)) else "topic"


def label_of(policy: Policy) -> str:
    """Return the label of the rule of a destination in metrics (``label_of_rule``)."""
    if policy.destination.startswith(TEMPORARY):
        return TEMPORARY_LABEL
    return label_of_rule(policy.rule)


def label_of_rule(rule: Rule) -> str:
    """Return the label of a rule in metrics: its pattern, or DEFAULTS_LABEL. The labels of all rules differ."""
    if rule.match is not None:
        return rule.match
    return DEFAULTS_LABEL if rule.match_regex is None else f"regex {rule.match_regex}"


def describe(policy: Policy) -> dict[str, str]:
    """Return every value of a policy as it would be written in the file."""
    partitions = policy.partitions
    found = {key.path: key.show(policy.rule) for key in RULE_ONLY if key.field not in ("match", "match_regex", "kind")}
    found |= {key.path: key.show(policy.settings) for key in SETTINGS}
    of_the_name = {
        "kind": policy.kind,
        "partition": partitions[0] if len(partitions) == 1 else f"{partitions[0]} ... {partitions[-1]}",
        "partitions": str(len(partitions)),
        "priority": "true" if policy.priority else "false",
        "fan_out": ", ".join(policy.fan_out) or "none",
        "dead_letter": policy.dead_letter_name or "none",
    }
    return {"kind": policy.kind} | found | of_the_name


def _of_temporary_queues(defaults: Rule) -> Rule:
    """Return the defaults, with the values that the table of settings has for temporary queues."""
    fixed = {key.field: key.type.read(key.temporary) for key in SETTINGS if key.temporary is not None}
    if defaults.settings.on_full == "block":
        fixed["on_full"] = "drop_newest"
    settings = replace(defaults.settings, **fixed)
    return replace(defaults, settings=settings, fan_out=())


def _of_deliveries(rule: Rule) -> Rule:
    """Return a rule as it applies to the log of deliveries: its own deliveries have no rows, and it never expires."""
    partition = DELIVERIES_PARTITION if rule.partition == "{name}" else rule.partition
    settings = replace(rule.settings, record_deliveries=False, idle_ns=None)
    return replace(rule, partition=partition, settings=settings, fan_out=())


def _numbered(partition: str, partitions: int) -> tuple[str, ...]:
    return (partition,) if partitions == 1 else tuple(f"{partition}-{number}" for number in range(partitions))


def _priority_partitions(partition: str) -> tuple[str, ...]:
    return tuple(f"{partition}-p{priority}" for priority in range(PRIORITIES))


# --- compiling: a ValueError names the key and what is wrong with it --------------------------------------------------


def _compile(rule: Rule, own_dead_letter: bool) -> _Compiled:
    matcher: Matcher
    if rule.match is not None:
        try:
            matcher = patterns = parse_list(rule.match)
        except ProtocolError as error:
            raise ValueError(f"match: {error.message}, {error.detail}") from None
        for pattern in patterns:
            _check_segments(pattern)
        text = rule.match
        capture_count = min(pattern.wildcard_count for pattern in patterns)
    else:
        matcher = expression = _compile_regex(rule.match_regex or "")
        text = f"regex {expression.pattern}"
        capture_count = expression.groups
    _check_template("partition", rule.partition, capture_count)
    for template in rule.fan_out:
        _check_template("fan_out", template, capture_count)
        if is_pattern(template):
            raise ValueError(f"fan_out: expected the name of a queue, got the pattern {template!r}")
    _check_template("dead_letter", rule.settings.dead_letter or "", capture_count)
    if rule.settings.dead_letter == DELIVERIES:
        raise ValueError(f"dead_letter: the broker alone writes {DELIVERIES}")
    if own_dead_letter:
        dead_letter.check(rule)
    return _Compiled(rule, text, matcher)


def _archive_rules(config: Config, source: str) -> tuple[list[tuple[ArchiveRule, PatternSet]], list[str]]:
    """Return the rules of ``archive:`` with their patterns, and the faults of others."""
    found: list[tuple[ArchiveRule, PatternSet]] = []
    faults = []
    for index, rule in enumerate(config.archive):
        try:
            found.append((rule, _archive_patterns(rule)))
        except ValueError as error:
            faults.append(f"{source}:{rule.line}: archive[{index}].{error}")
    return found, faults


def _archive_patterns(rule: ArchiveRule) -> PatternSet:
    """Return the patterns of a rule of ``archive:``. Raises ValueError."""
    try:
        patterns = parse_list(rule.match)
    except ProtocolError as error:
        raise ValueError(f"match: {error.message}, {error.detail}") from None
    for pattern in patterns:
        _check_segments(pattern)
    _check_template("to", rule.to, min(pattern.wildcard_count for pattern in patterns), of_message=True)
    if is_pattern(rule.to) or rule.to.startswith((*TEMPORARY, "/radiator/")) or rule.to != rule.to.strip(" "):
        raise ValueError(f"to: expected the name of a destination that is not temporary, got {rule.to!r}")
    if rule.to == DELIVERIES:
        raise ValueError(f"to: the broker alone writes {DELIVERIES}")
    return patterns


# Headers that the broker sets itself in a recurring message, or that mean nothing without a client.
NOT_SCHEDULED: Final = frozenset(
    {"destination", "content-length", "receipt", "transaction", "reply-to", "mandatory", "expected-offset"}
    | {"dedup-id", "producer-id", "sequence", "scheduled-time", "expires", "deliver-at"}
)


def _schedule_faults(config: Config, source: str) -> list[str]:
    """Return the faults of the entries of ``schedules:``."""
    faults = []
    names: dict[str, int] = {}
    if config.schedules and not cron.is_installed():
        return [f"{source}: schedules: need one more package: pip install 'radiator-broker[cron]'"]
    for index, rule in enumerate(config.schedules):
        try:
            cron.CronTimes(rule.cron, rule.time_zone)
            _check_schedule(rule)
            if (other := names.setdefault(rule.name, index)) != index:
                raise ValueError(f"name: {rule.name!r} is also the name of schedules[{other}]")
        except ValueError as error:
            faults.append(f"{source}:{rule.line}: schedules[{index}].{error}")
    return faults


def _check_schedule(rule: ScheduleRule) -> None:
    """Check the destination and the headers of an entry of ``schedules:``. Raises ValueError."""
    name = rule.destination
    if is_pattern(name) or name.startswith((*TEMPORARY, "/radiator/")) or name != name.strip(" "):
        raise ValueError(f"destination: expected the name of a destination that is not temporary, got {name!r}")
    if name == DELIVERIES:
        raise ValueError(f"destination: the broker alone writes {DELIVERIES}")
    for header, _ in rule.headers:
        if header in NOT_SCHEDULED:
            raise ValueError(f"headers: {header} cannot be set here")


def _check_segments(pattern: Pattern) -> None:
    """Refuse a wildcard character inside a segment: a client may use such a name, an operator meant a wildcard."""
    for part in segments(pattern.text):
        if part not in WILDCARDS and has_wildcard_character(part):
            name = re.escape(part)
            some = re.sub(r"(?:\\?[*>#])+", "[^./]*", name)
            raise ValueError(
                f"match: a wildcard is a whole segment, got {part!r} in {pattern.text!r}; write * for the segment, "
                f"or use match_regex: with {some} for a part of it, {name} for the character itself"
            )


def _compile_regex(text: str) -> re.Pattern[str]:
    if len(text) > REGEX_CHARS_MAX:
        raise ValueError(f"match_regex: expected at most {REGEX_CHARS_MAX} characters, got {len(text)}")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"match_regex: expected a regular expression ({error}), got {text!r}") from None


def _check_template(field: str, template: str, capture_count: int, of_message: bool = False) -> None:
    if wrong := fault(template, capture_count, of_message):
        raise ValueError(f"{field}: {wrong} in {template!r}")


def _check_reachable(rule: Rule, earlier: list[_Compiled]) -> None:
    for other in earlier:
        if rule.match is not None and other.rule.match == rule.match:
            raise ValueError(
                f"match: {rule.match!r} can never win: the rule on line {other.rule.line} has the same pattern; "
                "put the keys of both into one rule"
            )
        if rule.match is not None and other.rule.match in ("#", ">"):
            raise ValueError(
                f"match: {rule.match!r} can never win: the rule on line {other.rule.line} ({other.text!r}) matches "
                f"every name that it could match; put it above that rule"
            )


def _shared_partitions(rules: tuple[Rule, ...]) -> list[str]:
    """Return faults of rules that write to one partition with different settings; only fixed names are checked."""
    faults: list[str] = []
    named_by: dict[str, tuple[int, Rule]] = {}
    for index, rule in enumerate(rules):
        if "{" in rule.partition:
            continue
        for name in (
            _priority_partitions(rule.partition) if rule.priority else _numbered(rule.partition, rule.partitions)
        ):
            owner_index, owner = named_by.setdefault(name, (index, rule))
            differing = [
                key.path for key in OF_LOG if getattr(rule.settings, key.field) != getattr(owner.settings, key.field)
            ]
            if differing:
                faults.append(
                    f"{rule.line}: destinations[{index}].partition: {name!r} is also written by "
                    f"destinations[{owner_index}] on line {owner.line}, with different settings "
                    f"({', '.join(differing)}); expected the same settings for one partition"
                )
    return faults
