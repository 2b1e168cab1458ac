"""Durable subscriptions of the configuration: they exist before anybody subscribes, and change only when they may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from radiator.broker.durable import declared
from radiator.config.compare import Change
from radiator.config.load import load_text
from radiator.config.subscriptions import DeclaredSubscription
from radiator.errors import ConfigError
from tests.broker.harness import World
from tests.broker.reloading import reload

T = "/topic/a"
NAMED = f"subscriptions: [{{name: billing, destination: {T}}}]"


def planned(world: World, *entries: DeclaredSubscription, prune: bool = False) -> list[Change]:
    steps = world.broker.declarations.plan(entries, prune)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[Change] = end.value
            return found


def declare(world: World, *entries: DeclaredSubscription, prune: bool = False) -> list[str]:
    """Apply declarations, and return the paths of what has changed."""
    declarations = world.broker.declarations
    changes = planned(world, *entries, prune=prune)
    for _ in declarations.apply(entries, prune):
        pass
    world.settle()
    return [change.path for change in changes]


def entry(name: str = "billing", destination: str = T, **more: Any) -> DeclaredSubscription:
    return DeclaredSubscription(name=name, destination=destination, **more)


def received(world: World, destination: str = T, **headers: str) -> list[str]:
    client = world.connect()
    client.subscribe(destination, ack="client", **{"subscription_name": "billing", **headers})
    world.settle()
    found = client.bodies()
    client.drop()
    world.settle()
    return found


def publish(world: World, *messages: str, destination: str = T, **headers: str) -> None:
    client = world.connect()
    client.publish(destination, *messages, **headers)
    world.settle()
    client.drop()


def test_messages_wait_for_the_first_subscriber() -> None:
    world = World()
    publish(world, "before")
    assert declare(world, entry()) == ["subscriptions[0]"]
    publish(world, "1", "2")
    assert received(world) == ["1", "2"]


def test_it_begins_where_the_declaration_says(world: World) -> None:
    publish(world, "1", "2", "3")
    declare(world, entry(start="last:2"))
    assert received(world) == ["2", "3"]


def test_in_a_later_topic_it_begins_with_the_first_message(world: World) -> None:
    declare(world, entry(destination="/topic/*"))
    publish(world, "1")
    assert received(world, "/topic/*") == ["1"]


def test_applying_the_same_again_changes_nothing_and_moves_nothing(world: World) -> None:
    publish(world, "1")
    declare(world, entry(start="first"))
    client = world.connect()
    client.subscribe(T, subscription_name="billing", ack="client-individual")
    world.settle()
    client.ack(client.messages()[0])
    world.settle()
    client.drop()
    assert declare(world, entry(start="first")) == []
    assert received(world) == []


def test_it_survives_a_restart(world: World) -> None:
    declare(world, entry())
    publish(world, "1")
    world.restart()
    assert declare(world, entry()) == []
    assert received(world) == ["1"]


def test_another_destination_or_selector_changes_it(world: World) -> None:
    declare(world, entry())
    assert declare(world, entry(destination="/topic/b")) == ["subscriptions[0].destination"]
    publish(world, "a")
    publish(world, "b", destination="/topic/b")
    assert declare(world, entry(destination="/topic/b", selector="size = 7")) == ["subscriptions[0].selector"]
    publish(world, "7", destination="/topic/b", size="7")
    publish(world, "8", destination="/topic/b", size="8")
    assert received(world, "/topic/b", selector="size = 7") == ["7"]


def test_a_subscription_in_use_is_not_changed(world: World) -> None:
    declare(world, entry())
    client = world.connect()
    client.subscribe(T, subscription_name="billing")
    world.settle()
    (change,) = planned(world, entry(destination="/topic/b"))
    assert "in use" in change.refused
    declare(world, entry(destination="/topic/b"))
    publish(world, "1")
    assert client.bodies() == ["1"]


def test_a_subscription_of_another_user_is_refused(world: World) -> None:
    declare(world, entry(user="ann"))
    (change,) = planned(world, entry(user="bob"))
    assert (change.before, change.after) == ("ann", "bob") and "belongs" in change.refused


def test_prune_deletes_what_was_declared_and_nothing_else(world: World) -> None:
    client = world.connect()
    client.subscribe(T, subscription_name="own")
    world.settle()
    client.drop()
    declare(world, entry(), entry("second"))
    assert declare(world, entry()) == []  # without prune the second stays
    assert declare(world, entry(), prune=True) == ["subscriptions (sub:second)"]
    assert sorted(world.broker.durable.by_key) == ["sub:billing", "sub:own"]


def test_prune_keeps_what_the_configuration_in_force_declares(world: World) -> None:
    reload(world, NAMED)
    declare(world, entry("second"))
    assert declare(world, entry("third"), prune=True) == ["subscriptions[0]", "subscriptions (sub:second)"]
    assert sorted(world.broker.durable.by_key) == ["sub:billing", "sub:third"]
    reload(world, "")
    assert declare(world, entry("third"), prune=True) == ["subscriptions (sub:billing)"]


def test_a_reload_creates_what_is_new_and_keeps_what_is_gone(world: World) -> None:
    (created,) = reload(world, NAMED)
    assert created.path == "subscriptions[0]" and created.before is None
    assert "sub:billing" in world.broker.durable.by_key
    assert reload(world, NAMED) == []
    (gone,) = reload(world, "")
    assert gone.after is None and "--prune" in gone.note
    assert "sub:billing" in world.broker.durable.by_key


def test_what_is_declared_does_not_expire() -> None:
    world = World("defaults: {cursor_expiry: 1m}")
    declare(world, entry())
    client = world.connect()
    client.subscribe(T, "own", subscription_name="own")
    world.settle()
    client.drop()
    for _ in range(80):
        world.tick(100)
    assert list(world.broker.durable.by_key) == ["sub:billing"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{destination: /topic/a}", "one of name: and group:"),
        ("{name: a, group: b, destination: /topic/a}", "one of name: and group:"),
        ("{name: a}", "destination: too"),
        ("{name: a, destination: /topic/a}, {name: a, destination: /topic/b}", "twice"),
        ("{name: a, destination: /topic/a, begin: first}", "unknown key"),
        ("{name: a, destination: /queue/a}", "expected topics"),
        ("{name: a, destination: /topic/a, start: soon}", "not a position"),
        ("{name: a, destination: /topic/a, selector: 'size >'}", "selector"),
    ],
)
def test_a_fault_in_the_list_is_reported_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared.check(load_text(f"subscriptions: [{text}]", "x.yaml"))
    assert "x.yaml:1: subscriptions[" in str(caught.value) and words in str(caught.value)


def test_a_fault_names_the_key_and_what_was_expected() -> None:
    text = """
