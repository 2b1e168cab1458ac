"""Paused queues: nothing is delivered, everything else goes on, and a crash changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator.routing.rights import Rights
from tests.broker.harness import Client, World

CONFIG = """
defaults:
  fsync: always
  prefetch: 10
destinations:
  - match: /queue/orders
    fan_out: [/queue/billing, /queue/shipping]
  - match: /queue/urgent
    priority: true
  - match: /queue/short
    message_ttl: 10s
    dead_letter: /queue/dead
    dead_letter_expired: true
  - match: /queue/slow
    ack_timeout: 5s
  - match: /queue/one
    exclusive: true
  - match: /queue/full
    max_messages: 2
    on_full: reject
"""


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def ask(client: Client, verb: str, **args: Any) -> dict[str, Any]:
    body = json.dumps({"do": verb, **args})
    client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/answers")
    client.world.settle()
    (answer,) = [each for each in client.messages() if each.headers["destination"].startswith("/temp-queue/")]
    found: dict[str, Any] = json.loads(answer.body)
    return found


def pause(world: World, name: str, verb: str = "queues.pause") -> dict[str, Any]:
    client = world.connect()
    found = ask(client, verb, name=name)
    client.drop()
    return found


def resume(world: World, name: str) -> dict[str, Any]:
    return pause(world, name, "queues.resume")


def test_a_paused_queue_takes_messages_and_delivers_them_in_order_once_it_is_resumed(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "1")
    world.settle()
    assert client.bodies() == ["1"]
    assert pause(world, "/queue/a") == {"ok": True, "do": "queues.pause", "name": "/queue/a", "paused": True}
    client.publish("/queue/a", "2", "3")
    other = world.connect()
    other.subscribe("/queue/a", ack="auto")
    world.settle()
    assert client.bodies() == other.bodies() == []
    assert pause(world, "/queue/a")["paused"] is True
    assert resume(world, "/queue/a") == {"ok": True, "do": "queues.resume", "name": "/queue/a", "paused": False}
    world.settle()
    assert sorted(client.bodies() + other.bodies()) == ["2", "3"]
    assert resume(world, "/queue/a")["ok"] is True


def test_messages_in_flight_are_settled_or_come_back_and_wait(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/slow", prefetch_count=3)
    client.publish("/queue/slow", "1", "2", "3", "4")
    world.settle()
    first, second, third = client.messages()
    pause(world, "/queue/slow")
    client.ack(first, receipt="acked")
    client.nack(second)
    world.tick(6)  # the third times out
    assert client.receipts() == ["acked"]
    assert client.messages() == []
    resume(world, "/queue/slow")
    world.settle()
    again = client.messages()
    assert [each.body for each in again] == [b"2", b"3", b"4"]
    assert [each.headers.get("redelivered") for each in again] == ["true", "true", None]
    assert third.headers["message-id"] == again[1].headers["message-id"]


def test_messages_expire_and_limits_hold_while_a_queue_is_paused(world: World) -> None:
    client = world.connect()
    client.publish("/queue/short", "old")
    client.publish("/queue/full", "1", "2")
    world.settle()
    pause(world, "/queue/short")
    pause(world, "/queue/full")
    client.subscribe("/queue/dead")
    client.subscribe("/queue/short", id="1")
    world.tick(11)
    assert client.bodies() == ["old"]
    client.publish("/queue/full", "3")
    world.settle()
    assert client.error() == "full"


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
def test_a_pause_that_was_answered_survives(world: World, end: str) -> None:
    client = world.connect()
    client.publish("/queue/a", "1")
    client.subscribe("/queue/empty")
    world.settle()
    pause(world, "/queue/a")
    pause(world, "/queue/empty")
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a")
    client.subscribe("/queue/empty", id="1")
    client.publish("/queue/empty", "2")
    world.settle()
    assert client.bodies() == []
    listed = ask(client, "destinations.ls", match="/queue/*")["destinations"]
    assert {each["name"]: each["paused"] for each in listed} == {"/queue/a": True, "/queue/empty": True}
    client.messages()
    resume(world, "/queue/a")
    resume(world, "/queue/empty")
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a")
    client.subscribe("/queue/empty", id="1")
    world.settle()
    assert sorted(client.bodies()) == ["1", "2"]


def test_the_answer_waits_for_the_disk(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1")
    world.settle()
    request = {"do": "queues.pause", "name": "/queue/a"}
    client.say("SEND", json.dumps(request), destination="/radiator/admin", reply_to="/temp-queue/answers")
    world.take()
    world.pump()
    assert client.messages() == []
    world.write()
    world.pump()
    assert client.messages() == []
    world.sync()
    world.completed()
    world.settle()
    (answer,) = client.messages()
    assert json.loads(answer.body)["paused"] is True


def test_an_empty_paused_queue_stays_when_its_last_subscriber_goes(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    pause(world, "/queue/a")
    client.say("UNSUBSCRIBE", id="0")
    world.settle()
    (found,) = ask(client, "destinations.ls", match="/queue/a")["destinations"]
    assert found["paused"] is True
    resume(world, "/queue/a")


@pytest.mark.parametrize("headers", [{}, {"selector": "x = 'y'"}, {"max_in_flight": 1}])
def test_consumers_of_every_kind_go_on_after_a_pause(world: World, headers: dict[str, str]) -> None:
    connect = {"max_in_flight": "1"} if "max_in_flight" in headers else {}
    client = world.connect(**connect)
    client.subscribe("/queue/a", prefetch_count=1, **{k: v for k, v in headers.items() if k == "selector"})
    sender = world.connect()
    sender.publish("/queue/a", "1", x="y")
    world.settle()
    (first,) = client.messages()
    pause(world, "/queue/a")
    sender.publish("/queue/a", "2", "3", x="y")
    client.ack(first)
    world.settle()
    assert client.bodies() == []
    resume(world, "/queue/a")
    world.settle()
    (second,) = client.messages()
    client.ack(second)
    world.settle()
    assert [second.body, *[each.body for each in client.messages()]] == [b"2", b"3"]


def test_one_bound_queue_of_a_fan_out_is_paused_and_the_other_delivers(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/billing", id="b")
    client.subscribe("/queue/shipping", id="s")
    client.publish("/queue/orders", "1")
    world.settle()
    assert client.bodies() == ["1", "1"]
    pause(world, "/queue/billing")
    client.publish("/queue/orders", "2")
    world.settle()
    assert [each.headers["subscription"] for each in client.messages()] == ["s"]
    resume(world, "/queue/billing")
    world.settle()
    assert [each.headers["subscription"] for each in client.messages()] == ["b"]


def test_priorities_hold_after_a_pause(world: World) -> None:
    client = world.connect()
    client.publish("/queue/urgent", "low", priority=1)
    world.settle()
    pause(world, "/queue/urgent")
    client.subscribe("/queue/urgent")
    client.publish("/queue/urgent", "high", priority=9)
    world.settle()
    assert client.bodies() == []
    resume(world, "/queue/urgent")
    world.settle()
    assert client.bodies() == ["high", "low"]


def test_an_exclusive_consumer_goes_on_after_a_pause(world: World) -> None:
    first, second = world.connect(), world.connect()
    first.subscribe("/queue/one")
    second.subscribe("/queue/one")
    world.settle()
    first.publish("/queue/one", "1")
    world.settle()
    assert first.bodies() == ["1"]
    pause(world, "/queue/one")
    first.publish("/queue/one", "2")
    first.drop()
    world.settle()
    assert second.bodies() == []
    resume(world, "/queue/one")
    world.settle()
    assert second.bodies() == ["1", "2"]


def test_a_paused_queue_can_be_browsed_and_replayed(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1", "2")
    world.settle()
    pause(world, "/queue/a")
    client.subscribe("/queue/a", browser="true", ack="auto")
    world.settle()
    assert client.bodies()[:2] == ["1", "2"]


@pytest.mark.parametrize("key", ["sub:me", "group:me"])
def test_durable_subscriptions_and_groups_are_paused_by_the_name_of_their_cursor(world: World, key: str) -> None:
    name = {"subscription_name": "me"} if key == "sub:me" else {"group": "me"}
    client = world.connect()
    client.subscribe("/topic/t", **name)
    world.settle()
    pause(world, key)
    client.publish("/topic/t", "1")
    world.settle()
    assert client.bodies() == []
    world.kill()
    client = world.connect()
    client.subscribe("/topic/t", **name)
    world.settle()
    assert client.bodies() == []
    assert [each["paused"] for each in ask(client, "cursors.ls", match=key)["cursors"]] == [True]
    ask(world.connect(), "cursors.rm", name=key)
    world.settle()
    client = world.connect()
    client.subscribe("/topic/t", **name)  # a new one of the same name is not paused
    client.publish("/topic/t", "2")
    world.settle()
    assert client.bodies() == ["2"]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("/queue/none", "not-found", "there is no queue"),
        ("/topic/t", "unsupported", "is a topic"),
        ("/queue/orders", "unsupported", "has fan_out"),
        ("sub:none", "not-found", "there is no cursor"),
    ],
)
def test_what_cannot_be_paused_is_refused(world: World, name: str, code: str, words: str) -> None:
    client = world.connect()
    client.publish("/topic/t", "1")
    client.publish("/queue/orders", "1")
    world.settle()
    error = pause(world, name)["error"]
    assert (error["code"], words in error["message"]) == (code, True)


@pytest.mark.parametrize("verb", ["queues.pause", "queues.resume"])
def test_an_unknown_name_is_answered_with_the_closest_one_that_the_client_may_pause(world: World, verb: str) -> None:
    client = world.connect()
    client.publish("/queue/jobs", "1")
    client.publish("/queue/mine.jobs", "1")
    client.subscribe("/topic/t", subscription_name="billing")
    world.settle()

    def refused(name: str) -> tuple[str, str]:
        error = ask(client, verb, name=name)["error"]
        return error["code"], error["detail"]

    assert refused("/queue/job") == refused("queue:/queue/job") == ("not-found", "Did you mean '/queue/jobs'?")
    assert refused("sub:biling") == ("not-found", "Did you mean 'sub:billing'?")
    assert refused("/queue/other") == ("not-found", "`radiator ls --url ADDRESS` lists them.")
    assert refused("group:other") == ("not-found", "`radiator cursors ls` lists them.")
    client.become(rights=Rights({"admin": ["/queue/mine.*", "/queue/job"]}))
    assert refused("/queue/mine.job") == ("not-found", "Did you mean '/queue/mine.jobs'?")
    assert refused("/queue/job") == ("not-found", "`radiator ls --url ADDRESS` lists them.")


def test_a_temporary_queue_cannot_be_paused(world: World) -> None:
    client = world.connect()
    (found,) = ask(client, "destinations.ls", match="/temp-queue/>")["destinations"]
    assert ask(client, "queues.pause", name=found["name"])["error"]["code"] == "unsupported"


def test_a_client_pauses_only_queues_over_which_it_has_the_admin_right(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1")
    client.publish("/queue/b", "1")
    client.subscribe("/topic/t", subscription_name="me")
    world.settle()
    client.become(rights=Rights({"admin": ["/queue/a"]}))
    assert ask(client, "queues.pause", name="/queue/a")["ok"] is True
    assert ask(client, "queues.pause", name="/queue/b")["error"]["code"] == "denied"
    assert ask(client, "queues.resume", name="sub:me")["error"]["code"] == "denied"


def test_a_pause_that_cannot_be_stored_is_refused_and_stored_later(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1")
    world.settle()
    world.fs.fail("fdatasync")
    assert ask(client, "queues.pause", name="/queue/a")["error"]["code"] == "storage"
    world.tick(3)
    world.power_cut()
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    assert client.bodies() == []
