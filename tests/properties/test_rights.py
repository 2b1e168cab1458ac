"""Compare rights with their definition. A user receives the messages that it has subscribed to and may read, whatever
the patterns, the kind of destination, its log, and whether it was created before or after the SUBSCRIBE. Messages
that a user may not send are not stored."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.clients.identity import Identity
from radiator.routing.pattern import parse_list
from radiator.routing.rights import EVERYTHING, RIGHTS, Rights
from tests.broker.harness import Client, World

CONFIG = """\
destinations:
  - {match: '/topic/s.#', partition: shared, store: memory}
  - {match: '/queue/s.#', partition: shared-queues, store: memory}
  - {match: '/queue/fed', fan_out: [/queue/a, /queue/b.a]}
  - {match: '#', store: memory}
"""
WORDS = ("a", "b", "s")
NAMES = st.tuples(
    st.sampled_from(("/topic/", "/queue/")), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
).map(lambda parts: parts[0] + ".".join(parts[1]))
PARTS = st.lists(st.sampled_from((*WORDS, "*", "#")), min_size=1, max_size=3)
PATTERNS = st.one_of(
    NAMES,
    st.sampled_from(("#", "/topic/>", "/queue/>", "/queue/fed")),
    st.tuples(st.sampled_from(("/topic/", "/queue/", "*/*/")), PARTS, st.booleans()).map(
        lambda parts: parts[0] + ".".join(parts[1]) + (".>" if parts[2] else "")
    ),
)
LISTS = st.lists(PATTERNS, min_size=1, max_size=3, unique=True)
GRANTS = st.lists(PATTERNS, max_size=4)


def matches(patterns: list[str], name: str) -> bool:
    return any(parse_list(pattern).matches(name) for pattern in patterns)


def user(world: World, grants: dict[str, list[str]]) -> Client:
    client = world.connect()
    client.become(rights=Rights(grants))
    return client


@given(LISTS, GRANTS, st.lists(NAMES, max_size=6), st.lists(NAMES, max_size=6), st.booleans())
def test_what_is_delivered_is_what_is_asked_for_and_permitted(
    asked: list[str], granted: list[str], before: list[str], after: list[str], history: bool
) -> None:
    world = World(CONFIG)
    sender = world.connect()
    right = "browse" if history else "read"
    client = user(world, {right: granted})
    for number, name in enumerate(before):
        sender.publish(name, f"{name} {number}")
    world.settle()
    options = {"start_position": "first"} if history else {}
    client.subscribe(",".join(asked), ack="auto", **options)
    names = [text for text in asked if parse_list(text).is_literal]
    if not all(matches(granted, name) for name in names):
        assert client.error() == "denied"
        return
    if "/queue/fed" in names and not history:  # its messages go to other queues
        assert client.error() == "bad-destination"
        return
    for number, name in enumerate(after, len(before)):
        sender.publish(name, f"{name} {number}")
    world.settle()
    heard = Counter(client.bodies())

    def due(name: str, old: bool) -> bool:
        return matches(asked, name) and matches(granted, name) and (history or not old or name.startswith("/queue/"))

    wanted = [f"{name} {number}" for number, name in enumerate(before) if due(name, True)]
    wanted += [f"{name} {number}" for number, name in enumerate(after, len(before)) if due(name, False)]
    assert heard == Counter(wanted)


@pytest.mark.thorough
@given(st.lists(st.tuples(GRANTS, NAMES, st.booleans()), max_size=8))
def test_what_is_stored_is_what_its_sender_may_send_though_all_share_their_headers(
    sends: list[tuple[list[str], str, bool]],
) -> None:
    world = World(CONFIG)
    stored: Counter[str] = Counter()
    for number, (granted, name, in_transaction) in enumerate(sends):
        client = user(world, {"write": granted})
        if in_transaction:
            client.say("BEGIN", transaction="t")
            client.publish(name, f"{number}", transaction="t")
            client.say("COMMIT", transaction="t")
        else:
            client.publish(name, f"{number}")
        world.settle()
        if matches(granted, name):
            stored[f"{number}"] += 1
            assert not client.take("ERROR")
        else:
            assert client.error() == "denied"
    reader = world.connect()
    reader.subscribe("#", ack="auto", start_position="first")
    world.settle()
    assert Counter(reader.bodies()) == stored


@given(LISTS, GRANTS, GRANTS, st.lists(NAMES, min_size=1, max_size=6))
def test_rights_that_change_hold_for_everything_that_comes_after(
    asked: list[str], granted: list[str], later: list[str], names: list[str]
) -> None:
    world = World(CONFIG)
    sender, client = world.connect(), user(world, {"read": granted})
    client.subscribe(",".join(asked), ack="auto")
    if client.session.closing:
        return
    for name in names:
        sender.publish(name, "old")
    world.settle()
    client.messages()
    now = Rights({"read": later})
    world.broker.access.changed(lambda session: Identity("", EVERYTHING if session is sender.session else now, "users"))
    for number, name in enumerate(names):
        sender.publish(name, f"{name} {number}")
    world.settle()
    heard = client.bodies()
    wanted = [f"{name} {number}" for number, name in enumerate(names) if matches(asked, name) and matches(later, name)]
    assert not Counter(heard) - Counter(wanted)
    if not client.session.closing and all(matches(granted, name) for name in names):
        assert Counter(heard) == Counter(wanted)


@given(st.dictionaries(st.sampled_from(RIGHTS), GRANTS), st.lists(NAMES, max_size=20))
def test_a_decision_is_the_same_the_second_time(grants: dict[str, list[str]], names: list[str]) -> None:
    rights = Rights(grants)
    for name in [*names, *names]:
        for right in RIGHTS:
            granted = grants.get(right, []) + (grants.get("admin", []) if right == "monitor" else [])
            assert rights.may(right, name) == matches(granted, name)
