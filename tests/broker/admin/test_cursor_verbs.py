"""cursors.ls, cursors.set and cursors.rm: who has read how far, and who is to begin elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.durable.test_subscriptions import T, again, durable
from tests.broker.harness import World
from tests.broker.queues.test_queue import drain, fill

Q = "/queue/a"
FAN = "destinations: [{match: /queue/in, fan_out: [/queue/one, /queue/two]}]"


def ask(world: World, verb: str, **args: Any) -> dict[str, Any]:
    client = world.connect()
    body = json.dumps({"do": verb, **args})
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.settle()
    (message,) = client.messages()
    client.drop()
    world.settle()
    answer: dict[str, Any] = json.loads(message.body)
    return answer


def rows(world: World, match: str = "*") -> list[tuple[str, str, int, int, int, int, int]]:
    found = ask(world, "cursors.ls", match=match)["cursors"]
    fields = ("cursor", "partition", "position", "end", "lag", "in_flight", "members")
    return [tuple(row[field] for field in fields) for row in found]  # type: ignore[misc]


def test_the_list_has_the_position_of_every_cursor(world: World) -> None:
    client = durable(world, prefetch_count=2)
    durable(world, name="gone").drop()
    fill(world, 5, T)
    fill(world, 3, Q)
    client.ack(client.messages()[1])
    world.settle()
    assert rows(world) == [
        ("queue:" + Q, Q, 0, 3, 3, 0, 0),
        ("sub:gone", T, 0, 5, 5, 0, 0),
        ("sub:me", T, 0, 5, 4, 2, 1),
    ]
    assert [row[0] for row in rows(world, "gone")] == ["sub:gone"]
    about = {row["cursor"]: row["destination"] for row in ask(world, "cursors.ls")["cursors"]}
    assert about == {"queue:" + Q: Q, "sub:gone": T, "sub:me": T}
    behind = ask(world, "stats")["cursors"]
    assert [(row["cursor"], row["lag"]) for row in behind] == [("sub:gone", 5), ("sub:me", 4), ("queue:" + Q, 3)]


def test_the_list_comes_in_pages(world: World) -> None:
    for number in range(3):
        fill(world, 1, f"/queue/{number}")
    first = ask(world, "cursors.ls", limit=2)
    assert [row["partition"] for row in first["cursors"]] == ["/queue/0", "/queue/1"]
    rest = ask(world, "cursors.ls", limit=2, after=first["next"])
    assert ([row["partition"] for row in rest["cursors"]], rest["next"]) == (["/queue/2"], None)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("first", ["m0", "m1", "m2"]),
        ("next", []),
        ("last", ["m2"]),
        ("offset:1", ["m1", "m2"]),
        ("ago:1h", ["m0", "m1", "m2"]),
    ],
)
@pytest.mark.parametrize("end", [None, "kill", "power_cut"])
def test_a_queue_is_set_to_a_position(position: str, expected: list[str], end: str | None) -> None:
    world = World("defaults: {retention: {acked: keep}}")
    fill(world, 3, Q)
    client = world.connect()
    client.subscribe(Q, ack="auto")
    world.settle()
    client.drop()
    world.settle()
    answer = ask(world, "cursors.set", name=Q, position=position)
    assert answer["ok"] and answer["cursors"][0]["lag"] == len(expected)
    if end is not None:
        getattr(world, end)()
    client = world.connect()
    client.subscribe(Q)
    assert drain(client) == expected


def test_what_a_consumer_held_means_nothing_any_more(world: World) -> None:
    fill(world, 2, Q)
    client = world.connect()
    client.subscribe(Q)
    world.settle()
    (held,) = client.messages()
    ask(world, "cursors.set", name="queue:" + Q, position="first")
    client.ack(held)
    assert drain(client) == ["m0", "m1"]


@pytest.mark.parametrize("destination", [{}, {"destination": T}])
def test_a_durable_subscription_is_set_while_it_is_in_use(world: World, destination: dict[str, str]) -> None:
    fill(world, 2, T)
    client = durable(world, ack="auto")
    assert client.bodies() == []
    assert ask(world, "cursors.set", name="me", position="first", **destination)["ok"]
    world.settle()
    assert client.bodies() == ["m0", "m1"]
    client.drop()
    world.kill()
    assert again(world) == []


def test_the_cursor_of_one_bound_queue_can_be_set() -> None:
    world = World(FAN)
    fill(world, 2, "/queue/in")
    ask(world, "cursors.set", name="/queue/one", position="next", destination="/queue/in")
    lags = {row[0]: row[4] for row in rows(world) if row[1] == "/queue/in"}
    assert lags == {"queue:/queue/one": 0, "queue:/queue/two": 2}


def test_a_name_is_deleted_though_it_is_in_use(world: World) -> None:
    client = durable(world)
    assert ask(world, "cursors.rm", name="me")["cursor"] == "sub:me"
    assert client.error() == "bad-subscription"
    assert rows(world, "sub:*") == []


@pytest.mark.parametrize(
    ("verb", "args", "code"),
    [
        ("cursors.rm", {"name": "nobody"}, "not-found"),
        ("cursors.rm", {"name": Q}, "bad-request"),
        ("cursors.set", {"name": Q, "position": "soon"}, "bad-position"),
        ("cursors.set", {"name": Q, "position": "end"}, "bad-position"),
        ("cursors.set", {"name": Q, "position": "first", "destination": "/queue/none"}, "bad-request"),
        ("cursors.set", {"name": "me", "position": "first", "destination": Q}, "bad-request"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    world: World, verb: str, args: dict[str, Any], code: str
) -> None:
    fill(world, 1, Q)
    durable(world)
    answer = ask(world, verb, **args)
    assert (answer["ok"], answer["error"]["code"]) == (False, code)


def test_a_group_without_topics_is_listed_with_its_pause(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/none.>", group="idle", ack="client")
    world.settle()

    def row() -> dict[str, Any]:
        (found,) = ask(world, "cursors.ls", match="idle")["cursors"]
        return dict(found)

    assert (row()["cursor"], row()["partition"], row()["lag"], row()["paused"]) == ("group:idle", "", 0, False)
    ask(world, "queues.pause", name="group:idle")
    assert row()["paused"] and row()["members"] == 1
    client.publish("/topic/none.a", "x")
    world.settle()
    assert row()["partition"] == "/topic/none.a" and row()["paused"]
