"""Recurring messages: each time is sent once, whatever happens to the broker."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.config.load import load_text
from radiator.errors import ConfigError
from radiator.routing import cron
from radiator.routing.rules import Rules
from radiator.stomp.frames import Frame
from tests.broker.harness import NOW, World  # NOW is 22:13:20
from tests.broker.reloading import reload
from tests.storage.faults import Crash

HOURLY = """
defaults: {fsync: 50ms, dedup: {window: 1s}}
destinations:
  - {match: /queue/memory, store: memory}
  - {match: /queue/full, max_messages: 1}
  - {match: /queue/blocks, max_messages: 1, on_full: block}
schedules:
  - {name: hourly, cron: "0 * * * *", destination: /topic/ticks, body: '{"a": 1}', headers: {content-type: x, n: 7},
     missed: MISSED}
"""


def world_of(missed: str = "skip", config: str = HOURLY) -> World:
    world = World(config.replace("MISSED", missed))
    world.tick(1)
    return world


def sent(world: World, name: str = "/topic/ticks") -> list[Frame]:
    client = world.connect()
    client.subscribe(name, ack="auto", start_position="first", **({"browser": "true"} if "queue" in name else {}))
    world.settle()
    found = [frame for frame in client.messages() if "replay-end" not in frame.headers]
    client.drop()
    return found


def times(world: World, name: str = "/topic/ticks") -> list[str]:
    return [frame.headers["scheduled-time"][11:16] for frame in sent(world, name)]


def go_to(world: World, clock: str) -> None:
    """Time passes, a minute at a time as far as the broker is concerned, until the wall clock shows this time."""
    hour, minute = map(int, clock.split(":"))
    while True:
        shown = datetime.fromtimestamp(world.now // NS_PER_SECOND, UTC)
        if (shown.hour, shown.minute) == (hour, minute):
            return
        world.tick(60)


def asleep(world: World, hours: float) -> None:
    """The broker does not run for so long."""
    world.stop()
    world.now = int(world.now + hours * 3_600 * NS_PER_SECOND)
    world.start()
    world.tick(1)


def test_a_message_is_sent_at_each_time_with_the_headers_of_the_entry() -> None:
    world = world_of()
    go_to(world, "01:30")
    assert times(world) == ["23:00", "00:00", "01:00"]
    message = sent(world)[0]
    assert message.body == b'{"a": 1}'
    assert (message.headers["content-type"], message.headers["n"]) == ("x", "7")
    assert message.headers["scheduled-time"] == "2023-11-14T23:00:00Z"
    assert message.headers["dedup-id"] == "schedule hourly 2023-11-14T23:00:00Z"


def test_an_entry_with_the_needed_keys_only_sends_an_empty_body() -> None:
    world = World('schedules: [{name: plain, cron: "0 * * * *", destination: /queue/plain}]')
    world.tick(1)
    go_to(world, "23:30")
    assert [frame.body for frame in sent(world, "/queue/plain")] == [b""]


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
def test_a_time_is_sent_once_over_restarts_also_when_its_id_is_forgotten(end: str) -> None:
    world = world_of("last")
    go_to(world, "23:01")
    getattr(world, end)()
    world.tick(1)
    go_to(world, "23:30")
    assert times(world) == ["23:00"]
    getattr(world, end)()
    go_to(world, "00:01")
    assert times(world) == ["23:00", "00:00"]


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("last", ["01:00"])])
def test_times_at_which_the_broker_did_not_run_are_skipped_or_the_last_one_is_sent(
    missed: str, expected: list[str]
) -> None:
    world = world_of(missed)
    asleep(world, 3)
    assert times(world) == expected
    go_to(world, "02:01")
    assert times(world) == [*expected, "02:00"]


def test_a_time_that_comes_less_than_a_minute_late_is_not_missed() -> None:
    world = world_of("skip")
    go_to(world, "22:59")
    asleep(world, 0.02)  # until 23:00:33
    assert times(world) == ["23:00"]


def test_a_new_schedule_sends_nothing_for_the_time_before_it() -> None:
    world = world_of("last")
    assert times(world) == []
    world.config = load_text(HOURLY.replace("0 * * * *", "*/5 * * * *").replace("MISSED", "last"))
    asleep(world, 0.5)  # the expression is another one: it starts from now
    assert times(world) == []
    go_to(world, "22:51")
    assert times(world)[0] == "22:45" or times(world) == ["22:50"]


def test_a_step_of_the_clock_back_repeats_no_time() -> None:
    world = world_of()
    go_to(world, "23:10")
    world.step(-1_800)
    world.tick(1)
    go_to(world, "23:05")
    assert times(world) == ["23:00"]
    go_to(world, "00:01")
    assert times(world) == ["23:00", "00:00"]


def test_a_step_forward_that_is_not_confirmed_sends_nothing() -> None:
    world = world_of("last")
    world.step(7_200)
    world.tick(1)
    assert times(world) == []
    world.broker.timing.clock.accept()
    world.tick(1)
    assert times(world) == ["00:00"]


def test_after_a_power_cut_at_any_call_a_time_is_sent_once() -> None:
    for nth in range(1, 200):
        world = world_of("last")
        world.now = NOW + 47 * 60 * NS_PER_SECOND  # 23:00:20
        world.fs.crash_at(nth)
        try:
            world.tick(0)
            finished = True
        except Crash:
            finished = False
        world.fs._crash_at = None
        world.power_cut()
        world.now += 600 * NS_PER_SECOND  # so that the id of the message is forgotten
        world.tick(1)
        assert times(world) == ["23:00"], nth
        if finished:
            return
    raise AssertionError("the broker does not come to rest")


def test_a_disk_that_fails_delays_a_message_and_repeats_none() -> None:
    world = world_of()
    go_to(world, "22:59")
    world.fs.fail("fdatasync")
    world.now += 50 * NS_PER_SECOND
    world.tick(1)
    world.tick(6)
    assert times(world) == ["23:00"]
    world.restart()
    world.tick(1)
    assert times(world) == ["23:00"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("/queue/memory", ["23:00", "00:00"]), ("/queue/full", ["23:00"]), ("/queue/blocks", ["23:00"])],
)
def test_stores_and_limits_of_the_destination_hold(name: str, expected: list[str]) -> None:
    world = world_of(config=HOURLY.replace("/topic/ticks", name))
    go_to(world, "00:01")
    assert times(world, name) == expected
    consumer = world.connect()
    consumer.subscribe(name, ack="auto")
    world.settle()
    world.tick(6)
    waited = name == "/queue/blocks"
    assert len(consumer.messages()) == len(expected) + waited


def test_an_entry_that_is_removed_leaves_nothing() -> None:
    world = world_of()
    go_to(world, "22:20")
    world.config = load_text("")
    world.restart()
    world.settle()
    assert world.store.definitions.entries == {}
    go_to(world, "23:01")
    assert times(world) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{cron: '* * * * *', destination: /queue/a}", "schedules[0]: expected the key name:"),
        ("{name: a, cron: '* * * *', destination: /queue/a}", "schedules[0].cron: expected five fields"),
        ("{name: a, cron: '* * * * *', destination: /queue/*}", "schedules[0].destination: expected the name"),
        ("{name: a b, cron: '* * * * *', destination: /queue/a}", "schedules[0].name: expected a name without blanks"),
        ("{name: a, cron: '* * * * *', destination: /a, time_zone: Mars}", "schedules[0].time_zone: expected UTC"),
        ("{name: a, cron: '* * * * *', destination: /a, missed: all}", "schedules[0].missed: expected skip or last"),
        (
            "{name: a, cron: '* * * * *', destination: /a, headers: {receipt: 1}}",
            "schedules[0].headers: receipt cannot",
        ),
        ("{name: a, cron: '* * * * *', destination: /a, headers: [x]}", "schedules[0].headers: expected names and"),
        ("{name: a, cron: '* * * * *', destination: /a, headers: {x: [1]}}", "schedules[0].headers.x: expected one"),
        ("/queue/a", "schedules[0]: expected keys such as name:"),
    ],
)
def test_an_entry_that_cannot_work_is_refused_with_its_line(entry: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Rules(load_text(f"schedules: [{entry}]", "radiator.yaml", {}))
    assert f"radiator.yaml:1: {words}" in str(caught.value)


def test_two_entries_cannot_have_one_name() -> None:
    entry = "{name: a, cron: '* * * * *', destination: /queue/a}"
    with pytest.raises(ConfigError, match="'a' is also the name of"):
        Rules(load_text(f"schedules: [{entry}, {entry}]", "radiator.yaml", {}))


def test_without_the_extra_the_configuration_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"radiator-broker\[cron\]"):
        Rules(load_text(HOURLY.replace("MISSED", "skip")))


def test_a_reload_adds_changes_and_removes_schedules() -> None:
    world = World("")
    world.tick(1)
    reload(world, HOURLY.replace("MISSED", "last"))
    go_to(world, "23:01")
    assert times(world) == ["23:00"]
    half = HOURLY.replace("MISSED", "last").replace("0 * * * *", "30 * * * *").replace("ticks", "tocks")
    assert [change.path for change in reload(world, half) if not change.refused] == ["schedules"]
    go_to(world, "00:01")
    assert times(world) == ["23:00"] and times(world, "/topic/tocks") == ["23:30"]
    reload(world, half.partition("schedules:")[0])
    go_to(world, "01:01")
    assert times(world, "/topic/tocks") == ["23:30"]
    world.settle()
    assert not [key for key in world.broker.store.definitions.stored if key.startswith("schedule:")]


def test_a_reload_of_another_body_keeps_the_time_up_to_which_a_schedule_is_done() -> None:
    world = world_of("last")
    go_to(world, "22:59")
    reload(world, HOURLY.replace("MISSED", "last").replace('{"a": 1}', "new"))
    asleep(world, 0.5)
    assert [(frame.headers["scheduled-time"][11:16], frame.body) for frame in sent(world)] == [("23:00", b"new")]


def test_a_reload_while_a_message_is_stored_waits_for_it_and_sends_it_once() -> None:
    world = world_of("last")
    go_to(world, "22:59")
    world.fs.fail("fdatasync", 2)
    world.tick(60)
    reload(world, HOURLY.replace("MISSED", "last").replace('{"a": 1}', "new"))
    go_to(world, "23:30")
    assert times(world) == ["23:00"]


def test_a_schedule_that_comes_back_by_a_reload_sends_nothing_for_the_time_without_it() -> None:
    world = world_of("last")
    reload(world, HOURLY.partition("schedules:")[0])
    go_to(world, "23:30")
    reload(world, HOURLY.replace("MISSED", "last"))
    go_to(world, "00:01")
    assert times(world) == ["00:00"]
