"""Queues whose consumers have selectors: who is given what, in which order, and what stays in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.broker.admin import readiness
from radiator.broker.delivery import dispatch, ready, selective
from radiator.broker.logs.selection import Selection
from radiator.broker.queues import selectors
from radiator.broker.queues.queue import Queue
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World, bodies
from tests.tiers import sampled


def send(client: Client, *sent: str) -> None:
    """``red1`` has the header ``colour:red``."""
    for body in sent:
        client.publish("/queue/a", body, colour=body.rstrip("0123456789"))


def queue_of(world: World, name: str = "/queue/a") -> Queue:
    queue = world.broker.destinations[name].queue
    assert queue is not None
    return queue


def take_all(world: World, client: Client) -> list[str]:
    """Acknowledge one by one."""
    seen = []
    world.settle()
    while frames := client.messages():
        for frame in frames:
            seen.append(frame.body.decode())
            client.ack(frame)
        world.settle()
    return seen


def test_a_consumer_takes_what_matches_and_the_rest_stays_in_its_place(world: World) -> None:
    client, other = world.connect(), world.connect()
    send(client, "red1", "blue1", "red2", "blue2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red1", "red2"]
    other.subscribe("/queue/a")
    send(client, "blue3")
    assert take_all(world, other) == ["blue1", "blue2", "blue3"]
    assert not any("redelivered" in frame.headers for frame in other.inbox)


def test_groups_that_need_different_batches_are_served_where_memory_has_room_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "COLD_BYTES_MAX", 1)
    world = World(tail_bytes_max=1)
    red, blue, green = (world.connect() for _ in range(3))
    green.subscribe("/queue/a", selector="colour = 'green'")
    for colour in ("red", "blue"):
        green.publish("/queue/a", *["x" * (limits.READ_CHUNK_BYTES // 3)] * 3, colour=colour)  # a batch read by itself
        world.settle()
    red.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=1)
    blue.subscribe("/queue/a", selector="colour = 'blue'", prefetch_count=1)
    for _ in range(3):
        world.settle()
        for each in (red, blue):
            (message,) = each.messages()
            each.ack(message)


def test_a_skipped_message_counts_as_not_delivered(world: World) -> None:
    client, other = world.connect(), world.connect()
    send(client, "blue1", "red1")
    client.subscribe("/queue/a", selector="colour = 'red'")
    world.settle()
    other.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    (message,) = other.messages()
    assert message.body == b"blue1"
    assert "redelivered" not in message.headers
    other.nack(message)
    world.settle()
    (again,) = other.messages()
    assert (again.headers["redelivered"], again.headers["delivery-count"]) == ("true", "2")


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_skipped_messages_keep_their_places_over_a_restart(world: World, end: str) -> None:
    client = world.connect()
    send(client, "blue1", "red1", "blue2", "red2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red1", "red2"]
    client.say("SEND", destination="/topic/x", receipt="r")
    world.settle()
    getattr(world, end)()
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    frames = client.messages()
    assert bodies(frames)[:2] == ["blue1", "blue2"]
    assert not any("redelivered" in frame.headers for frame in frames if frame.body.startswith(b"blue"))


def test_a_consumer_that_is_full_does_not_hold_up_the_others(world: World) -> None:
    red, blue = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'")
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    send(red, "red1", "red2", "blue1", "red3", "blue2", "red4")
    assert take_all(world, blue) == ["blue1", "blue2"]
    (first,) = red.messages()
    red.ack(first)
    assert [first.body.decode(), *take_all(world, red)] == ["red1", "red2", "red3", "red4"]


def test_a_consumer_without_a_selector_takes_everything(world: World) -> None:
    red, anything = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=100)
    anything.subscribe("/queue/a", prefetch_count=100)
    sent = [f"{colour}{number}" for number in range(10) for colour in ("red", "blue")]
    send(red, *sent)
    world.settle()
    to_red, rest = red.bodies(), anything.bodies()
    assert sorted(to_red + rest) == sorted(sent)
    assert all(body.startswith("red") for body in to_red)
    assert len(to_red) >= 5  # they take turns where both may
    assert (to_red, rest) == (sorted(to_red, key=sent.index), sorted(rest, key=sent.index))


def test_a_refused_message_goes_to_another_that_wants_it_and_else_comes_back(world: World) -> None:
    one, two, blue = world.connect(), world.connect(), world.connect()
    one.subscribe("/queue/a", selector="colour = 'red'")
    send(one, "red1")
    world.settle()
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    (message,) = one.messages()
    one.nack(message)
    world.settle()
    (message,) = one.messages()
    assert message.headers["delivery-count"] == "2"
    assert blue.messages() == []
    two.subscribe("/queue/a", selector="colour = 'red'")
    one.nack(message)
    world.settle()
    assert two.bodies() == ["red1"]


def test_the_messages_of_a_lost_consumer_are_skipped_until_a_selector_matches(world: World) -> None:
    red, blue = world.connect(), world.connect()
    red.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=2)
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    send(blue, "red1", "blue1", "red2", "red3")
    world.settle()
    assert red.bodies() == ["red1", "red2"]
    red.drop()
    assert take_all(world, blue) == ["blue1"]
    red = world.connect()
    red.subscribe("/queue/a", selector="colour LIKE 'r%'", prefetch_count=10)
    world.settle()
    frames = red.messages()
    assert [(frame.body, frame.headers.get("delivery-count")) for frame in frames] == [
        (b"red1", "2"),
        (b"red2", "2"),
        (b"red3", "1"),
    ]


def test_two_subscriptions_of_one_client_share_its_window_of_one(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a", id="red", selector="colour = 'red'")
    client.subscribe("/queue/a", id="blue", selector="colour = 'blue'")
    send(client, "blue1", "blue2", "red1", "green1")
    world.settle()
    seen = []
    while frames := client.messages():
        (frame,) = frames
        seen.append((frame.headers["subscription"], frame.body.decode()))
        client.ack(frame)
        world.settle()
    assert sorted(seen) == [("blue", "blue1"), ("blue", "blue2"), ("red", "red1")]


def test_auto_ack_and_patterns_have_selectors_too(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/>", ack="auto", selector="colour = 'red'")
    send(client, "red1", "blue1", "red2")
    world.settle()
    assert client.bodies() == ["red1", "red2"]


def test_an_unselected_backlog_in_a_log_of_many_is_passed_over() -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]")
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    other.subscribe("/queue/b", selector="colour = 'red'", ack="auto")
    for number in range(5):
        send(client, f"red{number}", f"blue{number}")
        client.publish("/queue/b", f"b{number}", colour="red")
    assert take_all(world, client) == [f"red{number}" for number in range(5)]
    assert other.bodies() == [f"b{number}" for number in range(5)]


def test_selectors_and_priorities_go_together() -> None:
    world = World("destinations: [{match: '/queue/*', priority: true}]")
    client, other = world.connect(), world.connect()
    for body, priority in (("red1", 1), ("blue9", 9), ("red9", 9), ("red5", 5), ("blue1", 1)):
        client.publish("/queue/a", body, colour=body[:-1], priority=priority)
    client.subscribe("/queue/a", selector="colour = 'red'")
    assert take_all(world, client) == ["red9", "red5", "red1"]
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue9", "blue1"]


def test_a_skipped_message_that_expires_is_not_delivered(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.publish("/queue/a", "blue1", colour="blue", expires=world.now // 1_000_000 + 5_000)
    send(client, "blue2")
    client.subscribe("/queue/a", selector="colour = 'red'")
    world.settle()
    world.tick(10)
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue2"]


def test_a_consumer_does_not_starve_behind_any_number_of_skipped_messages(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    send(client, *["blue"] * 10_500, "red1")
    assert take_all(world, client) == ["red1"]
    (source,) = queue_of(world).sources
    assert (len(source.skipped), source.skipped.runs.runs) == (10_500, 1)
    other.subscribe("/queue/a", selector="colour LIKE 'b%'", prefetch_count=400)
    world.settle()
    assert other.bodies() == ["blue"] * 400


def test_a_queue_that_has_skipped_all_it_may_says_so_and_goes_on_when_some_are_taken(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SKIPPED_RUNS_MAX", 5)
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    for number in range(8):
        send(client, f"blue{number}", f"red{number}")
    assert take_all(world, client) == [f"red{number}" for number in range(4)]
    (source,) = queue_of(world).sources
    assert source.skipped.runs.runs == 5
    (held_back,) = readiness.held_back(world.broker)
    assert "/queue/a" in held_back and "5 messages" in held_back
    assert readiness.figures(world.broker)["now"]["stopped_by_selectors"] == 1
    assert world.broker.stats.selectors_stopped == 1
    assert [record.message for record in caplog.records if "skipped 5 messages" in record.message] == [held_back]
    other.subscribe("/queue/a", selector="colour = 'blue'", prefetch_count=4)
    world.settle()
    assert other.bodies() == [f"blue{number}" for number in range(4)]
    assert take_all(world, client) == [f"red{number}" for number in range(4, 8)]
    assert readiness.held_back(world.broker) == []


def test_all_queues_together_skip_no_more_than_they_may_but_each_some(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SKIPPED_RUNS_ALL_MAX", 6)
    monkeypatch.setattr(limits, "SKIPPED_RUNS_OWN", 2)
    client = world.connect()
    for name in "abcd":
        client.subscribe(f"/queue/{name}", id=name, selector="colour = 'red'", prefetch_count=100)
        for number in range(8):
            client.publish(f"/queue/{name}", f"blue{number}", colour="blue")
            client.publish(f"/queue/{name}", f"red{number}", colour="red")
        world.settle()
    runs = [queue_of(world, f"/queue/{name}").sources[0].skipped.runs.runs for name in "abcd"]
    assert runs == [6, 2, 2, 2]
    for name in "abcd":
        client.say("UNSUBSCRIBE", id=name)
        client.subscribe(f"/queue/{name}", id=name, ack="auto")
    world.settle()
    assert len(client.messages()) == 64 + sum(count - 1 for count in runs)  # what it held comes again
    assert world.broker.timing.skipped.runs == 0


def test_what_comes_back_is_skipped_and_found_again_in_its_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SKIPPED_FOUND_MAX", 5)
    lost, client = world.connect(), world.connect()
    lost.subscribe("/queue/a", prefetch_count=1_000)
    send(client, *[f"blue{number}" for number in range(300)], "red1")
    world.settle()
    assert len(lost.messages()) == 301
    client.subscribe("/queue/a", selector="colour = 'red'")
    lost.drop()
    world.settle()
    assert client.bodies() == ["red1"]
    other = world.connect()
    other.subscribe("/queue/a", selector="colour = 'blue'", prefetch_count=1_000)
    world.settle()
    assert other.bodies() == [f"blue{number}" for number in range(300)]


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.parametrize("second", [{}, {"selector": "colour = 'blue'"}])
def test_what_was_skipped_is_not_counted_as_delivered_by_a_start(end: str, second: dict[str, str]) -> None:
    world = World("defaults: {redeliver: {max: 1}, dead_letter: /queue/dead}")
    client = world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=3)
    for number in range(20):
        send(client, f"blue{number}", f"red{number}")
    world.settle()
    held = client.messages()
    client.ack(held[1])
    world.settle()
    assert len(client.messages()) == 1
    getattr(world, end)()
    (source,) = queue_of(world).sources
    assert (len(source.skipped), source.skipped.runs.runs) == (3, 3)  # and the first, which is stored as such
    client = world.connect()
    client.subscribe("/queue/a", prefetch_count=100, **second)
    world.settle()
    frames = client.messages()
    assert not any("redelivered" in frame.headers for frame in frames)
    blue = [frame.body.decode() for frame in frames if frame.headers["colour"] == "blue"]
    assert blue == [f"blue{number}" for number in range(20)]
    client.subscribe("/queue/dead", id="dead", ack="auto")
    world.settle()
    assert sorted(client.bodies()) == ["red0", "red2", "red3"]  # these were with a consumer


# --- what it costs ----------------------------------------------------------------------------------------------------


class Work:
    """Selectors that were evaluated, and records that were looked at for a selector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evaluated = self.records = 0
        holds, evaluate, values = Selection.holds, Selection._evaluate, selectors.values

        def counting_holds(selection: Selection, row: Any) -> bool:
            self.evaluated += 1
            return holds(selection, row)

        def counting_evaluate(selection: Selection, wire: Any, batch: Any, start: int, stop: int) -> bytes:
            self.evaluated += stop - start
            return evaluate(selection, wire, batch, start, stop)

        def counting_values(wire: Any, batch: Any, start: int, stop: int, name: str) -> Any:
            self.records += stop - start
            return values(wire, batch, start, stop, name)

        monkeypatch.setattr(Selection, "holds", counting_holds)
        monkeypatch.setattr(Selection, "_evaluate", counting_evaluate)
        monkeypatch.setattr(selectors, "values", counting_values)


