"""What is wrong: each kind of problem is made for real."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.admin.overview import KINDS, SEVERITIES, SHOWN_MAX
from radiator.broker.monitoring import survey as module
from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError
from tests.broker.admin.asking import done, user
from tests.broker.harness import Client, World
from tests.broker.logs.test_damage import TOPIC, flip, stored

RULES = """
destinations:
  - {match: '/queue/jobs.*', store: memory, redeliver: {max: 1}, dead_letter: '/queue/dead.{name}'}
"""


@pytest.fixture
def world() -> World:
    world = World(RULES)
    world.tick()
    return world


def problems(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done(client, "overview")["problems"]
    assert all(each["kind"] in KINDS and each["severity"] in SEVERITIES and each["text"] for each in found)
    return found


def only(client: Client, kind: str) -> dict[str, Any]:
    (found,) = problems(client)
    assert found["kind"] == kind, found
    return found


def test_a_healthy_broker_has_no_problems_and_all_its_numbers(world: World) -> None:
    client = world.connect()
    client.publish("/topic/t", "x")
    world.tick(9)
    answer = done(client, "overview")
    assert (answer["problems"], answer["more_problems"], answer["reasons"]) == ([], 0, [])
    assert (answer["ready"], answer["draining"], answer["may_act"]) == (True, False, True)
    assert answer["uptime_seconds"] == pytest.approx(9, abs=0.1)
    assert answer["counters"].keys() == done(client, "stats")["stats"].keys()
    assert answer["counters"]["messages_in"] == 1
    assert answer["now"]["sessions"] == 1 and answer["store"]["partitions"] >= 1
    assert answer["disk"] is None
    world.broker.monitor.set_disk(400, 1000)
    assert done(client, "overview")["disk"] == {"free": 400, "size": 1000}


def test_a_backlog_without_a_consumer_is_a_problem_after_a_minute(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1", "2")
    client.publish("/topic/t", "no queue")
    world.settle()
    for _ in range(11):
        world.tick(5)
        assert problems(client) == []
    world.tick(10)
    found = only(client, "backlog_without_consumer")
    assert (found["severity"], found["destination"], found["value"]) == ("warning", "/queue/a", 2)
    assert "2 messages in /queue/a, and no consumer" in found["text"]
    client.subscribe("/queue/a")
    world.tick(5)
    assert problems(client) == []


def test_a_delayed_message_is_no_backlog(world: World) -> None:
    client = world.connect()
    client.publish("/queue/a", "1", delay="1h")
    for _ in range(30):
        world.tick(5)
    assert problems(client) == []


def test_a_backlog_that_grows_in_spite_of_consumers_is_a_problem(world: World) -> None:
    client, slow = world.connect(), world.connect()
    slow.subscribe("/queue/a")
    world.settle()
    for _ in range(7 * 12):
        client.publish("/queue/a", "x", "x")
        world.settle()
        for message in slow.messages():
            slow.ack(message)
        world.tick(5)
    found = [each for each in problems(client) if each["kind"] == "lag_grows"]
    assert [(each["destination"], each["severity"]) for each in found] == [("/queue/a", "warning")]
    assert found[0]["value"] > 50
    slow.drop()
    fast = world.connect()
    fast.subscribe("/queue/a", ack="auto")
    world.settle()
    fast.messages()
    world.tick(5)
    assert problems(client) == []


def test_a_durable_subscription_whose_lag_grows_is_a_problem(world: World) -> None:
    client, slow = world.connect(), world.connect()
    slow.subscribe("/topic/t", subscription_name="billing", prefetch_count=1)
    for _ in range(7 * 12):
        client.publish("/topic/t", "x")
        world.tick(5)
    found = [each for each in problems(client) if each["kind"] == "lag_grows"]
    assert [each["destination"] for each in found] == ["/topic/t"]
    assert "sub:billing" in found[0]["text"]


def test_a_consumer_that_holds_a_message_for_long_is_a_problem(world: World) -> None:
    client, stalled, well = world.connect(), world.connect(), world.connect()
    stalled.become("worker")
    stalled.subscribe("/queue/a", prefetch_count=2)
    client.publish("/queue/a", "1", "2")
    world.settle()
    first, second = stalled.messages()
    well.subscribe("/queue/b", prefetch_count=2)
    for index in range(59):
        client.publish("/queue/b", "x")
        world.settle()
        for message in well.messages():
            well.ack(message)
        world.tick(5)
        if index == 30:
            stalled.ack(second)
        assert problems(client) == []
    world.tick(5)
    world.tick(5)
    found = only(client, "stalled_consumer")
    assert (found["severity"], found["destination"]) == ("warning", "/queue/a")
    assert found["value"] >= 300 and f"worker ({stalled.session.id})" in found["text"]
    stalled.ack(first)
    world.tick(5)
    assert problems(client) == []


def test_dead_letters_are_a_problem_and_not_a_backlog(world: World) -> None:
    client, worker = world.connect(), world.connect()
    client.publish("/queue/jobs.a", "x")
    worker.subscribe("/queue/jobs.a")
    world.settle()
    worker.nack(worker.messages()[0], requeue="false")
    world.settle()
    world.tick(5)
    found = only(client, "dead_letters")
    assert (found["destination"], found["value"]) == ("/queue/dead./queue/jobs.a", 1)
    for _ in range(30):
        world.tick(5)
    only(client, "dead_letters")


def test_damage_that_a_start_and_a_reader_meet_is_a_problem() -> None:
    world = World()
    batches = stored(world, TOPIC)
    flip(world, batches[3])
    world.start()
    found = only(world.connect(), "damage")
    assert (found["severity"], found["destination"]) == ("error", None)
    assert "damage in the middle" in found["text"] and batches[3][0] in found["text"]
    reader = world.connect()
    reader.subscribe(TOPIC, ack="auto", start_position="first")
    world.settle()
    _, found = sorted(problems(world.connect()), key=lambda each: each["destination"] or "")
    assert (found["severity"], found["destination"], found["value"]) == ("error", TOPIC, 2)
    assert "offsets 6 to 7 are lost" in found["text"]
    shown = problems(user(world, monitor=[TOPIC]))
    assert [(each["kind"], each["destination"]) for each in shown] == [("damage", TOPIC)]
    assert problems(user(world, monitor=["/topic/other"])) == []


def test_a_disk_that_is_nearly_full_is_a_warning_and_a_full_one_an_error(world: World) -> None:
    client, monitor = world.connect(), world.broker.monitor
    tera, giga = 1 << 40, 1 << 30
    monitor.set_disk(tera // 2, tera)
    assert problems(client) == []
    monitor.set_disk(30 * giga, tera)
    assert only(client, "disk")["severity"] == "warning"
    monitor.set_disk(giga * 3 // 2, 10 * giga)  # less than twice disk.min_free, which is 1 GiB
    assert only(client, "disk")["value"] == giga * 3 // 2
    monitor.set_disk(giga // 2, 10 * giga)
    world.broker.set_disk_faults(None, ProtocolError("storage", "not enough free disk space", "At least ..."))
    found = [(each["kind"], each["severity"]) for each in problems(client)]
    assert found == [
        ("not_ready", "error"),
        ("disk", "error"),
    ]
    answer = done(client, "overview")
    assert answer["ready"] is False and "not enough free disk space" in answer["reasons"][0]


def test_a_clock_that_is_ahead_is_a_problem(world: World) -> None:
    client = world.connect()
    world.step(120)
    world.tick()
    found = only(client, "clock_ahead")
    assert found["value"] == pytest.approx(120, abs=2) and "stepped forward" in found["text"]
    done(client, "clock.accept")
    assert problems(client) == []


def test_memory_that_is_used_up_is_a_problem() -> None:
    world = World("limits: {memory: 1MiB}\ndestinations: [{match: '#', store: memory}]\n")
    client = world.connect()
    for _ in range(100):
        client.publish("/queue/a", "x" * 20_000)
        world.settle()
    found = [each for each in problems(world.connect()) if each["kind"] == "memory_full"]
    assert [each["severity"] for each in found] == ["error"] and found[0]["value"] > 0


def test_errors_come_before_warnings_and_at_most_fifty_are_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG_NS", 0)
    client = world.connect()
    for number in range(SHOWN_MAX + 30):
        client.publish(f"/queue/{number}", *(["x"] * (1 + number % 3)))
    world.tick(5)
    world.broker.monitor.set_disk(1, 1 << 40)
    world.broker.set_disk_faults(None, ProtocolError("storage", "full", "full"))
    answer = done(client, "overview")
    assert len(answer["problems"]) == SHOWN_MAX and answer["more_problems"] == 32
    assert [each["kind"] for each in answer["problems"][:3]] == ["not_ready", "disk", "backlog_without_consumer"]
    values = [each["value"] for each in answer["problems"][2:]]
    assert values == sorted(values, reverse=True)


def test_a_survey_is_bounded_in_work_per_tick_and_in_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BACKLOG_NS", 0), ("TICK_UNITS", 20), ("PROBLEMS_MAX", 40), ("TRACKED_MAX", 60)):
        monkeypatch.setattr(module, name, value)
    client = world.connect()
    for number in range(100):
        client.publish(f"/queue/{number:02}", "x")
    world.settle()
    survey, budget = world.broker.monitor.survey, world.broker.budget
    world.now += 5 * NS_PER_SECOND
    world.broker.timing.see(world.time)
    ticks = 0
    while survey.ready != 100:
        budget.begin()
        survey.tick()
        assert budget.spent <= 20 + module.BACKLOG_UNITS
        ticks += 1
        assert ticks < 100
    assert ticks >= 100 * (module.QUEUE_UNITS + module.BACKLOG_UNITS) // 26
    assert len(survey.problems) == 40 and len(survey._alone) == 60


def test_a_queue_that_is_removed_during_a_survey_does_no_harm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_UNITS", 2)
    client = world.connect()
    for number in range(5):
        client.subscribe(f"/queue/{number}", id=str(number))
    world.settle()
    world.now += 5 * NS_PER_SECOND
    world.broker.timing.see(world.time)
    world.broker.monitor.survey.tick()
    client.drop()
    world.settle()
    for _ in range(40):
        world.broker.monitor.survey.tick()
    assert world.broker.monitor.survey.ready == 0
    world.holds_nothing()


def test_checkpoints_of_a_session_stay_few_and_go_with_it(world: World) -> None:
    client, stuck = world.connect(), world.connect()
    stuck.subscribe("/queue/a", prefetch_count=2)
    client.publish("/queue/a", "held")
    world.settle()
    (held,) = stuck.messages()
    for _ in range(5 * module.CHECKPOINTS_MAX):
        client.publish("/queue/a", "x")
        world.settle()
        for message in stuck.messages():
            stuck.ack(message)
        world.tick(5)
    survey = world.broker.monitor.survey
    assert len(survey._checkpoints[stuck.session.id]) <= module.CHECKPOINTS_MAX
    number = held.headers["ack"].rpartition("-")[2]
    assert survey.seconds_held(stuck.session, number) == pytest.approx(25 * module.CHECKPOINTS_MAX - 5, abs=5)
    stuck.drop()
    world.tick(5)
    assert not survey._checkpoints


def test_a_user_sees_the_problems_of_permitted_destinations_only(world: World) -> None:
    client, mine = world.connect(), user(world, monitor=["/queue/mine.*"])
    stalled = world.connect()
    stalled.subscribe("/queue/other.b", id="1")
    for name in ("/queue/mine.a", "/queue/other.a", "/queue/other.b"):
        client.publish(name, "x")
    for _ in range(70):
        world.tick(5)
    world.broker.set_disk_faults(None, ProtocolError("storage", "the secret partition is full", "x"))
    assert {each["destination"] for each in problems(client)} == {None, *("/queue/other.a", "/queue/other.b")} | {
        "/queue/mine.a"
    }
    answer = done(mine, "overview")
    assert [(each["kind"], each["destination"]) for each in answer["problems"]] == [
        ("not_ready", None),
        ("backlog_without_consumer", "/queue/mine.a"),
    ]
    assert (answer["more_problems"], answer["reasons"], answer["may_act"]) == (0, [], False)
    assert "other" not in str(answer) and "secret" not in str(answer)
