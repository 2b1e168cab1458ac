"""Compare two configurations: what a reload changes, key by key and rule by rule.

A rule is recognised by its ``match`` or ``match_regex``. A rule that only inherits a changed default is not listed,
because the entry of ``defaults`` says it. Paths are those of the new file, except those of removed rules.

This module compares values. It does not know which destinations exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from radiator.config import schema
from radiator.config.keys import AT_CONNECT, AT_RUN_TIME, Applies, Key, To
from radiator.config.model import ArchiveRule, Config, JwtConfig, Listen, ScheduleRule
from radiator.config.settings import LIMITS, RULE_ONLY, SETTINGS, Rule

IDENTITY: Final = ("match", "match_regex")  # the keys that recognise a rule
KEYS: Final = tuple(key for key in RULE_ONLY if key.path not in IDENTITY) + SETTINGS
BODY_SHOWN: Final = 60  # characters of the body of a schedule
NO_JWT: Final = JwtConfig(
    *(key.default_value for field in JwtConfig._fields for key in schema.TOP if key.field == f"jwt_{field}")
)
OF_SETTINGS: Final = frozenset(key.field for key in SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two configurations.

    Attributes:
        path: The key, such as ``destinations[2].retention.age``; of a rule as a whole, ``destinations[2]``.
        before: The present value as in a file, or None if the rule is new.
        after: The new value, or None if the rule is removed.
        rule: The patterns of the rule, or empty.
        refused: Why a running broker cannot take the new value; empty if it can.
        note: What takes the new value, if not everything does.
    """

    path: str
    before: str | None
    after: str | None
    rule: str = ""
    refused: str = ""
    note: str = ""

    def row(self) -> dict[str, Any]:
        """Return the change as fields of an answer."""
        return {
            "path": self.path,
            "rule": self.rule or None,
            "before": self.before,
            "after": self.after,
            "effect": "refused" if self.refused else "now",
            "reason": self.refused or self.note or None,
        }


def compare(old: Config, new: Config) -> list[Change]:
    """Return the differences between two configurations, in the order of the file."""
    return [*_of_top(old, new), *_of_defaults(old, new), *_of_rules(old, new), *_of_subscriptions(old, new)]


def share_settings(old: Config, new: Config) -> Config:
    """Return ``new`` with the ``Settings`` objects of ``old`` where they are equal, so that less has to be replaced."""
    known = {rule.settings: rule.settings for rule in (old.defaults, *old.rules)}

    def shared(rule: Rule) -> Rule:
        return replace(rule, settings=known.setdefault(rule.settings, rule.settings))

    return msgspec.structs.replace(new, defaults=shared(new.defaults), rules=tuple(map(shared, new.rules)))


def rule_name(rule: Rule) -> str:
    """Return the patterns of a rule, for people."""
    return rule.match if rule.match is not None else f"regex {rule.match_regex}"


def rule_path(index: int) -> str:
    """Return the path of a rule: ``destinations[2]``, or ``defaults`` for -1."""
    return "defaults" if index < 0 else f"destinations[{index}]"


def describe(row: Mapping[str, Any]) -> str:
    """Return a change as one line of text.

    Args:
        row: The fields of ``Change.row``.
    """
    path, rule, reason = row["path"], row["rule"], row["reason"]
    where = f"{path} ({rule})" if rule else path
    if row["before"] is None and row["after"] is None:
        what = where
    elif row["before"] is None:
        what = f"{path}: new: {row['after']}"
    elif row["after"] is None:
        what = f"{path}: removed: {row['before']}"
    else:
        what = f"{where}: {row['before']} -> {row['after']}"
    if row["effect"] == "refused":
        return f"{what}: REFUSED: {reason}"
    return f"{what} ({reason})" if reason else what


def same_rules(old: Config, new: Config) -> dict[int, int]:
    """Return the new index of each rule that is in both configurations, by the old one; -1 is that of the defaults."""
    places = {name: index for index, name in enumerate(_names(new.rules))}
    found = {index: places[name] for index, name in enumerate(_names(old.rules)) if name in places}
    return {-1: -1, **found}


