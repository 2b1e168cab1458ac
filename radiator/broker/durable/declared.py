"""Durable subscriptions and groups that the configuration declares (``subscriptions:``).

They exist before their first subscriber: a start, a reload and ``radiator apply`` create those that are missing and
change those that differ. A subscription that is declared no more stays until it is pruned. A subscription in use is
not changed, because its subscribers rely on what they have asked for.

This module compares declarations with what exists. Creation and change are in ``subscriptions``.
Invariant: applying the same declarations twice changes nothing the second time.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from radiator import limits
from radiator.broker.headers.positions import Position, parse_position
from radiator.broker.headers.subscribe import SubscriptionName
from radiator.broker.logs import cursor_names
from radiator.broker.logs.selection import Selection, text_of
from radiator.clock import WallNs
from radiator.config.compare import Change
from radiator.config.subscriptions import DeclaredSubscription
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import PatternSet, parse_subscribed
from radiator.routing.rules import kind_of

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.core import Core
    from radiator.broker.durable.subscription import DurableSubscription
    from radiator.broker.durable.subscriptions import DurableSubscriptions
    from radiator.config import Config

log = logging.getLogger("radiator.broker")

DECLARED_UNITS = 40  # cost of parsing an entry
IN_USE = "it is in use; disconnect its subscribers first"


class Declared(NamedTuple):
    """An entry of ``subscriptions:``, parsed."""

    name: SubscriptionName
    patterns: PatternSet
    selection: Selection | None
    position: Position
    user: str


def parse(entry: DeclaredSubscription, now_ns: WallNs) -> Declared:
    """Parse an entry.

    Raises:
        ProtocolError: The destination, the selector or the position is malformed.
    """
    prefix = cursor_names.SUBSCRIPTION if entry.group is None else cursor_names.GROUP
    name, patterns = entry.name or entry.group or "", parse_subscribed(entry.destination)
    if len(name.encode()) > limits.SUBSCRIPTION_NAME_BYTES_MAX:
        most = limits.SUBSCRIPTION_NAME_BYTES_MAX
        raise ProtocolError("bad-header", f"expected a name of at most {most} bytes, got {name[:100]!r}")
    if any(kind_of(each) == "queue" for each in patterns.names):
        raise ProtocolError("bad-destination", f"expected topics, got {entry.destination[:200]!r}")
    return Declared(
        SubscriptionName(prefix, name),
        patterns,
        None if entry.selector is None else Selection(entry.selector),
        parse_position("start", entry.start, now_ns),
        entry.user,
    )


def check(config: Config) -> None:
    """Check the subscriptions of a configuration.

    Raises:
        ConfigError: One of them is malformed.
    """
    faults = []
    for index, entry in enumerate(config.subscriptions):
        try:
            parse(entry, WallNs(0))
        except ProtocolError as error:
            where = f"{config.source or 'configuration'}:{entry.line}: subscriptions[{index}]"
            text = error.message.removeprefix("header ")  # the keys have the names of headers
            if error.detail:
                text += f"\n{error.detail}" if "\n" in error.detail else f": {error.detail}"  # a selector with a mark
            faults.append(f"{where}: {text}")
    if faults:
        raise ConfigError("\n".join(faults))


class Declarations:
    """Applies declarations to the durable subscriptions of one broker.

    Args:
        core: The core of the broker.
        names: The durable subscriptions.
    """

    __slots__ = ("_core", "_names")

    def __init__(self, core: Core, names: DurableSubscriptions) -> None:
        self._core = core
        self._names = names

    def plan(self, wanted: Sequence[DeclaredSubscription], prune: bool = False) -> Generator[bool, None, list[Change]]:
        """Compute what ``apply`` would change, in steps.

        Args:
            wanted: The declarations, which ``parse`` accepts.
            prune: Delete declared subscriptions that are neither in ``wanted`` nor in the configuration in force.

        Returns:
            The changes, once all steps are done.
        """
        found: list[Change] = []
        for index, entry in enumerate(wanted):
            declared, path = parse(entry, self._core.timing.shown_ns), f"subscriptions[{index}]"
            durable = self._names.by_key.get(declared.name.key)
            self._core.budget.spend(DECLARED_UNITS)
            yield True
            if durable is None:
                full = len(self._names.by_key) >= limits.SUBSCRIPTION_NAMES_MAX
                refused = f"there are {len(self._names.by_key)} durable subscriptions" if full else ""
                found.append(Change(path=path, before=None, after=str(entry), refused=refused))
                continue
            if durable.user != declared.user:
                why = "a subscription belongs to the user that created it; `radiator cursors rm` deletes it"
                users = durable.user or "none", declared.user or "none"
                found.append(_change(f"{path}.user", entry, *users, why))
            elif durable.patterns.text != declared.patterns.text:
                found.append(_changed(f"{path}.destination", entry, durable, durable.patterns.text, entry.destination))
            elif text_of(durable.queue.selection) != text_of(declared.selection):
                before = "none" if durable.queue.selection is None else durable.queue.selection.given
                found.append(_changed(f"{path}.selector", entry, durable, before, entry.selector or "none"))
        for durable in self._pruned(wanted) if prune else ():
            refused = IN_USE if durable.active else ""
            before = f"{durable.key}, {durable.patterns.text}"
            found.append(Change(path=f"subscriptions ({durable.key})", before=before, after=None, refused=refused))
        return found

    def apply(self, wanted: Sequence[DeclaredSubscription], prune: bool = False) -> Steps:
        """Create, change and with ``prune`` delete durable subscriptions, in steps. What cannot be done is logged."""
        names, now_ns = self._names, self._core.timing.shown_ns
        for entry in wanted:
            declared = parse(entry, now_ns)
            self._core.budget.spend(DECLARED_UNITS)
            yield from names.wait_unlocked(declared.name.key)
            try:
                yield from names.declare(*declared, now_ns)
            except ProtocolError as error:
                log.error("%s: %s %s", entry.title, error.message, error.detail)
        for durable in self._pruned(wanted) if prune else ():
            if not (durable.active or durable.deleted):
                names.delete(durable)

    def _pruned(self, wanted: Sequence[DeclaredSubscription]) -> list[DurableSubscription]:
        kept = {entry.title for entry in (*wanted, *self._core.config.subscriptions)}
        return [each for each in self._names.by_key.values() if each.declared and each.key not in kept]


def _changed(path: str, entry: DeclaredSubscription, durable: DurableSubscription, before: str, after: str) -> Change:
    return _change(path, entry, before, after, IN_USE if durable.active else "")


def _change(path: str, entry: DeclaredSubscription, before: str, after: str, refused: str) -> Change:
    return Change(path=path, before=before, after=after, rule=entry.title, refused=refused)
