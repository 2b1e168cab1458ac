"""Asking the broker itself: one verb of its admin channel, and the answer as a dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from radiator.client.errors import ServerError

if TYPE_CHECKING:
    from radiator.client.connection import Connection

DESTINATION = "/radiator/admin"


def ask(connection: Connection, verb: str, /, **args: Any) -> dict[str, Any]:
    """The broker's answer to a verb (``docs/protocol.md``, "The admin channel"). Raises ServerError if it refuses."""
    request = json.dumps({"do": verb, **args}).encode()
    answer: dict[str, Any] = json.loads(connection.request(DESTINATION, request).body)
    if not answer.pop("ok", False):
        error = answer.get("error", {})
        raise ServerError(error.get("code", ""), error.get("message", "the broker refused"), error.get("detail", ""))
    return answer


def ask_all(connection: Connection, verb: str, field: str, /, **args: Any) -> Iterator[dict[str, Any]]:
    """The entries called ``field`` of all pages of a list."""
    after = ""
    while after is not None:
        page = ask(connection, verb, after=after, **args)
        yield from page[field]
        after = page["next"]