# --- the top level ----------------------------------------------------------------------------------------------------


def _of_top(old: Config, new: Config) -> list[Change]:
    before, after = _top_values(old), _top_values(new)
    found = [
        _change(key.path, key.shown(before[key.field]), key.shown(after[key.field]), key.applies)
        for key in schema.TOP
        if key.field in before and before[key.field] != after[key.field]
    ]
    if _without_lines(old.archive) != _without_lines(new.archive):
        found.append(_change("archive", _copies(old), _copies(new), AT_RUN_TIME))
    if _without_lines(old.schedules) != _without_lines(new.schedules):
        found.append(_change("schedules", _schedules(old), _schedules(new), AT_RUN_TIME))
    if old.listen != new.listen:
        found.append(_change("listen", _listeners(old.listen), _listeners(new.listen), AT_CONNECT))
    return found


def _top_values(config: Config) -> dict[str, Any]:
    """Return the values of the top level by the field of their key."""
    tls = config.tls
    return {
        "data_dir": config.data_dir,
        "admin": config.admin,
        "admin_hosts": config.admin_hosts,
        "tls_cert": None if tls is None else tls.cert,
        "tls_key": None if tls is None else tls.key,
        "tls_client_ca": None if tls is None else tls.client_ca,
        "regex_subscriptions": config.regex_subscriptions,
        "min_free_bytes": config.disk_min_free_bytes,
        "drain_on_stop_seconds": config.drain_on_stop_seconds,
        **{field: value for field, value in config.auth._asdict().items() if field != "jwt"},
        **_with_prefix("jwt_", config.auth.jwt or NO_JWT),
        **_with_prefix("log_", config.logging),
        **config.heart_beat._asdict(),
        **{key.field: getattr(config.limits, key.field) for key in LIMITS},
    }


def _with_prefix(prefix: str, value: NamedTuple) -> dict[str, Any]:
    return {prefix + field: each for field, each in value._asdict().items()}


def _without_lines(rules: Sequence[ArchiveRule | ScheduleRule]) -> list[ArchiveRule | ScheduleRule]:
    return [rule._replace(line=0) for rule in rules]


def _copies(config: Config) -> str:
    return ", ".join(f"{rule.match} to {rule.to}" for rule in config.archive) or "none"


def _schedules(config: Config) -> str:
    return ", ".join(map(_schedule, config.schedules)) or "none"


def _schedule(rule: ScheduleRule) -> str:
    parts = [f"{rule.cron} {rule.time_zone}", rule.destination, f"missed: {rule.missed}"]
    parts += [f"{name}:{value}" for name, value in rule.headers]
    parts += [f"body {rule.body[:BODY_SHOWN]!r}"] if rule.body else []
    return f"{rule.name} ({', '.join(parts)})"


def _listeners(listen: Sequence[Listen]) -> str:
    return ", ".join(map(_listener, listen))


def _listener(listen: Listen) -> str:
    more = []
    if listen.tls is not None:
        files = (listen.tls.cert, listen.tls.key, listen.tls.client_ca)
        more.append(f"tls {' '.join(each for each in files if each)}")
    if listen.web:
        more.append(f"origins {listen.origins if isinstance(listen.origins, str) else ' '.join(listen.origins)}")
        more += ["deflate"] if listen.deflate else []
    return f"{listen} ({'; '.join(more)})" if more else str(listen)


# --- rules ------------------------------------------------------------------------------------------------------------


def _of_defaults(old: Config, new: Config) -> list[Change]:
    return [
        _change(f"defaults.{key.path}", key.show(old.defaults.settings), key.show(new.defaults.settings), key.applies)
        for key in SETTINGS
        if getattr(old.defaults.settings, key.field) != getattr(new.defaults.settings, key.field)
    ]


