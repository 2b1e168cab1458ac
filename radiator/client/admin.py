"""Send requests to the admin channel of the broker and return the answers as dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from radiator.client.errors import ServerError

if TYPE_CHECKING:
    from radiator.client.connection import Connection

DESTINATION = "/radiator/admin"


def ask(connection: Connection, verb: str, /, **args: Any) -> dict[str, Any]:
    """Send one request to the admin channel and return the answer.

    Args:
        connection: An open connection whose user may use the admin channel.
        verb: The name of the request, such as ``destinations.ls``.
        **args: The arguments of the request; the values must be JSON values.

    Returns:
        The answer, without its ``ok`` field.

    Raises:
        ServerError: The broker refused the request; ``code`` says why.
        TimedOut: No answer came within the time limit of the connection.
        Disconnected: The connection ended first.

    Source: ``docs/protocol.md``, "The admin channel".
    """
    request = json.dumps({"do": verb, **args}).encode()
    answer: dict[str, Any] = json.loads(connection.request(DESTINATION, request).body)
    if not answer.pop("ok", False):
        error = answer.get("error", {})
        raise ServerError(error.get("code", ""), error.get("message", "the broker refused"), error.get("detail", ""))
    return answer


def ask_all(connection: Connection, verb: str, field: str, /, **args: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list, requesting one page after another.

    Args:
        connection: An open connection whose user may use the admin channel.
        verb: The name of a request whose answer has pages.
        field: The field of the answer that contains the entries, such as ``destinations``.
        **args: The arguments of the request, the same for every page.

    Raises:
        ServerError: The broker refused a request.
        TimedOut: No answer came within the time limit of the connection.
        Disconnected: The connection ended first.
    """
    after = ""
    while after is not None:
        page = ask(connection, verb, after=after, **args)
        yield from page[field]
        after = page["next"]