def test_a_message_finds_the_consumer_with_its_correlation_id_without_asking_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    takers = [world.connect() for _ in range(100)]
    for number, taker in enumerate(takers):
        more = " AND type = 'reply'" if number % 2 else ""
        taker.subscribe("/queue/a", selector=f"JMSCorrelationID = 'c{number}'{more}", prefetch_count=5)
    world.settle()
    work, sender = Work(monkeypatch), world.connect()
    for number in [*range(100), *range(100)]:
        sender.publish("/queue/a", "x", correlation_id=f"c{number}", type="reply")
        world.settle()
    assert [taker.bodies() for taker in takers] == [["x", "x"]] * 100
    assert work.evaluated == 100  # those that say more than the id, each for its own messages
    assert work.records <= 300


def test_a_new_selector_is_evaluated_once_for_waiting_messages_and_no_other_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/a", id="first", selector="colour LIKE 'r%'")
    send(sender, *[f"blue{number}" for number in range(300)])
    world.settle()
    work = Work(monkeypatch)
    for number in range(10):
        client.subscribe("/queue/a", id=str(number), selector=f"colour LIKE 'z{number}%'")
        world.settle()
        assert work.evaluated == 300 * (number + 1)
    client.say("UNSUBSCRIBE", id="3")
    world.settle()
    client.say("UNSUBSCRIBE", id="first")
    world.settle()
    assert work.evaluated == 3_000
    send(sender, "blue")
    world.settle()
    assert work.evaluated == 3_009