def _of_rules(old: Config, new: Config) -> list[Change]:
    found: list[Change] = []
    earlier = {name: index for index, name in enumerate(_names(old.rules))}
    names = _names(new.rules)
    places = [earlier[name] for name in names if name in earlier]
    stay = _rising(places)
    for index, (name, rule) in enumerate(zip(names, new.rules, strict=True)):
        at = earlier.pop(name, None)
        if at is None:
            found.append(Change(path=rule_path(index), before=None, after=_text(rule, new), rule=rule_name(rule)))
            continue
        if at not in stay:
            found.append(
                Change(path=f"{rule_path(index)}.position", before=str(at), after=str(index), rule=rule_name(rule))
            )
        found += _of_rule(old, new, old.rules[at], rule, index)
    for index in earlier.values():
        rule = old.rules[index]
        found.append(Change(path=rule_path(index), before=_text(rule, old), after=None, rule=rule_name(rule)))
    return found


def _of_rule(old: Config, new: Config, before: Rule, after: Rule, index: int) -> list[Change]:
    found = []
    for key in KEYS:
        was, now = values(key, before), values(key, after)
        if was == now:
            continue
        if key.field in OF_SETTINGS and (was, now) == (values(key, old.defaults), values(key, new.defaults)):
            continue  # inherited
        path = f"{rule_path(index)}.{key.path}"
        found.append(_change(path, show(key, before), show(key, after), key.applies, rule_name(after)))
    return found


def _of_subscriptions(old: Config, new: Config) -> list[Change]:
    """Return the subscriptions that are declared no more. The broker compares the others with those that exist."""
    kept = {entry.title for entry in new.subscriptions}
    note = "it stays until `radiator apply --prune` or `radiator cursors rm`"
    return [
        Change(path=f"subscriptions[{index}]", before=str(entry), after=None, note=note)
        for index, entry in enumerate(old.subscriptions)
        if entry.title not in kept
    ]


def values(key: Key, rule: Rule) -> Any:
    """Return the value that a rule has for a key."""
    return getattr(rule.settings if key.field in OF_SETTINGS else rule, key.field)


def show(key: Key, rule: Rule) -> str:
    """Return the value that a rule has for a key, as in a file."""
    if key.path == "kind" and rule.kind is None:
        return "by the name"
    return key.show(rule.settings if key.field in OF_SETTINGS else rule)


def _names(rules: Sequence[Rule]) -> list[tuple[str, int]]:
    """Return a name for each rule. Rules with equal expressions are numbered."""
    seen: dict[str, int] = {}
    names = []
    for rule in rules:
        name = rule_name(rule)
        seen[name] = seen.get(name, -1) + 1
        names.append((name, seen[name]))
    return names


def _rising(places: list[int]) -> set[int]:
    """Return a longest rising part of ``places``: the rules that did not move."""
    ends: list[int] = []  # the lowest end of a rising part, by its length
    last_of: list[int] = []  # by length: the place in ``places`` of that end
    before: list[int] = []
    for number, place in enumerate(places):
        length = bisect_left(ends, place)
        before.append(last_of[length - 1] if length else -1)
        ends[length:] = [place, *ends[length + 1 :]]
        last_of[length:] = [number, *last_of[length + 1 :]]
    found = set()
    number = last_of[-1] if last_of else -1
    while number >= 0:
        found.add(places[number])
        number = before[number]
    return found


def _text(rule: Rule, config: Config) -> str:
    """Return a rule as text: its patterns, and the keys that differ from the defaults."""
    default = Rule(settings=config.defaults.settings)
    parts = [f"{key.path}: {show(key, rule)}" for key in KEYS if values(key, rule) != values(key, default)]
    return ", ".join([rule_name(rule), *parts])


def _change(path: str, before: str, after: str, applies: Applies, rule: str = "") -> Change:
    refused = applies.reason if applies.to is To.NOTHING else ""
    note = "" if applies is AT_RUN_TIME or refused else f"for {applies.to.value} only"
    return Change(path=path, before=before, after=after, rule=rule, refused=refused, note=note)
