"""The right ``monitor``: all numbers, no message, no change; and by pattern, no name of another destination."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from radiator.broker.admin.channel import VERBS
from radiator.broker.reload import Outcome, ReloadRequest
from radiator.errors import ProtocolError
from radiator.routing.rights import Rights
from tests.broker.admin.asking import ask, done, refused, user
from tests.broker.harness import Client, World

ARGS: dict[str, dict[str, Any]] = {
    "destinations.show": {"name": "/queue/mine.a"},
    "broker.drain": {"cancel": True},
    "clients.disconnect": {},
    "cursors.set": {"name": "sub:both", "position": "next"},
    "cursors.rm": {"name": "sub:both"},
    "maintenance.run": {"background": True},
    "queues.pause": {"name": "/queue/mine.a"},
    "queues.resume": {"name": "/queue/mine.a"},
    "queues.purge": {"name": "/queue/mine.a"},
    "subscriptions.apply": {"subscriptions": [], "check": True},
}
MINE = ["/queue/mine.*", "/topic/mine"]


class NothingToReload:
    def begin(self, request: ReloadRequest, done: Callable[[Outcome | ProtocolError], None]) -> None:
        done(Outcome([], False))


@pytest.fixture
def world() -> World:
    """Destinations of two owners; clients of one, of the other, and of both; durable subscriptions to each."""
    world = World("destinations: [{match: '/queue/foreign.log', partition: foreign-log}]\n")
    sender = world.connect()
    for name in ("/queue/mine.a", "/queue/foreign.b", "/topic/mine", "/topic/foreign", "/queue/foreign.log"):
        sender.publish(name, "body that nobody sees", kind="secret-header")
    world.settle()
    of_mine, of_foreign, of_both = (world.connect() for _ in range(3))
    of_mine.become("u-mine")
    of_foreign.become("u-foreign")
    of_both.become("u-both")
    of_mine.subscribe("/queue/mine.a", id="m")
    of_foreign.subscribe("/queue/foreign.*", id="f")
    of_both.subscribe("/queue/mine.a,/queue/foreign.b", id="1")
    of_both.subscribe("/queue/>", id="2")
    of_both.subscribe("/topic/foreign", id="3", ack="auto")
    for name, topics in (("both", "/topic/mine,/topic/foreign"), ("own", "/topic/mine"), ("theirs", "/topic/foreign")):
        holder = world.connect()
        holder.subscribe(topics, subscription_name=name)
        world.settle()
        holder.drop()
    world.tick(5)
    world.tick(5)
    world.broker.use_reloader(NothingToReload())
    return world


def session_of(world: World, name: str) -> str:
    (found,) = [each.id for each in world.broker.sessions.values() if each.user == name]
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_who_only_monitors_may_use_every_verb_that_reads_and_no_other(world: World, verb: str) -> None:
    client = user(world, monitor=["#"])
    args = dict(ARGS.get(verb, {}))
    if verb.startswith("clients.") and verb != "clients.ls":
        args["session"] = session_of(world, "u-mine")
    answer = ask(client, {"do": verb, **args})
    assert answer["ok"] is VERBS[verb].reads
    if not answer["ok"]:
        assert answer["error"]["code"] == "denied"
        client.become(rights=Rights({"admin": ["#"]}))
        assert ask(client, {"do": verb, **args})["ok"] is True
    assert "body that nobody sees" not in json.dumps(answer) and "secret-header" not in json.dumps(answer)


@pytest.mark.parametrize("right", ["monitor", "admin"])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if VERBS[verb].reads])
def test_no_answer_has_the_name_of_a_destination_that_the_user_may_not_see(world: World, verb: str, right: str) -> None:
    client = user(world, "limited", **{right: MINE})
    sessions = [session_of(world, name) for name in ("u-mine", "u-both")] if verb == "clients.show" else [""]
    for session in sessions:
        answer = ask(client, {"do": verb, **ARGS.get(verb, {}), **({"session": session} if session else {})})
        assert answer["ok"] is True
        assert "foreign" not in json.dumps(answer), answer
    if verb in ("clients.ls", "cursors.ls", "destinations.ls"):
        assert "mine" in json.dumps(answer)


def test_lists_have_what_is_permitted(world: World) -> None:
    client = user(world, monitor=MINE)
    assert [each["name"] for each in done(client, "destinations.ls")["destinations"]] == [
        "/queue/mine.a",
        "/topic/mine",
    ]
    clients = {each["user"]: each for each in done(client, "clients.ls")["clients"]}
    assert set(clients) == {"u-mine", "u-both"}
    assert [(each["id"], each["destination"]) for each in clients["u-both"]["subscriptions"]] == [
        ("1", "/queue/mine.a"),
        ("2", "/queue/mine.a"),
    ]
    assert clients["u-both"]["subscription_count"] == 2
    assert {each["cursor"] for each in done(client, "cursors.ls")["cursors"]} == {"queue:/queue/mine.a", "sub:own"}
    assert set(done(client, "stats")) == {"ok", "do", "version", "stats", "now", "store", "histograms"}


def test_a_client_of_other_destinations_does_not_exist(world: World) -> None:
    client = user(world, monitor=MINE)
    error = refused(client, "clients.show", session=session_of(world, "u-foreign"))
    assert error["code"] == "not-found" and "foreign" not in error["detail"]
    shown = done(client, "clients.show", session=session_of(world, "u-both"))
    assert all(each["messages"] == [] for each in shown["subscriptions"])  # their ids may name other logs


def test_a_wildcard_that_looks_permitted_shows_nothing_of_what_it_matches_beyond(world: World) -> None:
    sender, holder, reader = world.connect(), world.connect(), world.connect()
    sender.publish("/topic/hidden.deep", "x")
    holder.subscribe("/topic/>", subscription_name="wide", ack="client", prefetch_count=9)
    reader.subscribe("/topic/>", id="r", ack="client", prefetch_count=9)
    world.settle()
    sender.publish("/topic/hidden.deep", "x")
    world.settle()
    client = user(world, monitor=["/topic/*"])  # which matches /topic/> as a name, and not /topic/hidden.deep
    for verb, args in (("cursors.ls", {}), ("clients.ls", {}), ("stats", {}), ("overview", {})):
        assert "hidden" not in json.dumps(done(client, verb, **args)), verb
    for session in (holder.session.id, reader.session.id):
        assert "hidden" not in json.dumps(done(client, "clients.show", session=session))


def test_admin_over_everything_sees_everything(world: World) -> None:
    client = user(world, admin=["#"])
    assert done(client, "destinations.ls")["matched"] == 5
    assert done(client, "clients.ls")["matched"] == 5
    assert len({each["cursor"] for each in done(client, "cursors.ls")["cursors"]}) == 6


def test_the_right_gives_no_message(world: World) -> None:
    for frame in ({"destination": "/queue/mine.a"}, {"destination": "/queue/mine.a", "browser": "true"}):
        client: Client = user(world, monitor=["#"])
        client.subscribe(frame.pop("destination"), **frame)
        assert client.error() == "denied"
    client = user(world, monitor=["#"])
    client.publish("/queue/mine.a", "x")
    assert client.error() == "denied"
