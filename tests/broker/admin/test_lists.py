"""Lists of destinations and clients: search, order, pages, and names that only look harmless."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.admin import lists
from radiator.broker.monitoring import listings
from tests.broker.admin.asking import done, refused, user
from tests.broker.harness import Client, World

SORTS = ("name", "ready", "in_flight", "bytes", "consumers", "published")


@pytest.fixture
def world() -> World:
    """Queues with different numbers of everything, and a topic."""
    world = World()
    sender = world.connect()
    for number, name in enumerate(("/queue/c", "/queue/a", "/queue/d", "/queue/b"), 1):
        sender.publish(name, *["x" * number * 50] * (number + 2))
    sender.publish("/topic/Weather.EWR", "x")
    for number, name in enumerate(("/queue/a", "/queue/b")):
        for _ in range(number + 1):
            world.connect().subscribe(name)
    world.settle()
    return world


def listed(client: Client, **args: Any) -> list[str]:
    """The names on all pages."""
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = done(client, "destinations.ls", after=after, **args)
        names += [each["name"] for each in page["destinations"]]
        after = page["next"]
    assert page["matched"] == len(names)
    return names


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_the_order_is_that_of_the_number_and_then_of_the_name(world: World, sort: str, descending: bool) -> None:
    client = world.connect()
    entries = done(client, "destinations.ls")["destinations"]

    def number(entry: dict[str, Any]) -> int:
        if sort == "name":
            return 0
        if sort == "consumers" and "consumers" not in entry:
            return int(entry["subscribers"])
        value = entry.get(sort)
        return -1 if value is None else int(value)

    if sort == "name":
        wanted = sorted((each["name"] for each in entries), reverse=descending)
    else:
        sign = -1 if descending else 1
        ordered = sorted((sign * number(each), each["name"]) for each in entries)
        wanted = [name for _, name in ordered]
    assert len(wanted) == 5
    assert listed(client, sort=sort, descending=descending, limit=2) == wanted
    assert listed(client, sort=sort, descending=descending) == wanted


def test_a_search_finds_a_part_of_the_name_in_any_case_together_with_the_pattern(world: World) -> None:
    client = world.connect()
    assert listed(client, search="weather") == ["/topic/Weather.EWR"]
    assert listed(client, search="E/A", match="/queue/>") == ["/queue/a"]
    assert listed(client, search="E/A", match="/topic/>") == []


def test_a_shared_log_has_no_numbers_and_is_sorted_below_all_others() -> None:
    world = World("destinations: [{match: '/queue/s.*', partition: one}]\n")
    client = world.connect()
    for name in ("/queue/s.a", "/queue/s.b", "/queue/own"):
        client.publish(name, "x")
    world.settle()
    assert listed(client, sort="ready", descending=True) == ["/queue/own", "/queue/s.a", "/queue/s.b"]
    entry = done(client, "destinations.ls", match="/queue/s.a")["destinations"][0]
    assert (entry["ready"], entry["published"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"sort": "size"}, "sort: expected one of name, ready, in_flight, bytes, consumers, published"),
        ({"sort": 7}, "needs sort, a text"),
        ({"sort": ""}, "sort: expected one of"),
        ({"descending": "yes"}, "descending: expected true or false"),
        ({"search": ["a"]}, "needs search, a text"),
        ({"limit": 10**9}, "limit: expected a whole number, 1 to 1000"),
        ({"limit": -1}, "limit: expected"),
        ({"limit": 1.5}, "limit: expected"),
        ({"sort": "ready", "after": "/queue/none"}, "after: the name is not in this list"),
    ],
)
def test_a_bad_argument_is_named_and_the_connection_stays(world: World, args: dict[str, Any], words: str) -> None:
    client = world.connect()
    error = refused(client, "destinations.ls", **args)
    assert error["code"] == "bad-request" and words in error["message"]
    assert done(client, "destinations.ls")["matched"] == 5


def test_hostile_names_are_data() -> None:
    world = World("destinations: [{match: '/topic/h.#', partition: hostile}]\n")
    client = world.connect()
    names = [
        "/topic/h.<script>alert(1)</script>",
        "/topic/h.\u202eevil\u2066\u200f",
        '/topic/h."}];"ok":false',
        "/topic/h." + "k" * 220,
        "/topic/h.\x1b[31mred\x07",
        "/topic/h.\U0001f4a9.\xe4\\",
    ]
    for name in names:
        client.publish(name, "x")
        client.subscribe(name, id=f"{name}!" + "i" * 1024, ack="client")
    world.settle()
    assert set(listed(client, sort="published", limit=2)) == set(names)
    for name in names:
        shown = done(client, "destinations.show", name=name)
        assert shown["destination"]["name"] == name
        assert shown["consumers"][0]["subscription"] == f"{name}!" + "i" * 1024
        assert done(client, "destinations.ls", search=name)["matched"] == 1
        near = refused(client, "destinations.show", name=name + "x")
        assert near["code"] == "not-found"
    subscriptions = done(client, "clients.show", session=client.session.id)["subscriptions"]
    assert {each["destination"] for each in subscriptions} >= set(names)
    assert done(client, "overview")["problems"] == []


def test_a_short_list_and_a_name_are_always_up_to_date(world: World) -> None:
    client = world.connect()
    for name in ("/queue/new.1", "/queue/new.2"):
        assert name not in listed(client) and listed(client, match=name) == []
        client.publish(name, "x")
        world.settle()
        assert name in listed(client) and listed(client, match=name) == [name]
    assert listed(client, match="/queue/new.2,/queue/none,/queue/new.1") == ["/queue/new.1", "/queue/new.2"]


def test_all_who_have_the_same_rights_share_a_long_list_for_some_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SHARED_FROM", 5)
    first, second = world.connect(), world.connect()
    assert "/queue/new" not in listed(first, sort="ready")
    first.publish("/queue/new", "x")
    world.settle()
    assert "/queue/new" not in listed(second, sort="ready")
    assert "/queue/new" not in listed(user(world, monitor=["/queue/a"]), sort="ready")
    assert "/queue/new" in listed(user(world, monitor=["/queue/new"]), sort="ready")
    world.tick(listings.VALID_NS / 1e9 + 0.1)
    assert "/queue/new" in listed(second, sort="ready")


def test_a_broker_with_as_many_destinations_as_it_may_have_still_answers() -> None:
    world = World("limits: {destinations: 3}\n")
    client = world.connect()
    for number in range(3):
        client.publish(f"/topic/{number}", "x")
    world.settle()
    assert done(client, "destinations.ls")["matched"] == 3
    client.publish("/topic/more", "x")
    world.settle()
    assert client.error() == "too-many"


def test_few_lists_are_remembered_however_many_are_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SHARED_FROM", 5)
    client = world.connect()
    for number in range(3 * listings.LISTS_MAX):
        assert done(client, "destinations.ls", search=f"{number}") is not None
    assert len(world.broker.monitor.listings._lists) == listings.LISTS_MAX


def test_rights_that_shrink_between_two_pages_shorten_the_second(world: World) -> None:
    client = user(world, monitor=["/queue/*"])
    page = done(client, "destinations.ls", limit=1)
    assert page["matched"] == 4 and page["next"] == "/queue/a"
    client.become(rights=type(client.session.rights)({"monitor": ["/queue/d"]}))
    rest = done(client, "destinations.ls", after=page["next"])
    assert [each["name"] for each in rest["destinations"]] == ["/queue/d"]