def test_selectors_that_come_together_read_what_waits_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client, sender = world.connect(), world.connect()
    send(sender, *[f"blue{number}" for number in range(500)], "red")
    world.settle()
    work = Work(monkeypatch)
    for number in range(900):
        client.subscribe("/queue/a", id=str(number), selector=f"colour = 'z{number}'")
    world.settle()
    assert work.evaluated == 0
    assert work.records <= 2 * 501
    work.records = 0
    client.subscribe("/queue/a", id="red", selector="colour = 'red'")
    world.settle()
    assert client.bodies() == ["red"]
    assert work.records <= 501
    work.records = 0
    client.drop()
    world.settle()
    assert (work.evaluated, work.records) == (0, 0)


@pytest.mark.parametrize(
    "selector", sampled(["colour = 'z{}'", "colour LIKE 'z{}%'", "colour = 'blue' AND size = {}"], 1)
)
def test_no_turn_evaluates_more_than_its_budget(world: World, monkeypatch: pytest.MonkeyPatch, selector: str) -> None:
    client, sender = world.connect(), world.connect()
    for _ in range(400):
        send(sender, "blue")
        world.settle()  # a batch each
    for number in range(300):
        client.subscribe("/queue/a", id=str(number), selector=selector.format(number))
    spent = []
    pump = dispatch.pump

    def counting(queue: Queue, *args: Any) -> int:
        before = Selection.spent_chars
        found = pump(queue, *args)
        spent.append(Selection.spent_chars - before)
        return found

    monkeypatch.setattr(dispatch, "pump", counting)
    world.settle()
    one = 300 * (16 + len(selector)) + 32  # a record for all of them
    assert max(spent) <= limits.SELECTOR_RUN_CHARS + one
    assert world.broker.budget.peak <= limits.TURN_WORK + (limits.SELECTOR_RUN_CHARS + one) // ready.CHARS_A_UNIT


