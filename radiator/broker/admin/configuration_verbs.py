"""Verbs that compare the broker with a wanted state and apply it: ``config.reload``, ``subscriptions.apply``.

Both answer with the changes. With ``check`` they only compare. If one change is refused, none is made.

This module reads the arguments. ``Reloader`` and ``Declarations`` compare and apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker.admin.request import bad_request
from radiator.broker.durable.declared import DECLARED_UNITS, parse
from radiator.broker.reload import Outcome, ReloadRequest
from radiator.config.subscriptions import SUBSCRIPTION, DeclaredSubscription
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.services import Services


def reload(broker: Services, request: Request) -> None:
    """Reload the configuration, or compare only (``config.reload``). The answer is sent later.

    With ``check`` nothing changes. ``text`` (only with ``check``) is compared instead of the file of the broker;
    ``source`` is its name in messages, and ``environ`` has the environment variables in it.

    Raises:
        ProtocolError: An argument is wrong, or this broker has no configuration file.
    """
    if broker.reloader is None:
        raise ProtocolError("unsupported", "this broker cannot reload its configuration")
    text = request.text("text") if "text" in request.args else None
    environ = request.args.get("environ", {})
    if not isinstance(environ, dict) or not all(isinstance(value, str) for value in environ.values()):
        raise bad_request("environ: expected an object of texts", f"got {environ!r}"[:200])
    check = request.flag("check")
    if text is not None and not check:
        raise bad_request("text can be compared only", "Expected check: true; a reload reads the broker's own file.")
    asked = ReloadRequest(check=check, text=text, source=request.text("source", "configuration"), environ=environ)

    def done(found: Outcome | ProtocolError) -> None:
        if isinstance(found, ProtocolError):
            request.refuse(found)
            return
        request.done_with(found.changes)
        changes = [change.row() for change in found.changes]
        request.answer({"changed": bool(changes), "applied": found.applied, "changes": changes})

    broker.reloader.begin(asked, done)


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
        entry = _read_subscription(each, index)
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


def _read_subscription(entry: Any, index: int) -> DeclaredSubscription:
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
