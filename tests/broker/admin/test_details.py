"""One destination and one client in detail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.asking import done, refused, user
from tests.broker.harness import NOW, World

RULES = """
destinations:
  - {match: '/queue/jobs.*', partitions: 2, fsync: never, ack_timeout: 1h}
  - {match: '/queue/mem.*', store: memory}
  - {match: '/topic/s.*', partition: shared}
"""


@pytest.fixture
def world() -> World:
    return World(RULES)


def test_the_rule_that_applies_is_named_with_its_place_and_every_setting(world: World) -> None:
    client = world.connect()
    client.publish("/queue/jobs.a", "x")
    client.publish("/queue/other", "x")
    world.settle()
    shown = done(client, "destinations.show", name="/queue/jobs.a")
    rule = shown["rule"]
    assert (rule["pattern"], rule["index"]) == ("/queue/jobs.*", 0)
    assert rule["source"].endswith(":3")
    assert (rule["settings"]["fsync"], rule["settings"]["ack_timeout"], rule["settings"]["partitions"]) == (
        "never",
        "1h",
        "2",
    )
    assert [each["name"] for each in shown["storage"]] == ["/queue/jobs.a-0", "/queue/jobs.a-1"]
    assert {each["fsync"] for each in shown["storage"]} == {"never"}
    assert sum(each["next_offset"] for each in shown["storage"]) == 1
    assert done(client, "destinations.show", name="/queue/other")["rule"] | {"settings": {}} == {
        "pattern": None,
        "index": None,
        "source": "defaults",
        "settings": {},
    }


def test_a_rule_shows_no_foreign_name_to_who_may_see_some_destinations() -> None:
    world = World(
        """
destinations:
  - {match: '/queue/a.*,/queue/foreign.*', dead_letter: '/queue/foreign.dead'}
  - {match: /queue/b.all, fan_out: [/queue/b.1, /queue/foreign.2]}
  - {match_regex: '/queue/(b|foreign)', dead_letter: '/queue/b.dead'}