@pytest.mark.parametrize("waiting", [0, 3])
def test_a_queue_takes_so_many_selectors_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr(limits, "SELECTORS_PER_QUEUE_MAX", 3)
    sender, first, second = world.connect(), world.connect(), world.connect()
    send(sender, *["green"] * waiting)
    for number in range(3):
        first.subscribe("/queue/a", id=str(number), selector=f"colour = 'z{number}'")
    second.subscribe("/queue/a", id="same", selector="colour='z1'")
    world.settle()
    assert not second.take("ERROR")
    second.subscribe("/queue/a", id="more", selector="colour = 'more'")
    (frame,) = second.take("ERROR")
    assert frame.headers["error-code"] == "too-many" and "/queue/a" in frame.headers["message"]
    assert b"3 is the limit" in frame.body
    first.say("UNSUBSCRIBE", id="0")
    third = world.connect()
    third.subscribe("/queue/a", selector="colour = 'more'")
    world.settle()
    assert not third.take("ERROR")


def test_a_queue_takes_selectors_that_each_message_is_evaluated_with_up_to_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SELECTOR_QUEUE_CHARS_MAX", 300)
    client = world.connect()
    for number in range(50):
        client.subscribe("/queue/a", id=f"equal{number}", selector=f"colour = 'c{number}' AND size > 3")
    world.settle()
    assert not client.take("ERROR")
    for number in range(9):
        client.subscribe("/queue/a", id=f"like{number}", selector=f"colour LIKE 'c{number}%'")
    (frame,) = client.take("ERROR")
    assert frame.headers["error-code"] == "too-many"
    assert b"300 is the limit" in frame.body


