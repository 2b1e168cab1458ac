"""The audit log: who changed what, with what result, and nothing that is secret."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from radiator.broker.admin.channel import VERBS
from radiator.broker.peer_log import FULL_PER_ORIGIN
from radiator.routing.rights import Rights
from tests.broker.admin.asking import ask, done, refused, user
from tests.broker.harness import World

CHANGES = [verb for verb in VERBS if not VERBS[verb].reads]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "radiator.audit")
    return caplog


def audited(lines: pytest.LogCaptureFixture) -> list[Any]:
    return [each for each in lines.records if each.name == "radiator.audit"]


def test_a_change_is_one_line_with_its_user_its_arguments_and_its_result(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    client = user(world, "alice", admin=["#"], write=["#"])
    client.publish("/queue/a", "body")
    world.settle()
    done(client, "queues.purge", name="/queue/a")
    (line,) = audited(lines)
    assert line.levelname == "INFO"
    assert line.getMessage() == f'alice at test ({client.session.id}): queues.purge {{"name": "/queue/a"}}: ok'
    fields = ("user", "address", "session", "verb", "arguments", "result", "reason")
    assert json.loads(json.dumps({name: getattr(line, name) for name in fields})) == {
        "user": "alice",
        "address": "test",
        "session": client.session.id,
        "verb": "queues.purge",
        "arguments": {"name": "/queue/a"},
        "result": "ok",
        "reason": None,
    }


@pytest.mark.parametrize(("check", "result"), [(False, "refused"), (True, "ok")])
def test_declarations_that_are_refused_as_a_whole_are_no_success(
    world: World, lines: pytest.LogCaptureFixture, check: bool, result: str
) -> None:
    world.connect().subscribe("/topic/a", subscription_name="billing")
    world.settle()
    client = user(world, "alice", admin=["#"])
    answer = done(
        client, "subscriptions.apply", subscriptions=[{"name": "billing", "destination": "/topic/b"}], check=check
    )
    assert not answer["applied"]
    (line,) = audited(lines)
    assert line.result == result
    assert result == "ok" or line.reason.startswith("unsupported: nothing has changed: subscriptions[0].destination: ")


@pytest.mark.parametrize("verb", CHANGES)
def test_every_verb_that_changes_something_has_a_line_also_if_it_is_refused(
    world: World, lines: pytest.LogCaptureFixture, verb: str
) -> None:
    client = user(world, "bob", monitor=["#"])
    refused(client, verb, name="/queue/a", session="x", position="first")
    (line,) = audited(lines)
    assert line.levelname == "WARNING" and f"{verb} " in line.getMessage()
    assert "refused (denied: user 'bob' has no admin right" in line.getMessage()
    client.become(rights=Rights({"admin": ["#"]}))
    ask(client, {"do": verb, "name": "/queue/none", "position": "first", "background": True, "cancel": True})
    assert len(audited(lines)) == 2
    assert audited(lines)[1].verb == verb


def test_a_verb_that_only_reads_has_no_line(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    for verb in VERBS:
        if VERBS[verb].reads:
            ask(client, {"do": verb, "name": "/queue/a", "session": "x"})
    assert audited(lines) == []


def test_a_change_that_ends_later_has_its_line_then(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    client.publish("/queue/a", "1", "2")
    world.settle()
    done(client, "cursors.set", name="queue:/queue/a", position="last:1")
    assert [each.result for each in audited(lines)] == ["ok"]
    refused(client, "cursors.set", name="queue:/queue/none", position="first")
    assert [each.reason for each in audited(lines)][1].startswith("not-found: ")


def test_a_change_whose_client_is_gone_is_in_the_log(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    client.publish("/queue/a", "x")  # the purge waits until it is stored
    request = json.dumps({"do": "queues.purge", "name": "/queue/a"})
    client.say("SEND", request, destination="/radiator/admin", reply_to="/temp-queue/a")
    assert client.rest
    client.drop()
    world.settle()
    (line,) = audited(lines)
    assert (line.result, line.reason) == ("refused", "timeout: the connection ended before the request did")


def test_arguments_are_short_printable_and_without_the_secret_of_a_temporary_queue(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    client = world.connect()
    secret = f"/temp-queue/a@{client.session.id}~{client.session.temporary._secret}"
    many = {f"extra {number}": [number] * 200 for number in range(50)}
    refused(client, "queues.purge", name=f"\x1b[31m\u202e{secret}", **many)
    (line,) = audited(lines)
    text = line.getMessage()
    assert client.session.temporary._secret not in text + json.dumps(line.arguments)
    assert text.isprintable() and len(text) < 4_000
    assert len(line.arguments) == 10


def test_numbers_that_are_not_json_or_very_long_are_logged_as_text(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    client = world.connect()
    refused(client, "queues.purge", name=float("nan"), a=float("inf"), b=-(10**4_000), c=2**64 - 1, d=1.5)
    (line,) = audited(lines)
    assert line.arguments == {"name": "nan", "a": "inf", "b": "(13288 bits)", "c": 2**64 - 1, "d": 1.5}


def test_what_may_have_secrets_is_not_in_the_log(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    config = "auth:\n  password: hunter2\n"
    refused(
        client,
        "cursors.rm",
        name="x" * 5_000,
        text=config,
        environ={"TOKEN": "hunter2"},
        tasks=["retention", {"a": "hunter2"}],
        check=True,
    )
    (line,) = audited(lines)
    assert line.arguments == {
        "name": "(5000 characters)",
        "text": f"({len(config)} characters)",
        "environ": {"TOKEN": "(...)"},
        "tasks": ["retention", "(...)"],
        "check": True,
    }
    assert "hunter2" not in line.getMessage()


def test_who_has_no_right_cannot_flood_the_log(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = user(world, "mallory")
    for _ in range(5 * FULL_PER_ORIGIN):
        refused(client, "queues.purge", name="/queue/a")
    assert len(audited(lines)) == FULL_PER_ORIGIN
    trusted = user(world, "alice", admin=["#"])
    for _ in range(5 * FULL_PER_ORIGIN):
        refused(trusted, "queues.purge", name="/queue/a")
    assert len(audited(lines)) == 6 * FULL_PER_ORIGIN


def test_an_audited_message_has_its_line_once_it_is_stored(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = user(world, "alice", admin=["#"], write=["#"], read=["#"])
    client.say("SEND", "body", destination="/queue/a", audit_log="true", receipt="1")
    assert audited(lines) == []
    world.settle()
    assert client.receipts() == ["1"]
    (line,) = audited(lines)
    assert line.getMessage().endswith('SEND {"destination": "/queue/a", "bytes": 4}: ok')
    client.publish("/queue/a", "another")
    client.subscribe("/queue/a", prefetch_count=5)
    world.settle()
    assert not any("audit-log" in each.headers for each in client.messages())
    assert len(audited(lines)) == 1, "only of frames that ask for it"


def test_an_audited_transaction_has_one_line_with_what_it_sent_and_settled(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    client = user(world, "alice", admin=["#"], write=["#"], read=["#"])
    client.publish("/queue/dead", "1", "2", "3")
    client.subscribe("/queue/dead", prefetch_count=5)
    world.settle()
    first, second, third = client.messages()
    client.say("BEGIN", transaction="t")
    client.say("SEND", "1", destination="/queue/jobs", transaction="t")
    client.ack(first, transaction="t")
    client.ack(second, transaction="t")
    client.nack(third, transaction="t")
    client.say("COMMIT", transaction="t", audit_log="true", receipt="done")
    world.settle()
    assert client.receipts() == ["done"]
    (line,) = audited(lines)
    assert line.verb == "COMMIT"
    assert line.arguments == {
        "sent": ["1 /queue/jobs"],
        "acknowledged": ["2 /queue/dead"],
        "refused": ["1 /queue/dead"],
    }


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"destination": "/queue/secret"}, "denied: user 'bob' has no write right over '/queue/secret'"),
        ({"destination": "/queue/a", "mandatory": "true"}, "no-route: "),
        ({"destination": "/queue/a", "expected-offset": "7"}, "conflict: "),
    ],
    ids=["denied", "no-route", "conflict"],
)
def test_a_refused_audited_message_has_a_line_with_the_reason(
    world: World, lines: pytest.LogCaptureFixture, headers: dict[str, str], reason: str
) -> None:
    client = user(world, "bob", write=["/queue/a"], admin=["/queue/a"])
    client.say("SEND", "x", audit_log="true", **headers)
    world.settle()
    (line,) = audited(lines)
    assert f"refused ({reason}" in line.getMessage()


@pytest.mark.parametrize("receipt", ["1", None])
def test_an_audited_message_that_the_disk_refuses_is_refused_in_the_log(
    world: World, lines: pytest.LogCaptureFixture, receipt: str | None
) -> None:
    client = world.connect()
    world.fs.fail("fdatasync", 1)
    client.say("SEND", "x", destination="/queue/a", audit_log="true", receipt=receipt)
    world.settle()
    assert client.error() == "storage"
    (line,) = audited(lines)
    assert line.result == "refused" and line.reason.startswith("storage: ")


def test_the_line_of_an_audited_message_does_not_need_its_client(world: World, lines: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    client.say("SEND", "x", destination="/queue/a", audit_log="true", receipt="1")
    client.drop()
    world.settle()
    assert [each.result for each in audited(lines)] == ["ok"]


def test_a_send_in_a_transaction_has_no_line_of_its_own(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.say("SEND", "x", destination="/queue/a", transaction="t", audit_log="true")
    assert client.error() == "bad-header"


def test_users_without_the_right_admin_cannot_flood_the_log_with_audited_frames(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    client = user(world, "mallory", write=["#"])
    for _ in range(5 * FULL_PER_ORIGIN):
        client.say("SEND", "x", destination="/queue/a", audit_log="true")
    world.settle()
    assert len(audited(lines)) == FULL_PER_ORIGIN


@pytest.mark.parametrize("name", ["expected-offset", "delay", "delay-ms", "deliver-at", "mandatory", "audit-log"])
def test_a_request_refuses_headers_that_only_messages_have(world: World, name: str) -> None:
    client = world.connect()
    value = "true" if name in ("mandatory", "audit-log") else "5"
    client.say("SEND", '{"do": "stats"}', destination="/radiator/admin", reply_to="/temp-queue/a", **{name: value})
    assert client.error() == "bad-header"