"""
    )
    client = world.connect()
    for name in ("/queue/a.x", "/queue/b.all", "/queue/b"):
        client.publish(name, "x")
    world.settle()
    some, everything = user(world, monitor=["/queue/a.*", "/queue/b", "/queue/b.*"]), user(world, monitor=["#"])
    for name in ("/queue/a.x", "/queue/b.all", "/queue/b"):
        assert "foreign" not in str(done(some, "destinations.show", name=name))
        assert "foreign" not in str(done(some, "destinations.ls", match=name))
        assert "foreign" in str(done(everything, "destinations.show", name=name))
    assert done(some, "destinations.show", name="/queue/a.x")["rule"]["pattern"] == "/queue/a.*"
    assert done(some, "destinations.show", name="/queue/b.all")["rule"]["settings"]["fan_out"] == "/queue/b.1, (hidden)"
    assert done(some, "destinations.show", name="/queue/b")["rule"]["settings"]["dead_letter"] == "/queue/b.dead"


def test_consumers_are_shown_with_what_each_holds_and_for_how_long(world: World) -> None:
    client = world.connect()
    busy, idle = world.connect("1.1"), world.connect()
    busy.become("worker")
    for name in ("/queue/mem.a", "/queue/mem.b"):
        client.publish(name, *"123")
    busy.subscribe("/queue/mem.*", id="w", prefetch_count=10)
    world.settle()
    idle.subscribe("/queue/mem.a", id="i", prefetch_count=3)
    world.settle()

    def consumers() -> dict[str, Any]:
        found = done(client, "destinations.show", name="/queue/mem.a")["consumers"]
        return {each["session"]: each for each in found}

    first = consumers()[busy.session.id]
    assert (first["user"], first["subscription"], first["window"], first["in_flight"]) == ("worker", "w", 10, 3)
    assert first["oldest_in_flight_seconds"] is None  # not measured yet
    assert (consumers()[idle.session.id]["in_flight"], consumers()[idle.session.id]["window"]) == (0, 3)
    world.tick(5)
    world.tick(60)
    assert consumers()[busy.session.id]["oldest_in_flight_seconds"] == 60
    held = [each for each in busy.messages() if each.headers["destination"] == "/queue/mem.a"]
    for message in held[:2]:
        busy.ack(message)
    client.publish("/queue/mem.a", "4")
    world.settle()
    first = consumers()[busy.session.id]
    assert (first["in_flight"], first["oldest_in_flight_seconds"]) == (1, 60)
    busy.ack(held[2])
    world.settle()
    busy.messages()
    world.tick(5)
    world.tick(5)
    found = consumers()
    assert [each["in_flight"] for each in found.values()].count(1) == 1
    assert max(each["oldest_in_flight_seconds"] or 0 for each in found.values()) == 5


def test_the_oldest_message_is_the_first_unsettled_one_of_all_logs(world: World) -> None:
    client = world.connect()
    assert refused(client, "destinations.show", name="/queue/jobs.a")["code"] == "not-found"
    for body in "1234":
        client.publish("/queue/jobs.a", body)
        world.tick(10)
    shown = done(client, "destinations.show", name="/queue/jobs.a")
    assert shown["oldest"] == {"offset": 0, "receive_time_ns": NOW, "age_seconds": pytest.approx(40.0, abs=0.1)}
    worker = world.connect()
    worker.subscribe("/queue/jobs.a", prefetch_count=4)
    world.settle()
    for message in worker.messages():
        if message.body in (b"1", b"2"):
            worker.ack(message)
    world.settle()
    oldest = done(client, "destinations.show", name="/queue/jobs.a")["oldest"]
    assert oldest == {"offset": 1, "receive_time_ns": NOW + 20_000_000_000, "age_seconds": pytest.approx(20.0, abs=0.1)}
    worker.messages()
    client.publish("/topic/t", "1", "2")
    world.settle()
    assert done(client, "destinations.show", name="/topic/t")["oldest"]["age_seconds"] == 0
    client.publish("/topic/s.a", "1")
    world.settle()
    client.publish("/topic/s.b", "1")
    world.settle()
    assert done(client, "destinations.show", name="/topic/s.b")["oldest"] is None


def test_the_oldest_message_of_an_earlier_run_is_read_from_the_disk() -> None:
    world = World(tail_bytes_max=0)
    client = world.connect()
    client.publish("/queue/a", *(["x" * 2000] * 50))
    world.settle()
    world.restart()
    world.tick(7)
    shown = done(world.connect(), "destinations.show", name="/queue/a")
    assert (shown["oldest"]["offset"], shown["oldest"]["age_seconds"]) == (0, 7.0)
    assert shown["destination"]["ready"] == 50


def test_rates_are_measured_from_the_first_request_on(world: World) -> None:
    client = world.connect()
    client.publish("/queue/mem.a", *(["x"] * 100))
    client.publish("/topic/t", "x")
    world.settle()
    assert set(done(client, "destinations.show", name="/queue/mem.a")["rates"].values()) == {None}
    assert done(client, "destinations.show", name="/topic/t")["rates"]["published"] is None
    worker = world.connect()
    worker.subscribe("/queue/mem.a", prefetch_count=50)
    client.publish("/queue/mem.a", *(["x"] * 20))
    client.publish("/topic/t", *(["x"] * 5))
    world.settle()
    for message in worker.messages()[:30]:
        worker.ack(message)
    world.settle()
    worker.messages()
    world.tick(10)
    wanted = {"published": 2.0, "delivered": 8.0, "acknowledged": 3.0}
    rates = done(client, "destinations.show", name="/queue/mem.a")["rates"]
    assert rates == {name: pytest.approx(rate, 0.01) for name, rate in wanted.items()}
    rates = done(client, "destinations.show", name="/topic/t")["rates"]
    assert rates == {"published": pytest.approx(0.5, 0.01), "delivered": None, "acknowledged": None}
    for _ in range(12):
        world.tick(2)
        rates = done(client, "destinations.show", name="/queue/mem.a")["rates"]
    assert rates == {"published": 0.0, "delivered": 0.0, "acknowledged": 0.0}


def test_a_client_is_shown_with_its_unacknowledged_deliveries(world: World) -> None:
    client, worker = world.connect(), world.connect()
    client.publish("/queue/mem.a", *(["x"] * 30))
    worker.subscribe("/queue/mem.a", prefetch_count=30)
    worker.subscribe("/topic/t", id="1", ack="auto")
    world.settle()
    ids = [message.headers["message-id"] for message in worker.messages()]
    world.tick(5)
    world.tick(10)
    shown = done(client, "clients.show", session=worker.session.id)
    assert (shown["session"], shown["in_flight"], shown["subscription_count"]) == (worker.session.id, 30, 2)
    first, second = shown["subscriptions"]
    assert [each["message_id"] for each in first["messages"]] == ids[:20]
    assert {each["seconds"] for each in first["messages"]} == {10.0}
    assert second["messages"] == []


def test_an_unknown_name_is_answered_with_the_closest_one_that_the_user_may_see(world: World) -> None:
    client, limited = world.connect(), user(world, monitor=["/queue/mine.*"])
    for name in ("/queue/mem.orders", "/queue/mine.orders"):
        client.publish(name, "x")
    world.settle()
    error = refused(client, "destinations.show", name="/queue/mem.order")
    assert error["code"] == "not-found" and error["detail"] == "Did you mean '/queue/mem.orders'?"
    assert (
        refused(client, "destinations.show", name="/queue/xyz")["detail"] == "`radiator ls --url ADDRESS` lists them."
    )
    assert "'/queue/mine.orders'" in refused(limited, "destinations.show", name="/queue/mine.order")["detail"]
    error = refused(limited, "destinations.show", name="/queue/mem.orders")
    assert error["code"] == "denied"
    assert refused(limited, "destinations.show", name="/queue/mem.order") == {
        **error,
        "message": error["message"].replace("orders", "order"),
    }
    near = client.session.id + "x"
    assert repr(client.session.id) in refused(client, "clients.show", session=near)["detail"]
    assert refused(limited, "clients.show", session=near)["detail"] == "`radiator clients` lists them."
    assert refused(client, "destinations.show", name="x" * 60_000)["code"] == "not-found"
    assert refused(client, "destinations.show")["code"] == "bad-request"
