"""Who may send to a temporary queue: whoever was told its address. Names, lists and logs tell it to nobody."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from radiator.errors import printable
from radiator.stomp.spec import VERSIONS
from tests.broker.harness import Client, World


def address_of(world: World, owner: Client) -> str:
    """What ``reply-to`` of a request says to whoever gets it."""
    server = world.connect()
    server.subscribe("/queue/requests", ack="auto")
    owner.publish("/queue/requests", "?", reply_to="/temp-queue/answers")
    world.settle()
    (request,) = server.messages()
    server.drop()
    return request.headers["reply-to"]


def test_a_client_that_has_the_address_may_answer_and_the_name_alone_is_not_enough(world: World) -> None:
    owner, other = world.connect(), world.connect()
    address = address_of(world, owner)
    name, _, secret = address.partition("~")
    assert name == f"/temp-queue/answers@{owner.session.id}" and secret == owner.session.temporary._secret
    forged = (
        name,
        f"{name}~",
        f"{name}~{secret[:-1]}",
        f"{name}~{secret}0",
        f"{name}~{other.session.temporary._secret}",
        f"{name}~é",
    )
    for each in forged:
        other.publish(each, "guess", receipt="r")
    other.publish(address, "answer")
    world.settle()
    assert owner.bodies() == ["answer"]
    assert world.broker.stats.dropped_replies == len(forged)
    assert [each.headers.get("dropped") for each in other.take("RECEIPT")] == ["true"] * len(forged)
    other.publish(name, "guess", mandatory="true")
    assert other.error() == "no-route"


def test_an_address_in_a_transaction_is_looked_at_too(world: World) -> None:
    owner, other = world.connect(), world.connect()
    address = address_of(world, owner)
    other.say("BEGIN", transaction="t")
    other.publish(address, "answer", transaction="t")
    other.publish(address[:-1], "guess", transaction="t")
    other.say("COMMIT", transaction="t")
    world.settle()
    assert owner.bodies() == ["answer"]


def test_the_owner_may_use_any_of_the_three_spellings(world: World) -> None:
    owner, server = world.connect(), world.connect()
    address = address_of(world, owner)
    name = address.partition("~")[0]
    for each in ("/temp-queue/answers", name, address):
        owner.publish(each, each)
        owner.publish("/queue/requests", "?", reply_to=each)
    server.subscribe("/queue/requests", ack="auto")
    world.settle()
    assert owner.bodies() == ["/temp-queue/answers", name, address]
    assert {message.headers["reply-to"] for message in server.messages()} == {address}


def test_an_address_is_handed_on_as_it_is(world: World) -> None:
    owner, middle, server = world.connect(), world.connect(), world.connect()
    address = address_of(world, owner)
    middle.publish("/queue/further", "?", reply_to=address)
    server.subscribe("/queue/further", ack="auto")
    world.settle()
    server.publish(server.messages()[0].headers["reply-to"], "answer")
    world.settle()
    assert owner.bodies() == ["answer"]


def test_the_admin_channel_answers_to_no_queue_of_another_connection(world: World) -> None:
    owner, admin = world.connect(), world.connect()
    address = address_of(world, owner)
    admin.say("SEND", '{"do": "stats"}', destination="/radiator/admin", reply_to=address)
    assert admin.error() == "bad-header"
    world.settle()
    assert owner.messages() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_list_no_log_and_no_other_header_has_the_secret(
    world: World, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    owner = world.connect(version)
    address = address_of(world, owner)
    secret = owner.session.temporary._secret
    assert address.endswith(secret)
    owner.subscribe("/topic/a", id=address)
    owner.subscribe(address, id="own", ack="client")
    owner.publish(address, "to myself")
    admin = world.connect()
    asked: list[dict[str, Any]] = [
        {"do": "destinations.ls", "match": "/temp-queue/>", "limit": 1},
        {"do": "clients.ls"},
        {"do": "cursors.ls"},
        {"do": "stats"},
        {"do": "destinations.ls", "match": address},
    ]
    for each in asked:
        admin.say("SEND", json.dumps(each), destination="/radiator/admin", reply_to="/temp-queue/a")
    world.settle()
    answers = admin.messages()
    assert len(answers) == len(asked) and owner.session.id.encode() in answers[1].body
    assert not any(secret.encode() in answer.body for answer in answers)
    (message,) = owner.messages()
    assert message.headers["destination"] == address.partition("~")[0] and secret.encode() not in owner.raw
    for command, headers in (
        ("SUBSCRIBE", {"destination": address, "id": "1"}),
        ("SUBSCRIBE", {"destination": address + ">,/queue/a*", "id": "1"}),
        ("UNSUBSCRIBE", {"id": address}),
        ("SEND", {"destination": address + ",x"}),
        ("SEND", {"destination": address, "durability": address}),
        ("SEND", {"destination": address[:-1], "mandatory": "true"}),
        ("SEND", {"destination": "/queue/a", "reply_to": address + ".*"}),
    ):
        stranger = world.connect(version)
        stranger.say(command, **headers)
        world.settle()
    owner.drop()
    world.settle()
    assert caplog.text and secret not in caplog.text


def test_logged_headers_of_a_client_have_no_secret() -> None:
    assert printable(f"'/temp-queue/a@s1~{'0a' * 16}' is in use") == "'/temp-queue/a@s1~...' is in use"
    assert printable("a~b@c") == "a~b@c"
