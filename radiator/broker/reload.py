"""A reload: another configuration for a running broker, all of it or nothing.

    decide   compute the policy of every destination by the new rules, in steps; find what cannot change
    switch   in one turn: new rules, limits, hooks; from then on every frame is handled by them
    adopt    every destination takes its new policy, with the first frame that uses it, or in steps

A destination keeps its kind, its logs and its bound queues while the broker runs. A reload that gives a destination
other ones is refused, because its messages would not be delivered, or not in their order.

This module knows destinations and durable subscriptions. It knows neither files nor sockets.
Invariants: nothing changes before everything is decided. After ``adopt`` the broker has the values of one that was
started with the new file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from radiator.config.compare import Change, rule_name, rule_path, show, values
from radiator.config.keys import Key, To
from radiator.config.settings import RULE_ONLY, SETTINGS, log_values
from radiator.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.declared import Declarations
    from radiator.broker.durable.subscriptions import DurableSubscriptions
    from radiator.broker.rule_hooks import RuleHooks
    from radiator.config.settings import Settings
    from radiator.routing.policy import Policy
    from radiator.routing.rules import Rules

DECIDE_UNITS: Final = 20  # per destination
ADOPT_UNITS: Final = 20  # per destination
SHOWN_MAX: Final = 3  # names of destinations in a reason
FIXED: Final = tuple(key for key in (*RULE_ONLY, *SETTINGS) if key.applies.to is To.NEW_DESTINATIONS)
IN_POLICY: Final = ("kind", "partition", "partitions", "priority", "fan_out")  # they depend on the name
REMEDIES: Final = {
    **dict.fromkeys(
        ("partition", "partitions", "priority"),
        "Restart the broker with the new file: it delivers the messages of the old logs first",
    ),
    "kind": "Let the consumers empty these destinations, then restart the broker with the new file",
    "fan_out": "Restart the broker with the new file",
}
REMEDY: Final = "Restart the broker with the new file, or write a rule for these names that keeps the value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadRequest:
    """What a client wants to be reloaded.

    Attributes:
        check: Compare only.
        text: The text of a file to compare with, instead of the file of the broker.
        source: Its name in messages.
        environ: The environment variables that the text may use.
    """

    check: bool = False
    text: str | None = None
    source: str | None = None
    environ: Mapping[str, str] | None = None


class Reloader(Protocol):
    """Reads and applies the configuration: the part of a reload that needs files and threads."""

    def begin(self, request: ReloadRequest, done: Callable[[Outcome | ProtocolError], None]) -> None:
        """Begin a reload, and call ``done`` at its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a reload.

    Attributes:
        changes: What differs.
        applied: True if the new configuration is in force.
    """

    changes: list[Change]
    applied: bool

    @property
    def refused(self) -> list[Change]:
        """The changes that the broker refuses."""
        return [change for change in self.changes if change.refused]


class Blocked(NamedTuple):
    """A key that a running broker cannot change for destinations that exist."""

    place: int  # the index of the new rule
    key: Key
    before: str
    after: str


class Reload:
    """One reload.

    Args:
        core: The core of the broker.
        durable: The durable subscriptions.
        declarations: Those that the configuration declares.
        rules: The new rules, with their configuration.

    Attributes:
        policies: The new policy of each destination.
    """

    def __init__(self, core: Core, durable: DurableSubscriptions, declarations: Declarations, rules: Rules) -> None:
        self._core = core
        self._declarations = declarations
        self._durable = durable
        self._rules = rules
        self._blocked: dict[Blocked, list[str]] = {}
        self._clashes: list[str] = []
        self._logs: dict[str, tuple[Settings, str]] = {}  # by log: its new settings, and a destination with them
        self._declared: list[Change] = []
        self._added = core.registry.note_added()
        self.policies: dict[Destination, Policy] = {}

    # --- decide -------------------------------------------------------------------------------------------------------

    def decide(self) -> Steps:
        """Compute the policies of all destinations, in steps."""
        for destination in [*self._core.destinations.values(), *self._core.registry.removing]:
            self._decide(destination)
            self._core.budget.spend(DECIDE_UNITS)
            yield True
        yield from self.decide_added()
        self._declared = yield from self._declarations.plan(self._rules.config.subscriptions)

    def decide_added(self) -> Steps:
        """Compute the policies of the destinations that were created since the last call, in steps."""
        while self._added:
            self._decide(self._added.pop())
            self._core.budget.spend(DECIDE_UNITS)
            yield True

    def _decide(self, destination: Destination) -> None:
        name, old = destination.name, destination.policy
        if self._core.destinations.get(name) is not destination and destination not in self._core.registry.removing:
            return
        try:
            new = self._rules.policy_for(name)
        except ProtocolError as error:
            self._clashes.append(f"{name}: {error.message}: {error.detail}")
            return
        self.policies[destination] = new
        if _fixed(old) != _fixed(new):
            differ = [key for key in FIXED if _value(key, old) != _value(key, new)]
            paths = {key.path for key in differ}
            number = next((path for path in ("priority", "partitions") if path in paths), "")
            for key in differ:
                if number and key.path in ("partition", "partitions", "priority") and key.path != number:
                    continue  # the names of the logs change with their number
                blocked = Blocked(new.rule_index, key, _shown(key, old), _shown(key, new))
                self._blocked.setdefault(blocked, []).append(name)
        for feed in destination.feeds:
            settings, other = self._logs.setdefault(feed.partition.name, (new.settings, name))
            if settings is not new.settings and log_values(settings) != log_values(new.settings):
                self._clashes.append(
                    f"{name} and {other} share the log {feed.partition.name} and would have different settings of it"
                )

    def refused(self, changes: list[Change]) -> list[Change]:
        """Return the changes with those that this broker refuses marked, and others that it refuses."""
        found = {change.path: change for change in changes}
        for blocked, names in self._blocked.items():
            path = f"{rule_path(blocked.place)}.{blocked.key.path}"
            rule = self._rules.config.rules[blocked.place] if blocked.place >= 0 else None
            more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
            remedy = REMEDIES.get(blocked.key.path, REMEDY)
            reason = f"{', '.join(names[:SHOWN_MAX])}{more}: {blocked.key.applies.reason}. {remedy}"
            earlier = found.get(path)
            found[path] = Change(
                path=path,
                before=blocked.before,
                after=blocked.after,
                rule="" if rule is None else rule_name(rule),
                refused=f"{earlier.refused}; {reason}" if earlier is not None and earlier.refused else reason,
            )
        found.update((change.path, change) for change in self._declared)
        for number, clash in enumerate(self._clashes[:SHOWN_MAX]):
            found[f"clash {number}"] = Change(path="destinations", before=None, after=None, refused=clash)
        return list(found.values())

    @property
    def possible(self) -> bool:
        """True if no destination that exists hinders the reload, as far as it is decided."""
        return not (self._blocked or self._clashes)

    def cancel(self) -> None:
        """End the reload without a change."""
        self._core.registry.forget_added()

    # --- switch and adopt ---------------------------------------------------------------------------------------------

    def switch(self, hooks: Mapping[int, RuleHooks]) -> None:
        """Use the new configuration from now on.

        Args:
            hooks: The middleware and schemas of the new rules.

        Raises:
            ConfigError: A destination that was created meanwhile hinders the reload. Nothing has changed.
        """
        for _ in self.decide_added():
            pass
        if not self.possible:
            raise ConfigError("; ".join(change.refused for change in self.refused([])))
        self._core.use(self._rules, hooks, self.policies)

    def adopt(self) -> Steps:
        """Let all destinations and durable subscriptions take their new policies, and create the declared ones."""
        budget = self._core.budget
        registry = self._core.registry
        while registry.has_stale:
            with self._core.internal_errors:
                registry.adopt_next()
            budget.spend(ADOPT_UNITS)
            yield True
        for durable in list(self._durable.by_key.values()):
            yield from durable.agree_again()
        yield from self._declarations.apply(self._rules.config.subscriptions)


def _fixed(policy: Policy) -> tuple[Any, ...]:
    """Return what a destination keeps, as one value to compare."""
    settings, partitions = policy.settings, policy.partitions
    by = policy.rule.partition_by if len(partitions) > 1 else None
    kept = (policy.kind, partitions, policy.priority, policy.fan_out, by)
    return (*kept, settings.store, settings.compact_by, settings.exclusive)


def _value(key: Key, policy: Policy) -> Any:
    """Return what a policy has for a key of which a destination cannot take another value."""
    if key.path == "partition":
        return policy.partitions
    if key.path in ("kind", "priority", "fan_out"):
        return getattr(policy, key.path)
    if key.path == "partitions":
        return len(policy.partitions)
    if key.path == "partition_by" and len(policy.partitions) == 1:
        return None
    return values(key, policy.rule) if key in RULE_ONLY else getattr(policy.settings, key.field)


def _shown(key: Key, policy: Policy) -> str:
    if key.path in IN_POLICY:
        found = policy.rule.partition if key.path == "partition" else _value(key, policy)
        if isinstance(found, bool):
            return "true" if found else "false"
        return ", ".join(found) or "none" if isinstance(found, tuple) else str(found)
    return show(key, policy.rule) if key in RULE_ONLY else key.show(policy.settings)
