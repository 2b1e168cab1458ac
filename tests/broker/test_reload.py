"""A reload: what a running broker takes from another configuration, what it refuses, and that it is all or nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.broker.reload import Reload
from radiator.clock import NS_PER_SECOND
from radiator.config.compare import _top_values, compare, share_settings
from radiator.config.keys import To
from radiator.config.load import load_text
from radiator.config.schema import TOP
from radiator.config.settings import RULE_ONLY, SETTINGS
from radiator.errors import ConfigError
from radiator.routing.rules import Rules
from tests.broker.harness import World
from tests.broker.reloading import in_force, plan, refused, reload, switch
from tests.tiers import sampled

Q, T = "/queue/a", "/topic/a"


def rules(*texts: str) -> str:
    return f"destinations: [{', '.join(texts)}]"


def queue_with(*messages: str, config: str = "") -> World:
    world = World(config)
    sender = world.connect()
    sender.publish(Q, *messages)
    world.settle()
    return world


# --- what applies now -------------------------------------------------------------------------------------------------


def test_a_limit_counts_messages_that_were_sent_before_there_was_one() -> None:
    world = queue_with("1", "2", "3")
    reader = world.connect()
    reader.subscribe(Q, prefetch_count="1")
    world.settle()
    reload(world, rules(f"{{match: {Q}, max_messages: 3}}"))
    sender = world.connect()
    sender.publish(Q, "4")
    assert sender.error() == "full"
    reader.ack(reader.messages()[0])
    world.settle()
    world.connect().publish(Q, "5", receipt="r")
    world.settle()
    again = world.connect()
    again.publish(Q, "6")
    assert again.error() == "full"


def test_a_sender_that_waits_for_room_goes_on_when_the_limit_is_gone() -> None:
    world = queue_with("1", config=rules(f"{{match: {Q}, max_messages: 1, on_full: block, block_timeout: none}}"))
    sender = world.connect()
    sender.publish(Q, "2", receipt="r")
    world.settle()
    assert not sender.receipts()
    reload(world, "")
    world.settle()
    assert sender.receipts() == ["r"]


def test_a_sender_above_its_rate_goes_on_when_the_rate_is_higher() -> None:
    world = World(rules(f"{{match: {Q}, rate_limit: {{messages: 1/h, burst: 1}}}}"))
    sender = world.connect()
    sender.publish(Q, "1", "2", receipt="r")
    world.settle()
    assert len(sender.receipts()) == 1
    reload(world, rules("{match: /queue/x}", f"{{match: {Q}, rate_limit: {{messages: 1/h, burst: 9}}}}"))
    world.settle()
    assert not sender.receipts()  # its tokens are still used up, though the rule has another number now
    reload(world, "")
    world.settle()
    assert len(sender.receipts()) == 1


def test_deliveries_in_flight_get_a_timeout() -> None:
    world = queue_with("1")
    reader, other = world.connect(), world.connect()
    reader.subscribe(Q)
    world.settle()
    assert reader.bodies() == ["1"]
    reload(world, rules(f"{{match: {Q}, ack_timeout: 5s}}"))
    other.subscribe(Q)
    world.tick(4)
    assert other.bodies() == []
    world.tick(2)
    assert other.bodies() + reader.bodies() == ["1"]


def test_a_shorter_timeout_counts_from_the_delivery() -> None:
    world = queue_with("1", config=rules(f"{{match: {Q}, ack_timeout: 1h}}"))
    reader, other = world.connect(), world.connect()
    reader.subscribe(Q, prefetch_count="1")
    world.settle()
    assert reader.bodies() == ["1"]
    world.tick(5)
    other.subscribe(Q)
    reload(world, rules(f"{{match: {Q}, ack_timeout: 6s}}"))
    world.tick(2)
    assert other.bodies() + reader.bodies() == ["1"]


def test_messages_that_wait_expire_by_a_new_time_to_live() -> None:
    world = queue_with("1", "2")
    world.tick(10)
    reload(world, rules(f"{{match: {Q}, message_ttl: 15s}}"))
    world.tick(4)
    assert world.broker.stats.expired == 0
    world.tick(2)
    assert world.broker.stats.expired == 2


def test_messages_no_longer_expire_without_a_time_to_live() -> None:
    world = queue_with("1", config=rules(f"{{match: {Q}, message_ttl: 5s}}"))
    reload(world, "")
    world.tick(60)
    reader = world.connect()
    reader.subscribe(Q)
    world.settle()
    assert reader.bodies() == ["1"]


def test_a_queue_that_exists_is_removed_by_a_new_idle_time_and_stays_without_one() -> None:
    world = queue_with("1")
    reload(world, rules(f"{{match: {Q}, expire: {{idle: 10s}}}}"))
    reload(world, "")
    world.tick(20)
    assert Q in world.broker.destinations
    reload(world, rules(f"{{match: {Q}, expire: {{idle: 10s}}}}"))
    world.tick(20)
    world.settle()
    assert Q not in world.broker.destinations


def test_a_queue_whose_removal_fails_after_a_reload_has_the_new_rule() -> None:
    idle = "expire: {idle: 10s}"
    world = queue_with("1", config=rules(f"{{match: {Q}, {idle}}}"))
    world.fs.fail("open", error=errno.ENOSPC, under="removals")
    world.tick(5)
    for _ in range(10):
        world.now += 5 * NS_PER_SECOND
        world.broker.tick(world.time)
    assert world.broker.registry.removing, "its removal is not on the disk yet"
    assert refused(world, rules(f"{{match: {Q}, partitions: 3, {idle}}}")), "it may come back, with its logs"
    reload(world, rules(f"{{match: {Q}, max_messages: 1, {idle}}}"))
    assert Q not in world.broker.destinations
    world.settle()
    assert not world.broker.registry.removing
    assert world.broker.destinations[Q].policy.settings.max_messages == 1
    client = world.connect()
    client.publish(Q, "2")
    world.settle()
    assert client.error() == "full"


def test_a_copy_is_stored_where_the_new_archive_rules_say() -> None:
    world = queue_with("1")
    reload(world, f"archive: [{{match: {Q}, to: /topic/copies}}]")
    sender = world.connect()
    sender.publish(Q, "2")
    reload(world, "")
    sender.publish(Q, "3")
    reader = world.connect()
    reader.subscribe("/topic/copies", start_position="first")
    world.settle()
    assert reader.bodies() == ["2"]


def test_messages_are_counted_for_the_new_rule() -> None:
    world = queue_with("1")
    reload(world, rules(f"{{match: {Q}}}"))
    reader, sender = world.connect(), world.connect()
    reader.subscribe(Q, prefetch_count="9")
    sender.publish(Q, "2")
    world.settle()
    counted = world.broker.stats.traffic.by_rule[Q]
    assert (counted.published, counted.delivered) == (1, 2)


def test_every_key_of_the_top_level_is_compared() -> None:
    """Otherwise a changed value would be neither applied nor refused."""
    compared = _top_values(load_text(""))
    assert [key.path for key in TOP if key.field not in compared] == ["version"]


def test_schedules_and_archive_rules_that_only_move_within_the_file_are_no_change() -> None:
    text = (
        f"archive: [{{match: {Q}, to: /topic/copies}}]\n"
        "schedules: [{name: nightly, cron: '0 3 * * *', destination: /queue/night}]\n"
    )
    before, moved = (load_text(each, "radiator.yaml", {}) for each in (text, "# a comment\n" + text))
    assert compare(before, moved) == []


def test_changed_levels_of_loggers_are_shown_as_in_a_file() -> None:
    before = load_text("logging: {levels: {radiator.auth: debug}}")
    after = load_text("logging: {levels: {radiator.auth: info, radiator.disk: debug}}")
    shown = "radiator.auth: debug", "radiator.auth: info, radiator.disk: debug"
    assert [(change.before, change.after) for change in compare(before, after)] == [shown]
    assert [(change.before, change.after) for change in compare(load_text(""), before)] == [("none", shown[0])]


def test_a_change_of_a_schedule_shows_what_differs() -> None:
    entry = "{{name: nightly, cron: '0 3 * * *', destination: /queue/night, body: {}}}"
    before, after = (load_text(f"schedules: [{entry.format(body)}]", "radiator.yaml", {}) for body in ("one", "two"))
    (change,) = compare(before, after)
    assert change.before is not None and change.before != change.after == change.before.replace("one", "two")


def test_a_refused_message_goes_to_the_dead_letters_of_the_new_rule() -> None:
    world = queue_with("1")
    reader = world.connect()
    reader.subscribe(Q)
    world.settle()
    reload(world, rules(f"{{match: {Q}, dead_letter: '/queue/dead{{name}}'}}"))
    reader.nack(reader.messages()[0], requeue="false")
    world.settle()
    dead = world.connect()
    dead.subscribe(f"/queue/dead{Q}")
    world.settle()
    assert dead.bodies() == ["1"]


def test_a_receipt_means_what_the_new_rule_says() -> None:
    world = World(rules(f"{{match: {Q}, fsync: never}}"))
    sender = world.connect()
    sender.publish(Q, "1", receipt="r")
    world.settle()
    reload(world, rules(f"{{match: {Q}, fsync: always}}"))
    sender.publish(Q, "2", receipt="r")
    world.take()
    world.write()
    assert any(job.needs_sync for job in world.jobs)
    world.sync()
    world.completed()
    world.power_cut()
    reader = world.connect()
    reader.subscribe(Q, prefetch_count="9")
    world.settle()
    assert "2" in reader.bodies()


@pytest.mark.parametrize(("one", "other"), sampled(permutations(("always", "never", "50ms"), 2), 2))
def test_receipts_of_messages_on_their_way_come_when_fsync_changes(one: str, other: str) -> None:
    world = World(rules(f"{{match: {Q}, fsync: {one}}}"))
    sender, reader = world.connect(), world.connect()
    reader.subscribe(Q, prefetch_count="9")
    world.settle()
    sender.publish(Q, "1", receipt="r")  # in the open batch
    reload(world, rules(f"{{match: {Q}, fsync: {other}}}"))
    sender.publish(Q, "2", receipt="r")
    world.take()
    world.write()
    reload(world, rules(f"{{match: {Q}, fsync: {one}}}"))  # on the disk thread
    world.sync()
    world.completed()
    sender.publish(Q, "3", receipt="r")
    world.tick(1)
    assert sender.receipts() == ["r"] * 3
    messages = reader.messages()
    assert [message.body for message in messages] == [b"1", b"2", b"3"]
    for message in messages:
        reader.ack(message, receipt="a")
    world.tick(1)
    assert reader.receipts() == ["a"] * 3


def test_retention_follows_at_once() -> None:
    world = World(rules(f"{{match: {T}, segment: {{size: 64KiB}}}}"))
    sender = world.connect()
    for _ in range(40):
        sender.publish(T, "x" * 8_000)
        world.settle()
    (feed,) = world.broker.destinations[T].feeds
    assert len(feed.partition.segments) > 3
    reload(world, rules(f"{{match: {T}, segment: {{size: 64KiB}}, retention: {{count: 1}}}}"))
    world.settle()
    assert len(feed.partition.segments) == 1


@pytest.mark.parametrize("store", ["file", "memory"])
def test_ids_are_recognised_as_the_new_rule_says(store: str) -> None:
    world = World(f"defaults: {{store: {store}}}")
    sender = world.connect()

    def duplicates(id: str) -> bool:
        sender.publish(Q, "x", receipt="r", dedup_id=id)
        world.settle()
        (receipt,) = sender.take("RECEIPT")
        return "duplicate" in receipt.headers

    assert not duplicates("1") and duplicates("1")
    reload(world, f"defaults: {{store: {store}, dedup: {{window: none}}}}")
    assert not duplicates("1")
    reload(world, f"defaults: {{store: {store}}}")
    assert not duplicates("1") and duplicates("1")
    if store == "memory":
        return
    world.restart()
    sender = world.connect()
    assert duplicates("1")


def test_a_new_rule_creates_what_it_says() -> None:
    world = queue_with("1")
    reload(
        world,
        rules(
            "{match: /queue/new, partitions: 3}", "{match: /topic/x, kind: queue}", "{match: /queue/no, create: deny}"
        ),
    )
    sender = world.connect()
    sender.publish("/queue/new", "1")
    sender.publish("/topic/x", "1")
    world.settle()
    assert len(world.broker.destinations["/queue/new"].feeds) == 3
    assert world.broker.destinations["/topic/x"].policy.kind == "queue"
    sender.publish("/queue/no", "1")
    assert sender.error() == "not-found"


def test_a_durable_subscription_takes_the_longest_times_of_its_topics() -> None:
    shared = "partition: log"
    world = World(rules(f"{{match: '/topic/*', {shared}}}"))
    sender, reader = world.connect(), world.connect()
    reader.subscribe("/topic/*", subscription_name="d", start_position="first")
    world.settle()
    sender.publish("/topic/a", "1")
    sender.publish("/topic/b", "1")
    world.settle()
    reload(
        world, rules(f"{{match: {T}, {shared}, ack_timeout: 5s}}", f"{{match: '/topic/*', {shared}, ack_timeout: 9s}}")
    )
    (durable,) = world.broker.durable.by_key.values()
    (source,) = durable.queue.sources
    assert source.settings.ack_timeout_ns == 9 * NS_PER_SECOND
    assert source.timeouts is not None and source.timeouts.timeout_ns == 9 * NS_PER_SECOND


def test_a_temporary_queue_takes_the_new_defaults() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/temp-queue/x")
    world.settle()
    reload(world, "defaults: {prefetch: 7}")
    (name,) = (name for name in world.broker.destinations if name.startswith("/temp-queue/"))
    assert world.broker.destinations[name].policy.settings.prefetch == 7


def test_limits_of_the_broker_apply_at_once() -> None:
    world = queue_with("1")
    reload(world, "limits: {destinations: 1, memory: 1GiB, joined_total: 5}")
    sender = world.connect()
    sender.publish("/queue/another", "1")
    assert sender.error() == "too-many"
    assert world.broker.memory.bytes_max == 1 << 30
    assert world.broker.memory.shares["messages"].bytes_max == (1 << 30) * 3 // 4


def test_a_connection_keeps_the_limits_with_which_it_was_opened() -> None:
    world = World()
    before = world.connect()
    reload(world, "limits: {subscriptions: 1}")
    after = world.connect()
    for number in range(2):
        before.subscribe(f"/queue/{number}", id=str(number))
        after.subscribe(f"/queue/{number}", id=str(number))
    world.settle()
    assert not before.session.closing
    assert after.error() == "too-many"


def test_a_transaction_that_was_prepared_under_the_old_rules_is_prepared_again() -> None:
    world = queue_with("1")
    sender = world.connect()
    sender.say("BEGIN", transaction="t")
    sender.publish(Q, "2", transaction="t")
    world.settle()
    reload(world, rules(f"{{match: {Q}, max_messages: 1}}"))
    sender.say("COMMIT", transaction="t")
    assert sender.error() == "full"


# --- what is refused --------------------------------------------------------------------------------------------------

FIXED = {
    "kind": (T, "kind: queue"),
    "partition": (Q, "partition: other"),
    "partitions": (Q, "partitions: 4"),
    "partition_by": ("/queue/parts", "partitions: 2, partition_by: 'header:x'"),
    "fan_out": (Q, "fan_out: [/queue/b]"),
    "priority": (Q, "priority: true"),
    "store": (Q, "store: memory"),
    "compact_by": (T, "compact_by: 'header:x'"),
    "exclusive": (Q, "exclusive: true"),
}


def test_each_key_that_applies_to_new_destinations_only_is_tried_below() -> None:
    assert set(FIXED) == {key.path for key in (*RULE_ONLY, *SETTINGS) if key.applies.to is To.NEW_DESTINATIONS}


@pytest.fixture(scope="module")
def existing() -> World:
    """Destinations with messages, which no test below may change."""
    world = World(rules("{match: /queue/parts, partitions: 2}"))
    sender = world.connect()
    for name in (Q, T, "/queue/parts"):
        sender.publish(name, "1")
    world.settle()
    return world


@pytest.mark.parametrize("key", FIXED)
def test_what_a_destination_that_exists_cannot_take_is_refused_by_name(existing: World, key: str) -> None:
    name, text = FIXED[key]
    others = "" if name == "/queue/parts" else ", {match: /queue/parts, partitions: 2}"
    before = in_force(existing)
    found = refused(existing, f"destinations: [{{match: {name}, {text}}}{others}]")
    assert list(found) == [f"destinations[0].{key}"]
    assert name in found[f"destinations[0].{key}"] and "estart" in found[f"destinations[0].{key}"]
    assert in_force(existing) == before


@pytest.mark.parametrize("key", FIXED)
def test_the_same_is_no_hindrance_for_names_that_do_not_exist(existing: World, key: str) -> None:
    name, text = FIXED[key]
    kind = name.split("/")[1]
    plans, changes = plan(
        existing, f"destinations: [{{match: /{kind}/unknown, {text}}}, {{match: /queue/parts, partitions: 2}}]"
    )
    plans.cancel()
    assert [change.path for change in changes if change.refused] == []


def test_a_rule_that_is_gone_may_not_give_its_destinations_to_another_with_other_logs(existing: World) -> None:
    found = refused(existing, "")
    assert list(found) == ["defaults.partitions"]
    assert "/queue/parts" in found["defaults.partitions"]


def test_one_change_that_is_refused_keeps_all_others_back(existing: World) -> None:
    before = in_force(existing)
    text = rules("{match: /queue/parts, partitions: 2}", f"{{match: {Q}, max_messages: 1, store: memory}}")
    changes = reload(existing, f"limits: {{connections: 5}}\n{text}")
    assert [change.path for change in changes if change.refused] == ["destinations[1].store"]
    assert in_force(existing) == before and existing.broker.config.limits.connections != 5


def test_the_data_directory_cannot_change(existing: World) -> None:
    text = rules("{match: /queue/parts, partitions: 2}")
    assert set(refused(existing, f"data_dir: elsewhere\nadmin: http://127.0.0.1:1\n{text}")) == {"data_dir"}


def test_destinations_of_one_log_may_not_come_to_differ() -> None:
    template = "{match_regex: '/topic/([ab]).*', partition: 'log-{1}'}"
    world = World(rules(template))
    sender = world.connect()
    sender.publish("/topic/a1", "1")
    sender.publish("/topic/a2", "1")
    world.settle()
    found = refused(world, rules("{match: /topic/a1, partition: 'log-a', fsync: never}", template))
    assert "/topic/a1" in found["destinations"] and "log-a" in found["destinations"]


# --- the switch -------------------------------------------------------------------------------------------------------


def test_from_the_switch_on_every_frame_is_handled_by_the_new_rules() -> None:
    """Before the destinations have taken their policies one by one."""
    world = World()
    sender, reader = world.connect(), world.connect()
    names = [f"/queue/{number}" for number in range(50)]
    for name in names:
        sender.publish(name, "1")
    world.settle()
    rest = switch(world, "defaults: {max_messages: 1, prefetch: 9}")
    for name in names[::10]:
        refused_ = world.connect()
        refused_.publish(name, "2")
        assert refused_.error() == "full"
    reader.subscribe("/queue/*")
    assert {each.window for each in reader.session.subscriptions.by_id.values()} == {9}
    sender.publish("/queue/new", "1", receipt="r")
    world.settle()
    assert sender.receipts() == ["r"]
    for _ in rest.adopt():
        pass
    world.settle()
    assert {each.policy.settings.max_messages for each in world.broker.destinations.values()} == {1}


def test_a_destination_that_appears_while_the_reload_is_decided_is_decided_too() -> None:
    world = World()
    decided, _ = plan(world, rules("{match: /queue/late, store: memory}", "{match: /queue/*, prefetch: 3}"))
    sender = world.connect()
    sender.publish("/queue/other", "1")
    world.settle()
    decided.switch({})
    for _ in decided.adopt():
        pass
    assert world.broker.destinations["/queue/other"].policy.settings.prefetch == 3


def test_a_destination_that_appears_and_hinders_the_reload_stops_it() -> None:
    world = World()
    decided, changes = plan(world, rules("{match: /queue/late, store: memory}"))
    assert not any(change.refused for change in changes)
    sender = world.connect()
    sender.publish("/queue/late", "1")
    world.settle()
    with pytest.raises(ConfigError, match="/queue/late"):
        decided.switch({})
    assert world.broker.config.rules == ()


def test_a_new_destination_in_the_log_of_one_that_has_not_taken_its_policy_is_created() -> None:
    world = World(rules("{match: '/topic/*', partition: log}"))
    sender = world.connect()
    sender.publish("/topic/a", "1")
    world.settle()
    rest = switch(world, rules("{match: '/topic/*', partition: log, retention: {age: 1d}}"))
    sender.publish("/topic/b", "1", receipt="r")
    world.settle()
    assert sender.receipts() == ["r"]
    for _ in rest.adopt():
        pass


def test_no_step_is_more_work_than_a_few_destinations() -> None:
    world = World()
    sender = world.connect()
    for number in range(200):
        sender.publish(f"/queue/{number}", "1")
        sender.publish(f"/topic/{number}", "1")
    sender.subscribe("/topic/*", subscription_name="d", id="d")
    world.settle()
    budget, most, count = world.broker.budget, 0, 0

    def run(steps: Iterator[bool]) -> None:
        nonlocal most, count
        budget.begin()
        before = budget.left
        for _ in steps:
            most, count, before = max(most, before - budget.left), count + 1, budget.left

    config = share_settings(world.broker.config, load_text("defaults: {fsync: never, message_ttl: 1h}"))
    reload = Reload(world.broker, world.broker.durable, world.broker.declarations, Rules(config))
    run(reload.decide())
    reload.switch({})
    run(reload.adopt())
    assert most <= 50 and count > 1_000


# --- as if started with it --------------------------------------------------------------------------------------------

MATCHES = ["/queue/a", "/queue/*", "/topic/a", "/topic/*", "/queue/b,/topic/b", "'/queue/>'"]
KEYS = [
    "prefetch: 5",
    "fsync: never",
    "fsync: 50ms",
    "retention: {age: 1d}",
    "retention: {count: 10}",
    "segment: {size: 1MiB}",
    "dedup: {window: none}",
    "ack_timeout: 1h",
    "message_ttl: 1h",
    "redeliver: {max: 3, delay: 1s}",
    "dead_letter: '/queue/dead.{name}'",
    "max_messages: 100, on_full: drop_oldest",
    "rate_limit: {messages: 5}",
    "create: deny",
    "cursor_expiry: 1d",
    "partitions: 2",
    "priority: true",
    "exclusive: true",
    "store: memory",
]
RULES = st.tuples(
    st.sampled_from(MATCHES), st.lists(st.sampled_from(KEYS), max_size=3, unique_by=lambda key: key.split(":")[0])
)
FILES = st.lists(RULES, max_size=3, unique_by=lambda rule: rule[0])


def file_of(parts: list[tuple[str, list[str]]]) -> str | None:
    """The file, unless the broker refuses it."""
    text = rules(*(f"{{{', '.join([f'match: {match}', *keys])}}}" for match, keys in parts))
    try:
        Rules(load_text(text))
    except ConfigError:
        return None
    return text


@settings(max_examples=settings().max_examples // 10)
@given(FILES, FILES)
def test_after_a_reload_the_broker_has_the_values_of_one_that_was_started_with_the_file(
    one: list[tuple[str, list[str]]], other: list[tuple[str, list[str]]]
) -> None:
    before, after = file_of(one), file_of(other)
    if before is None or after is None:
        return
    world = World(before)
    reader = world.connect()
    reader.subscribe("/topic/*", subscription_name="d", id="d")
    world.settle()
    for name in ("/queue/a", "/queue/b", "/topic/a", "/topic/b"):
        sender = world.connect()
        sender.publish(name, "1")
        world.settle()
    earlier = in_force(world)
    if refused(world, after):
        assert in_force(world) == earlier
        return
    now = in_force(world)
    world.restart()
    started = in_force(world)
    for name in started:
        assert now[name] == started[name], name