def test_a_pattern_meets_the_limit_when_the_queue_is_created(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SELECTORS_PER_QUEUE_MAX", 2)
    clients = [world.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.subscribe("/queue/*", selector=f"colour = 'c{number}'")
    sender = world.connect()
    sender.publish("/queue/a", "x", colour="c1")
    world.settle()
    assert [len(client.take("ERROR")) for client in clients] == [0, 0, 1]
    assert clients[1].bodies() == ["x"]


def test_the_oldest_that_is_dropped_may_be_skipped() -> None:
    world = World("destinations: [{match: '/queue/*', max_messages: 3, on_full: drop_oldest}]")
    client, other = world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    send(client, "blue1", "blue2", "blue3")
    world.settle()
    send(client, "blue4", "blue5")
    world.settle()
    other.subscribe("/queue/a")
    assert take_all(world, other) == ["blue3", "blue4", "blue5"]
    assert world.broker.stats.dropped_oldest == 2


def test_a_long_backlog_of_skipped_messages_is_searched_in_bounded_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.connect()
    send(client, *[f"blue{number}" for number in range(3_000)], "red1")
    world.settle()
    monkeypatch.setattr(limits, "SELECTOR_RUN_CHARS", 200 * len("colour = 'red'"))
    client.subscribe("/queue/a", selector="colour = 'red'")
    (source,) = world.broker.destinations["/queue/a"].queue.sources
    steps = [0]
    real: Callable[[], bool] = world.broker.ready.pump
    while source.next_offset < 3_001:
        before = source.next_offset
        real()
        world.reads()
        steps.append(source.next_offset - before)
    assert max(steps) <= 200 * 17
    world.settle()
    assert client.bodies() == ["red1"]


COLOURS = ("red", "blue", "green")
SELECTORS = (None, "colour = 'red'", "colour <> 'red'", "colour IN ('red', 'green')", "n > 3")
actions = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(COLOURS)),
    st.tuples(st.just("join"), st.sampled_from(SELECTORS), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("ack"), st.integers(0, 3)),
    st.tuples(st.just("nack"), st.integers(0, 3)),
)


def wants(selector: str | None, colour: str, n: int) -> bool:
    truths = (True, colour == "red", colour != "red", colour != "blue", n > 3)
    return truths[SELECTORS.index(selector)]


@given(st.lists(actions, max_size=40), st.integers(0, 1), st.sampled_from([1, 2, 256]))
def test_in_any_history_each_message_goes_to_one_matching_consumer_and_none_is_lost(
    history: list[tuple], shared: int, found_max: int
) -> None:
    with patch.object(limits, "SKIPPED_FOUND_MAX", found_max):
        play(history, shared)


