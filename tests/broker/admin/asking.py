"""A request on the admin channel, and its answer."""

from __future__ import annotations

import json
from typing import Any

from radiator.routing.rights import Rights
from tests.broker.harness import Client, World


def ask(client: Client, request: Any, **headers: str) -> dict[str, Any]:
    """The answer to one request; the connection stays."""
    body = request if isinstance(request, str) else json.dumps(request)
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers", **headers)
    client.world.settle()
    (answer,) = [each for each in client.take("MESSAGE") if each.headers["destination"].startswith("/temp-queue/")]
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(answer.body)
    assert not client.session.closing
    return found


def done(client: Client, verb: str, **args: Any) -> dict[str, Any]:
    """The answer to a request that is carried out."""
    answer = ask(client, {"do": verb, **args})
    assert answer["ok"] is True, answer
    return answer


def refused(client: Client, verb: str, **args: Any) -> dict[str, Any]:
    """The error of a request that is refused."""
    answer = ask(client, {"do": verb, **args})
    assert answer["ok"] is False, answer
    error: dict[str, Any] = answer["error"]
    return error


def user(world: World, name: str = "", **grants: Any) -> Client:
    """A client with these rights only."""
    client = world.connect()
    client.become(name, Rights(grants))
    return client
