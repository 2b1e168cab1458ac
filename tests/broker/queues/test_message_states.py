"""The life of a message in a queue is a table, and nothing else happens to a message."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.broker.queues import queue as queue_module
from radiator.broker.queues.message_states import TRANSITIONS, Event, State
from radiator.broker.queues.messages import QueueMessages
from radiator.broker.queues.queue import QueueSource
from radiator.clock import NS_PER_SECOND, WallNs
from tests.broker.harness import World

Q = "/queue/a"
DOCS = Path(__file__).parents[3] / "docs" / "architecture.md"
LIMITED = "destinations: [{match: /queue/a, max_messages: 10}]"  # so the backlog is counted
BURIES = """
destinations:
  - {match: /queue/a, dead_letter: /queue/dead}
  - {match: /queue/dead, max_messages: 1, on_full: reject}
"""


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_event_is_a_method() -> None:
    assert [event.value for event in Event if not callable(getattr(QueueMessages, event.value, None))] == []


def test_the_documentation_has_the_table() -> None:
    rows = ["| event | state before | state after |", "|---|---|---|"]
    for event in Event:
        before: dict[State, list[str]] = {}
        for state in State:
            if event in TRANSITIONS[state]:
                before.setdefault(TRANSITIONS[state][event], []).append(state.value)
        rows += [f"| `{event.value}` | {', '.join(states)} | {to.value} |" for to, states in before.items()]
    assert "\n".join(rows) in DOCS.read_text("utf-8")


def test_the_documentation_names_every_state() -> None:
    text = DOCS.read_text("utf-8")
    assert [state.value for state in State if f"| {state.value} | " not in text] == []


def test_only_the_class_with_the_states_changes_them() -> None:
    """``QueueSource`` inherits the attributes, and its module leaves them alone. Counts are no states."""
    states = set(QueueMessages.__slots__) - {"waiting", "timeouts", "_timing"}
    changed = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(Path(queue_module.__file__).read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in states and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    assert changed == []


# --- the queue --------------------------------------------------------------------------------------------------------


def fresh() -> World:
    world = World()
    world.connect().publish(Q, "m")
    world.settle()
    return world


def in_flight(config: str = "") -> World:
    world = World(config)
    client = world.connect()
    client.subscribe(Q)
    client.publish(Q, "m")
    world.settle()
    assert client.bodies() == ["m"]
    return world


def returned() -> World:
    world = in_flight()
    world.clients[0].drop()
    world.settle()
    return world


def skipped() -> World:
    world = World()
    client = world.connect()
    client.subscribe(Q, selector="colour = 'red'")
    client.publish(Q, "m", colour="blue")
    world.settle()
    return world


def deferred() -> World:
    world = World()
    client = world.connect()
    client.subscribe(Q)
    client.publish(Q, "m", delay="1h")
    world.settle()
    return world


def buried() -> World:
    """A dead letter whose destination is full."""
    world = World(BURIES)
    client = world.connect()
    client.publish("/queue/dead", "full")
    client.subscribe(Q)
    client.publish(Q, "m")
    world.settle()
    (message,) = client.messages()
    client.nack(message, requeue="false")
    world.settle()
    return world


def dropped() -> World:
    world = World("destinations: [{match: /queue/a, max_messages: 1, on_full: drop_oldest}]")
    world.connect().publish(Q, "m", "newer")
    return world


def settled() -> World:
    """A message that its consumer has, and the log has lost: its answer is still to come."""
    world = in_flight()
    source_of(world).lose(0, 1)
    return world


MADE: dict[State, Callable[[], World]] = {
    State.FRESH: fresh,
    State.IN_FLIGHT: in_flight,
    State.RETURNED: returned,
    State.SKIPPED: skipped,
    State.DEFERRED: deferred,
    State.BURIED: buried,
    State.DROPPED: dropped,
    State.SETTLED: settled,
}

HAPPENS: dict[Event, Callable[[QueueSource], object]] = {
    Event.ADVANCE: lambda source: source.advance(max(1, source.next_offset)),
    Event.REDELIVER: lambda source: source.redeliver(0),
    Event.GIVE_BACK: lambda source: source.give_back([0]),
    Event.DEFER: lambda source: source.defer(0, WallNs(source.queue.timing.now.wall + NS_PER_SECOND)),
    Event.PAUSE: lambda source: source.pause(0, NS_PER_SECOND),
    Event.COME_DUE: lambda source: source.come_due([0]),
    Event.SKIP_OVER: lambda source: source.skip_over(0),
    Event.BURY: lambda source: source.bury([0]),
    Event.SETTLE: lambda source: source.settle([0]),
    Event.LOSE: lambda source: source.lose(0, 1),
    Event.DROP: lambda source: source.drop(),
    Event.STORED: lambda source: source.stored(1),
    Event.TAKE_BACK: lambda source: source.take_back(source.feed.partition.high_watermark),
}

BY_POSITION = {Event.ADVANCE, Event.DROP, Event.STORED, Event.TAKE_BACK}  # they leave messages in other states alone


def source_of(world: World) -> QueueSource:
    queue = world.broker.destinations[Q].queue
    assert queue is not None
    (source,) = queue.sources
    return source


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_an_event_moves_a_message_of_a_queue_as_the_table_says(state: State, event: Event) -> None:
    source = source_of(MADE[state]())
    assert source.state_of(0) is state
    if event in TRANSITIONS[state]:
        expected = TRANSITIONS[state][event]
        HAPPENS[event](source)
        if event is Event.SKIP_OVER or event is Event.DROP:
            source.advance(max(1, source.next_offset))
    else:
        expected = state
        if event in BY_POSITION:
            HAPPENS[event](source)
        else:
            with pytest.raises(RuntimeError, match=f"{state.value}.*{event.value}"):
                HAPPENS[event](source)
    assert source.state_of(0) is expected
    if expected is not State.FRESH:
        source.advance(max(1, source.next_offset))  # what follows an event of a fresh message
    assert source.check_states(()) == (expected is State.IN_FLIGHT)


@pytest.mark.parametrize("event", sorted(set(Event) - BY_POSITION - {Event.SETTLE, Event.LOSE}, key=str))
def test_an_event_that_happens_twice_at_once_is_an_error(event: Event) -> None:
    """A message that is in two states would be delivered twice."""
    state = next(each for each in State if TRANSITIONS[each].get(event) not in (None, State.SETTLED))
    source = source_of(MADE[state]())
    HAPPENS[event](source)
    with pytest.raises(RuntimeError):
        HAPPENS[event](source)
    source.advance(max(1, source.next_offset))
    assert source.check_states(()) == (TRANSITIONS[state][event] is State.IN_FLIGHT)


@pytest.mark.parametrize("answer", ["give_back", "bury", "pause"])
def test_a_message_that_is_lost_in_flight_is_counted_once_when_it_comes_back(answer: str) -> None:
    source = source_of(in_flight(LIMITED))
    source.lose(0, 1)
    assert source.queue.gap == 0 and source.backlog == 0
    HAPPENS[Event(answer)](source)
    assert source.queue.gap == 1 and source.backlog == 0 and source.available == source.burying == 0
    source.check_states(())


def test_a_message_that_is_lost_in_flight_and_acknowledged_is_not_counted_as_lost() -> None:
    world = World(LIMITED)
    client = world.connect()
    client.subscribe(Q)
    client.publish(Q, "m", "n")
    world.settle()
    (message,) = client.messages()
    source = source_of(world)
    source.lose(0, 1)
    client.ack(message)
    world.settle()
    assert source.queue.gap == 0 and source.backlog == 1 and client.bodies() == ["n"]


def test_a_check_finds_a_message_in_two_states() -> None:
    source = source_of(returned())
    source.returned.append(0)
    with pytest.raises(AssertionError):
        source.check_states(())


def test_a_check_finds_a_message_that_two_consumers_hold() -> None:
    source = source_of(in_flight())
    assert source.check_states([0]) == 0
    with pytest.raises(AssertionError):
        source.check_states([0, 0])
    source.settle([0])
    with pytest.raises(AssertionError):
        source.check_states([0])


def test_a_check_finds_a_message_that_was_settled_twice() -> None:
    source = source_of(in_flight())
    source.settle([0])
    source.flush()
    source.check_states(())
    source.settle([0])
    with pytest.raises(AssertionError):
        source.check_states(())
