"""The reload of the configuration on the admin channel: ``config.reload``.

This module knows the request and the answer. The server reads the file (``server.reload``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.admin.request import bad_request
from radiator.broker.reload import Outcome, ReloadRequest
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
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
