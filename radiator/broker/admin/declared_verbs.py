"""Declared durable subscriptions on the admin channel: ``subscriptions.apply``.

This module knows the request and the answer. What is done is in ``durable.declared``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker.admin.request import bad_request
from radiator.broker.durable.declared import DECLARED_UNITS, parse
from radiator.config.subscriptions import SUBSCRIPTION, DeclaredSubscription

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.services import Services


def apply(broker: Services, request: Request) -> Work:
    """Create and change durable subscriptions, in steps (``subscriptions.apply``).

    ``subscriptions`` is a list of objects with the keys of an entry of ``subscriptions:``. With ``prune`` those that
    were declared before, and are neither in the list nor in the configuration in force, are deleted. With ``check``
    nothing changes.

    Raises:
        ProtocolError: An entry is malformed.
    """
    given = request.args.get("subscriptions")
    if not isinstance(given, list):
        raise bad_request("subscriptions: expected a list of objects", f"got {given!r}"[:200])
    by_title: dict[str, DeclaredSubscription] = {}
    for index, each in enumerate(given):
        entry = _read(each, index)
        if by_title.setdefault(entry.title, entry) is not entry:
            raise bad_request(f"subscriptions[{index}]: {entry.title} is in the list twice", "A name has one entry.")
        parse(entry, request.now.wall)
        broker.budget.spend(2 * DECLARED_UNITS)
        yield True
    wanted = list(by_title.values())
    prune = request.flag("prune")
    changes = yield from broker.declarations.plan(wanted, prune)
    applied = bool(changes) and not request.flag("check") and not any(change.refused for change in changes)
    if applied:
        yield from broker.declarations.apply(wanted, prune)
    request.done_with(changes)
    return {"changed": bool(changes), "applied": applied, "changes": [change.row() for change in changes]}


def _read(entry: Any, index: int) -> DeclaredSubscription:
    keys = {key.path: key for key in SUBSCRIPTION}
    path = f"subscriptions[{index}]"
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise bad_request(f"{path}: expected an object of texts", f"got {entry!r}"[:200])
    if not entry.keys() <= keys.keys() or ("name" in entry) == ("group" in entry) or "destination" not in entry:
        raise bad_request(f"{path}: expected destination, and name or group", f"got {entry!r}"[:200])
    try:
        return DeclaredSubscription(**{keys[name].field: keys[name].type.read(value) for name, value in entry.items()})
    except ValueError as error:
        raise bad_request(f"{path}: {error}", f"got {entry!r}"[:200]) from None