subscriptions:
  - {name: a, destination: /topic/a, start: soon}
  - {name: b, destination: /topic/a, selector: "size >"}
"""
    with pytest.raises(ConfigError) as caught:
        declared.check(load_text(text, "x.yaml"))
    start, selector, *marked = str(caught.value).splitlines()
    assert start.startswith("x.yaml:3: subscriptions[0]: start: not a position: 'soon': Expected one of: first, ")
    assert selector.startswith("x.yaml:4: subscriptions[1]: selector: at character 7 expected ")
    assert marked == ["size >", "      ^"]


def test_the_admin_channel_applies_them(world: World) -> None:
    client = world.connect()

    def ask(**args: Any) -> Any:
        body = json.dumps({"do": "subscriptions.apply", **args})
        client.say("SEND", body, destination="/radiator/admin", reply_to="/temp-queue/r")
        world.settle()
        (answer,) = client.messages()
        return json.loads(answer.body)

    wanted = [{"group": "g", "destination": T, "selector": "none", "start": "first"}]
    assert ask(subscriptions=wanted, check=True)["applied"] is False
    assert ask(subscriptions=wanted)["applied"] is True
    assert ask(subscriptions=wanted)["changed"] is False
    assert list(world.broker.durable.by_key) == ["group:g"]
    assert ask(subscriptions=wanted * 2)["error"]["message"] == "subscriptions[1]: group:g is in the list twice"
    assert ask(subscriptions=[{"name": "x"}])["error"]["code"] == "bad-request"
    assert ask(subscriptions=[], prune=True)["changes"][0]["after"] is None
    assert not world.broker.durable.by_key