def play(history: list[tuple], shared: int) -> None:
    world = World("destinations: [{match: '/queue/*', partition: all}]" if shared else "")
    producer = world.connect()
    consumers: list[tuple[Client, str | None, int, list[Frame]]] = []
    sent: list[str] = []
    colours: dict[str, str] = {}
    acked: list[str] = []
    refused: set[str] = set()

    def hear() -> None:
        world.settle()
        latest = []  # that each has heard now
        for client, selector, _, held in consumers:
            heard = client.messages()
            numbers = [int(frame.headers["n"]) for frame in heard]
            assert numbers == sorted(numbers)  # also of what came back
            latest.append(max(numbers, default=0))
            for frame in heard:
                assert wants(selector, frame.headers["colour"], int(frame.headers["n"]))
                if "redelivered" not in frame.headers and held:
                    fresh = [each for each in held if "redelivered" not in each.headers]
                    assert all(int(each.headers["n"]) < int(frame.headers["n"]) for each in fresh)
                held.append(frame)
        everywhere = [frame.body.decode() for *_, held in consumers for frame in held]
        assert len(set(everywhere)) == len(everywhere)
        assert not set(everywhere) & set(acked)
        waiting = set(sent) - set(acked) - set(everywhere) - refused
        for (_, selector, window, held), last in zip(consumers, latest, strict=True):
            wanted = [int(each) for each in waiting if wants(selector, colours[each], int(each))]
            assert len(held) >= window or not wanted  # nobody with credit waits for what it wants
            assert min(wanted, default=last) >= last  # nor gets a later one before it

    for action in history:
        if action[0] == "send":
            sent.append(str(len(sent)))
            colours[sent[-1]] = action[1]
            producer.publish("/queue/a", sent[-1], colour=action[1], n=len(sent) - 1)
        elif action[0] == "join" and len(consumers) < 4:
            client = world.connect()
            headers = {} if action[1] is None else {"selector": action[1]}
            client.subscribe("/queue/a", prefetch_count=action[2], **headers)
            consumers.append((client, action[1], action[2], []))
        elif consumers and action[0] != "join":
            client, _, _, held = consumers[action[1] % len(consumers)]
            if action[0] == "leave":
                del consumers[action[1] % len(consumers)]
                client.drop()
            elif held:
                frame = held.pop(0)
                client.ack(frame, action[0].upper())
                if action[0] == "ack":
                    acked.append(frame.body.decode())
                elif int(frame.headers.get("delivery-count", 1)) > 2:
                    refused.add(frame.body.decode())  # comes back after a while
        hear()
    for client, *_ in consumers:
        client.drop()
    last = world.connect()
    last.subscribe("/queue/a", prefetch_count=1_000)
    world.tick(600)
    assert sorted(last.bodies(), key=int) == sorted(set(sent) - set(acked), key=int)


def test_a_consumer_that_shares_its_window_gets_what_comes_after_it_has_acknowledged_all(world: World) -> None:
    client, other, sender = world.connect(), world.connect(), world.connect()
    client.subscribe("/queue/a", selector="colour = 'red'")
    send(sender, "red1")
    world.settle()
    (message,) = client.messages()
    send(sender, "red2")
    world.settle()
    other.subscribe("/queue/a", ack="auto")
    world.settle()
    assert other.bodies() == ["red2"]
    other.say("DISCONNECT", receipt="bye")
    world.settle()
    client.ack(message)
    world.settle()
    send(sender, "red3")
    assert take_all(world, client) == ["red3"]


@pytest.mark.parametrize("where", ["on disk", "in memory"])
def test_what_was_skipped_is_not_delivered_before_earlier_messages_that_came_back(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "on disk":
        monkeypatch.setattr(limits, "READ_CHUNK_BYTES", 1)  # one batch at a time
        world = World(tail_bytes_max=1)
    else:
        monkeypatch.setattr(selective, "AGAIN_MAX", 1)
        world = World()
    lost, client, sender = world.connect(), world.connect(), world.connect()
    client.subscribe("/queue/a", ack="client", prefetch_count=4)
    lost.subscribe("/queue/a", selector="colour = 'red'", prefetch_count=10)
    for batch in (["blue1", "blue2", "blue3", "blue4"], ["red1"], ["red2", "blue5"]):
        send(sender, *batch)
        world.settle()
    *_, last = client.messages()
    assert lost.bodies() == ["red1", "red2"]
    lost.drop()
    world.settle()
    client.ack(last)
    world.settle()
    assert client.bodies() == ["red1", "red2", "blue5"]


def test_what_comes_back_is_delivered_before_later_messages_that_were_found_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SKIPPED_FOUND_MAX", 2)
    lost, blue, red = (world.connect() for _ in range(3))
    lost.subscribe("/queue/a")
    blue.subscribe("/queue/a", selector="colour = 'blue'")
    red.subscribe("/queue/a", selector="colour = 'red'")
    send(red, "blue1", "blue2", "blue3", "blue4")
    world.settle()
    assert lost.bodies() == ["blue1"]
    lost.drop()
    assert take_all(world, blue) == ["blue2", "blue1", "blue3", "blue4"]
