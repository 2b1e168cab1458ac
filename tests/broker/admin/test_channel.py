"""The admin channel: JSON in a SEND, JSON to the reply queue."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from radiator.broker.admin.channel import REQUEST_BYTES_MAX, VERBS
from radiator.routing.rights import Rights
from tests.broker.admin.asking import ask
from tests.broker.harness import World


def test_a_question_is_answered_once_with_its_correlation_id_and_the_receipt_comes_too(world: World) -> None:
    client = world.connect()
    client.say(
        "SEND", '{"do": "stats"}', "r1", destination="/radiator/admin", reply_to="/temp-queue/a", correlation_id="c:1"
    )
    world.settle()
    (answer,) = client.messages()
    assert answer.headers["correlation-id"] == "c:1"
    found = json.loads(answer.body)
    assert (found["ok"], found["do"]) == (True, "stats")
    assert found["stats"]["connections"] == 1
    assert client.receipts() == ["r1"]


def test_queues_are_listed_with_what_waits_and_what_is_with_consumers(world: World) -> None:
    client = world.connect()
    client.publish("/queue/work", "1", "2", "3")
    client.subscribe("/queue/work", prefetch_count=2)
    world.settle()
    assert len(client.messages()) == 2
    (found,) = ask(client, {"do": "destinations.ls", "match": "/queue/*"})["destinations"]
    assert (found["name"], found["kind"]) == ("/queue/work", "queue")
    assert (found["ready"], found["in_flight"], found["total"], found["consumers"]) == (1, 2, 3, 1)
    assert found["bytes"] > 0
    assert found["partitions"] == [{"name": "/queue/work", "first_offset": 0, "next_offset": 3}]


def test_temporary_queues_are_listed_if_they_are_asked_for(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1")
    world.settle()
    assert [each["name"] for each in ask(client, {"do": "destinations.ls"})["destinations"]] == ["/queue/a"]
    (found,) = ask(client, {"do": "destinations.ls", "match": "/temp-queue/>"})["destinations"]
    assert found["name"].startswith("/temp-queue/answers@")


def test_a_settled_message_is_not_counted(world: World) -> None:
    client = world.connect()
    client.publish("/queue/work", "1", "2")
    client.subscribe("/queue/work")
    world.settle()
    client.ack(client.messages()[0])
    client.world.settle()
    client.messages()
    (found,) = ask(client, {"do": "destinations.ls", "match": "/queue/work"})["destinations"]
    assert (found["ready"], found["in_flight"], found["total"]) == (0, 1, 1)


def test_lists_come_in_pages_that_leave_out_and_repeat_nothing(world: World) -> None:
    client = world.connect()
    names = [f"/topic/{number:03}" for number in range(25)]
    for name in reversed(names):
        client.publish(name, "x")
    world.settle()
    found: list[str] = []
    after: str | None = ""
    pages = 0
    while after is not None:
        page = ask(client, {"do": "destinations.ls", "match": "/topic/*", "limit": 10, "after": after})
        found += [each["name"] for each in page["destinations"]]
        after = page["next"]
        pages += 1
    assert (found, pages) == (names, 3)


def test_a_list_stays_the_same_from_page_to_page(world: World) -> None:
    client = world.connect()
    for number in range(10):
        client.publish(f"/topic/{'b' if number % 3 == 1 else 'a'}.{number}", "x")
    world.settle()
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = ask(client, {"do": "destinations.ls", "match": "/topic/b.*", "limit": 1, "after": after})
        assert page["matched"] == 3
        found += [each["name"] for each in page["destinations"]]
        after = page["next"]
        client.publish("/topic/b.born", "x")  # is of the next list
    assert found == ["/topic/b.1", "/topic/b.4", "/topic/b.7"]
    assert client.session.listing == ("", [])


def test_clients_are_listed_with_what_they_hold(world: World) -> None:
    world.connect()
    worker = world.connect("1.1")
    worker.subscribe("/queue/jobs", prefetch_count=5)
    worker.publish("/queue/jobs", "x")
    world.settle()
    asker = world.connect()
    assert len(ask(asker, {"do": "clients.ls"})["clients"]) == 3
    (found,) = ask(asker, {"do": "clients.ls", "match": worker.session.id})["clients"]
    assert (found["version"], found["in_flight"], found["address"], found["user"]) == ("1.1", 1, "test", "")
    assert found["since_ns"] > 0
    assert [(each["id"], each["destination"], each["window"]) for each in found["subscriptions"]] == [
        ("0", "/queue/jobs", 5)
    ]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ("not json", "bad-request", "one JSON object"),
        ("[1]", "bad-request", '"do"'),
        ("{}", "bad-request", '"do"'),
        ("[" * 60_000, "bad-request", "one JSON object"),
        ("x" * (REQUEST_BYTES_MAX + 1), "bad-request", "at most"),
        ('{"do": "reboot"}', "unsupported", "unknown verb 'reboot'"),
        ('{"do": "destinations.ls", "limit": 0}', "bad-request", "limit"),
        ('{"do": "destinations.ls", "limit": true}', "bad-request", "limit"),
        ('{"do": "destinations.ls", "match": ">.a"}', "bad-pattern", "malformed"),
        ('{"do": "clients.ls", "after": 7}', "bad-request", "after"),
    ],
)
def test_a_refused_command_is_answered_in_json_and_the_connection_stays(
    world: World, request_: str, code: str, words: str
) -> None:
    client = world.connect()
    answer = ask(client, request_)
    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert words in answer["error"]["message"]
    assert ask(client, {"do": "stats"})["ok"] is True


def test_a_request_without_a_reply_queue_is_an_error(world: World) -> None:
    client = world.connect()
    client.say("SEND", '{"do": "stats"}', destination="/radiator/admin")
    assert client.error() == "bad-header"
    other = world.connect()
    other.say("SEND", '{"do": "stats"}', destination="/radiator/admin", reply_to="/queue/answers")
    assert other.error() == "bad-header"


def test_the_admin_channel_takes_part_in_no_transaction_and_cannot_be_read(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.say("SEND", "{}", destination="/radiator/admin", reply_to="/temp-queue/a", transaction="t")
    assert client.error() == "bad-transaction"
    reader = world.connect()
    reader.subscribe("/radiator/admin")
    assert reader.error() == "bad-destination"


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_right_nothing_is_reported_and_the_connection_stays(world: World, verb: str) -> None:
    client = world.connect()
    client.become(rights=Rights({"read": ["#"], "write": ["#"], "browse": ["#"]}))
    answer = ask(client, {"do": verb})
    assert answer["ok"] is False and answer["error"]["code"] == "denied"
    assert ("monitor" if VERBS[verb].reads else "admin") in answer["error"]["message"]
    client.publish("/queue/a", "x", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]


def test_a_client_that_has_left_gets_no_answer(world: World) -> None:
    client = world.connect()
    client.say("SEND", '{"do": "stats"}', destination="/radiator/admin", reply_to="/temp-queue/a")
    client.drop()
    world.settle()
    world.holds_nothing()


def test_bound_queues_report_their_waiting_messages() -> None:
    world = World("destinations:\n  - {match: /queue/all, fan_out: [/queue/one, /queue/two]}\n")
    world.connect().publish("/queue/all", "1", "2")
    client = world.connect()
    client.subscribe("/queue/one")
    world.settle()
    listed = {each["name"]: each for each in ask(world.connect(), {"do": "destinations.ls"})["destinations"]}
    assert (listed["/queue/one"]["ready"], listed["/queue/one"]["in_flight"]) == (1, 1)
    assert (listed["/queue/two"]["ready"], listed["/queue/two"]["in_flight"]) == (2, 0)


def test_the_document_has_every_verb() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text("utf-8")
    table = text.split("\n| verb | takes | gives |\n", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE) == list(VERBS)


def test_half_a_character_in_a_request_is_answered_like_any_other(world: World) -> None:
    client = world.connect()
    for request in ('{"do": "\\ud800"}', '{"do": "destinations.ls", "match": "\\ud800"}', '{"do": "\\u00e4"}'):
        assert "ok" in ask(client, request)
