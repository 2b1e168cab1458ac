"""Middleware and schemas on SEND: what goes through, what is refused, and that nobody else notices."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from radiator.broker.rule_hooks import RuleHooks
from radiator.config.load import load_text
from radiator.errors import ConfigError
from radiator.routing.rights import NOTHING
from radiator.server.hooks import closed, load_hooks, lost_by, register_schemas
from radiator.storage.files import FileSystem
from tests.broker.harness import Client, World
from tests.broker.publishing.hooks_under_test import Strange

FLIGHT = {
    "type": "object",
    "properties": {"carrier": {"type": "string"}, "delay": {"type": "integer"}},
    "required": ["carrier"],
}


def world_with(*rules: str) -> World:
    text = "destinations:\n" + "".join(f"  - {rule}\n" for rule in rules)
    world = World(text)
    world.broker.hooks = load_hooks(world.broker.config.rules, None)
    return world


def hook(name: str) -> str:
    return f"tests.broker.publishing.hooks_under_test:{name}"


def connected(world: World, **headers: str) -> Client:
    return Client(world, **headers).open()


def sent(world: World, client: Client, body: str | bytes, **headers: Any) -> Any:
    """The answer to one SEND with a receipt."""
    client.say("SEND", body, receipt="r", **headers)
    world.settle()
    (answer,) = client.take("RECEIPT") or client.take("ERROR")
    return answer


def test_middleware_changes_headers_and_body_in_its_order() -> None:
    world = world_with(f"{{match: /queue/a, middleware: ['{hook('stamp')}', '{hook('upper')}']}}")
    client = connected(world)
    client.subscribe("/queue/a")
    assert sent(world, client, "abc", destination="/queue/a", colour="red").command == "RECEIPT"
    (message,) = client.messages()
    assert (message.body, message.headers["tag-seen"], message.headers["colour"]) == (b"ABC", "nobody /queue/a", "red")
    assert message.headers["content-length"] == "3"


def test_every_message_passes_also_when_its_header_block_was_seen_before() -> None:
    world = world_with(f"{{match: /queue/a, middleware: ['{hook('drop_empty')}', '{hook('upper')}']}}")
    client = connected(world)
    client.subscribe("/queue/a", ack="auto")
    client.publish("/queue/a", "a", "", "b", "", "c")
    world.settle()
    assert client.bodies() == ["A", "B", "C"]
    assert world.broker.stats.dropped_by_middleware == 2


def test_the_receipt_reports_a_dropped_message() -> None:
    world = world_with(f"{{match: /queue/a, middleware: '{hook('drop_empty')}'}}")
    answer = sent(world, connected(world), "", destination="/queue/a")
    assert (answer.command, answer.headers["dropped"]) == ("RECEIPT", "true")


def test_a_refusal_is_an_error_with_the_text_of_the_middleware() -> None:
    world = world_with(f"{{match: /queue/a, middleware: '{hook('refuse_secrets')}'}}")
    other = connected(world)
    other.subscribe("/queue/a")
    error = sent(world, connected(world), "a secret", destination="/queue/a")
    assert (error.headers["error-code"], error.headers["receipt-id"]) == ("rejected", "r")
    assert b"No secrets here" in error.body
    assert not other.messages()


@pytest.mark.parametrize("name", ["breaks", "forgets_to_return", "puts_numbers"])
def test_a_failure_of_middleware_is_an_error_to_the_sender_and_nothing_else(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_with(f"{{match: /queue/a, middleware: '{hook(name)}'}}")
    other = connected(world)
    other.subscribe("/queue/b", ack="auto")
    with caplog.at_level(logging.ERROR):
        error = sent(world, connected(world), "x", destination="/queue/a")
    assert error.headers["error-code"] == "rejected"
    assert hook(name) in error.headers["message"]
    assert hook(name) in caplog.text
    assert world.broker.stats.middleware_failures == 1
    connected(world).publish("/queue/b", "goes on")
    world.settle()
    assert other.bodies() == ["goes on"]


def test_a_body_that_middleware_made_too_large_is_refused() -> None:
    world = World(
        f"limits: {{message: 1KiB}}\ndestinations:\n  - {{match: /queue/a, middleware: '{hook('inflates')}'}}\n"
    )
    world.broker.hooks = load_hooks(world.broker.config.rules, None)
    error = sent(world, connected(world), "12", destination="/queue/a")
    assert error.headers["error-code"] == "rejected"
    assert b"limits.message" in error.body


def test_middleware_sends_on_and_the_rule_of_the_new_destination_holds() -> None:
    world = world_with(
        f"{{match: /topic/all, middleware: '{hook('by_carrier')}'}}",
        f"{{match: /topic/carrier.*, middleware: '{hook('stamp')}'}}",
    )
    client = connected(world)
    client.subscribe("/topic/>", ack="auto")
    assert sent(world, client, "x", destination="/topic/all", carrier="UA").headers["partition"] == "/topic/carrier.UA"
    (message,) = client.messages()
    assert message.headers["destination"] == "/topic/carrier.UA"
    assert message.headers["tag-seen"] == "nobody /topic/carrier.UA"


def test_middleware_that_sends_on_in_a_circle_is_refused() -> None:
    world = world_with(
        f"{{match: /topic/ping, middleware: '{hook('ping')}'}}", f"{{match: /topic/pong, middleware: '{hook('pong')}'}}"
    )
    assert sent(world, connected(world), "x", destination="/topic/ping").headers["error-code"] == "rejected"


def test_in_a_transaction_it_runs_once_when_the_message_is_sent() -> None:
    world = world_with(f"{{match: /queue/a, middleware: ['{hook('drop_empty')}', '{hook('upper')}']}}")
    client = connected(world)
    client.subscribe("/queue/a", ack="auto")
    client.say("BEGIN", transaction="t")
    answers = [sent(world, client, body, destination="/queue/a", transaction="t") for body in ("a", "", "b")]
    assert [(each.command, each.headers.get("dropped")) for each in answers] == [
        ("RECEIPT", None),
        ("RECEIPT", "true"),
        ("RECEIPT", None),
    ]
    assert not client.messages()
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.bodies() == ["A", "B"]


def test_a_body_that_does_not_fit_the_schema_is_refused_with_place_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "flight.json"
    path.write_text(json.dumps(FLIGHT))
    world = world_with(f"{{match: /topic/flights, schema: '{path}'}}")
    good = '{"carrier": "UA", "delay": 3}'
    assert sent(world, connected(world), good, destination="/topic/flights").command == "RECEIPT"
    error = sent(world, connected(world), '{"carrier": "UA", "delay": "late"}', destination="/topic/flights")
    assert error.headers["error-code"] == "rejected"
    assert b"/delay" in error.body
    assert b"integer" in error.body
    error = sent(world, connected(world), "not json", destination="/topic/flights")
    assert b"not JSON" in error.body
    assert world.broker.stats.rejected == 2


@pytest.mark.parametrize("body", ['{"\\ud800": 1}', '{"carrier": ' + "[" * 5_000 + "]" * 5_000 + "}"])
def test_a_body_that_the_library_cannot_judge_is_refused_like_any_other(body: str, tmp_path: Path) -> None:
    path = tmp_path / "flight.json"
    path.write_text(json.dumps(FLIGHT))
    world = world_with(f"{{match: /topic/flights, schema: '{path}'}}")
    client = connected(world)
    assert sent(world, client, body, destination="/topic/flights").headers["error-code"] == "rejected"
    good = '{"carrier": "UA"}'
    assert sent(world, connected(world), good, destination="/topic/flights").command == "RECEIPT"


def test_a_validator_that_breaks_refuses_the_message(caplog: pytest.LogCaptureFixture) -> None:
    def broken(body: bytes) -> str | None:
        raise ZeroDivisionError

    world = World()
    world.broker.hooks = {-1: RuleHooks(validate=broken)}
    error = sent(world, connected(world), "x", destination="/topic/a")
    assert (error.headers["error-code"], b"ZeroDivisionError" in error.body) == ("rejected", True)


def test_the_schema_sees_what_middleware_has_made(tmp_path: Path) -> None:
    path = tmp_path / "shout.json"
    path.write_text('{"type": "object", "required": ["A"]}')
    world = world_with(f"{{match: /topic/a, schema: '{path}', middleware: '{hook('upper')}'}}")
    assert sent(world, connected(world), '{"a": 1}', destination="/topic/a").command == "RECEIPT"


# --- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("middleware: no_such_module:f", "there is no module 'no_such_module'"),
        (f"middleware: '{hook('nothing')}'", "expected a function 'nothing'"),
        (f"middleware: '{hook('not_a_function')}'", "expected a function 'not_a_function'"),
        ("schema: /nowhere/s.json", "cannot read the schema"),
    ],
)
def test_what_cannot_be_loaded_is_a_fault_of_the_configuration_with_its_line(rule: str, wanted: str) -> None:
    config = load_text(f"destinations:\n  - {{match: /queue/a, {rule}}}\n", "r.yaml")
    with pytest.raises(ConfigError, match=r"r.yaml:2: destinations\[0\]") as caught:
        load_hooks(config.rules, "r.yaml")
    assert wanted in str(caught.value)


@pytest.mark.parametrize(("text", "wanted"), [("{", "not JSON"), ('{"type": "nothing"}', "not a JSON Schema")])
def test_a_schema_that_is_none_is_a_fault_of_the_configuration(text: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    config = load_text(f"destinations:\n  - {{match: /queue/a, schema: '{path}'}}\n", "r.yaml")
    with pytest.raises(ConfigError, match=wanted):
        load_hooks(config.rules, "r.yaml")


def changed(**properties: Any) -> dict[str, Any]:
    return {**FLIGHT, "properties": {**FLIGHT["properties"], **properties}}  # type: ignore[dict-item]


COMPATIBLE = {
    "the same": FLIGHT,
    "an optional property more": changed(origin={"type": "string"}),
    "nothing required": {**FLIGHT, "required": []},
    "a wider type": changed(delay={"type": ["number", "null"]}),
    "a property less": {"type": "object", "properties": {"carrier": {"type": "string"}}, "required": ["carrier"]},
}
INCOMPATIBLE = {
    "one more required": {**FLIGHT, "required": ["carrier", "delay"]},
    "a narrower type": changed(delay={"type": "integer", "minimum": 0}),
    "another type": changed(carrier={"type": "integer"}),
    "a property less, and no others allowed": {
        "type": "object",
        "properties": {"carrier": {"type": "string"}},
        "required": ["carrier"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("new", COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_change_that_loses_nothing_is_compatible(new: Any) -> None:
    assert lost_by(new, FLIGHT, "") is None


@pytest.mark.parametrize("new", INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_a_change_that_refuses_what_was_described_is_not_compatible(new: Any) -> None:
    assert lost_by(new, FLIGHT, "") is not None


def test_only_described_properties_are_compared_also_inside_lists_and_objects() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    old = {"type": "object", "properties": {"list": {"type": "array", "items": inner}, "one": inner}}
    wider = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    new = {"type": "object", "properties": {"list": {"type": "array", "items": wider}, "one": wider}}
    assert lost_by(new, old, "") is None
    assert closed({"allOf": [inner]}) == {"allOf": [inner]}


def test_versions_are_kept_and_a_change_is_compared_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "flight.json"
    data = str(tmp_path / "data")
    fs = FileSystem()
    config = load_text(f"destinations:\n  - {{match: /topic/flights, schema: '{path}'}}\n", "r.yaml")

    def register(schema: Any, rules: Any = config.rules) -> list[str]:
        path.write_text(json.dumps(schema))
        return register_schemas(rules, "r.yaml", fs, data)

    second = {"type": "object", "properties": {"delay": {"type": "integer"}}}
    assert "version 1" in register(FLIGHT)[0]
    assert register(FLIGHT) == []
    assert "version 2" in register(second)[0]
    third = {"type": "object", "properties": {"carrier": {"type": "integer"}, "delay": {"type": "integer"}}}
    with pytest.raises(ConfigError, match="version 1 allows"):  # by version 2 alone it would do
        register(third)
    assert sorted(fs.listdir(f"{data}/schemas")) == [
        "%2Ftopic%2Fflights@1.json",
        "%2Ftopic%2Fflights@2.json",
        "columns.json",
    ]
    anything = load_text(
        f"destinations:\n  - {{match: /topic/flights, schema: '{path}', schema_changes: any}}\n", "r.yaml"
    )
    assert "version 3" in register(third, anything.rules)[0]


def test_a_message_that_may_not_be_sent_is_not_shown_to_the_middleware_and_admin_requests_never_are() -> None:
    world = world_with(f"{{match: '#', middleware: '{hook('refuse_secrets')}'}}")
    client = connected(world)
    client.say("SEND", '{"do": "stats", "n": "secret"}', destination="/radiator/admin", reply_to="/temp-queue/r")
    world.settle()
    assert [json.loads(each.body)["ok"] for each in client.messages()] == [True]
    client.become(rights=NOTHING)
    assert sent(world, client, "secret", destination="/queue/a").headers["error-code"] == "denied"


@pytest.mark.parametrize("body", ["exit", "interrupt", "generator", "other"])
def test_whatever_middleware_raises_is_the_senders_error_and_nothing_else(body: str) -> None:
    world = world_with(f"{{match: /queue/a, middleware: ['{hook('ends_the_process')}']}}")
    client = connected(world)
    answer = sent(world, client, body, destination="/queue/a")
    assert (answer.command, answer.headers["error-code"], answer.headers["receipt-id"]) == ("ERROR", "rejected", "r")
    assert world.broker.stats.middleware_failures == 1
    assert sent(world, connected(world), body, destination="/queue/b").command == "RECEIPT"


def test_a_schema_that_panics_refuses_the_message() -> None:
    world = world_with("{match: /queue/a}")

    def panics(body: bytes) -> str | None:
        raise Strange("a panic of a compiled library is no Exception")

    world.broker.hooks = {index: RuleHooks((), panics) for index in range(len(world.broker.config.rules))}
    client = connected(world)
    assert sent(world, client, "x", destination="/queue/a").headers["error-code"] == "rejected"


def test_middleware_sends_no_message_to_a_reserved_destination() -> None:
    world = world_with(f"{{match: /queue/a, middleware: '{hook('asks_the_broker')}'}}")
    client = connected(world)
    answer = sent(world, client, '{"do": "stats"}', destination="/queue/a", reply_to="/temp-queue/r")
    assert answer.headers["error-code"] == "bad-destination"


def test_a_touch_is_no_message_and_is_not_shown_to_the_middleware() -> None:
    world = world_with(f"{{match: '#', middleware: '{hook('drop_empty')}'}}")
    client = connected(world)
    client.subscribe("/queue/a", ack="client-individual")
    client.publish("/queue/a", "x")
    world.settle()
    (message,) = client.messages()
    answer = sent(world, client, "", destination="/radiator/touch", id=message.headers["ack"])
    assert (answer.command, "dropped" in answer.headers) == ("RECEIPT", False)
    assert world.broker.stats.dropped_by_middleware == 0
