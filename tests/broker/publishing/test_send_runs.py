"""SENDs with the same head that come together are sent as a run: nothing differs from sending each by itself."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.publishing import sending
from radiator.stomp.encoder import encode
from radiator.storage import partition
from tests.broker.harness import World

pytestmark = pytest.mark.usefixtures("both_speeds")

RULES = """
destinations:
  - match: /queue/memory
    store: memory
  - match: /queue/limited
    max_messages: 3
    on_full: drop_oldest
  - match: /topic/parts
    partitions: 3
    partition_by: header:key
  - match: /queue/ids
    dedup: {window: 1h}
  - match: "#"
"""
DESTINATIONS = [
    "/queue/a",
    "/queue/memory",
    "/queue/limited",
    "/queue/ids",
    "/topic/parts",
    "/topic/a",
    "/temp-queue/mine",
    "/radiator/nowhere",
]
MORE: list[dict[str, str]] = [
    {},
    {"event-time": "5"},
    {"transmit-time": "6"},
    {"durability": "fsync"},
    {"mandatory": "true"},
    {"key": "k"},
    {"dedup-id": "m"},
    {"delay": "1000"},
    {"transaction": "t"},
    {"event-time": "soon"},
]
bursts = st.lists(
    st.tuples(
        st.sampled_from([*DESTINATIONS[:2]] * 3 + DESTINATIONS),
        st.sampled_from([*MORE[:1]] * 5 + MORE),
        st.lists(st.tuples(st.booleans(), st.integers(0, 40)), min_size=1, max_size=12),  # a receipt? bytes of the body
        st.sampled_from(["", "", "turn", "clock back"]),
    ),
    min_size=1,
    max_size=6,
)


def frame(headers: list[tuple[str, str]], body: str) -> bytes:
    """A SEND without content-length: bodies of any length have the same head."""
    return encode("SEND", headers)[:-1] + body.encode() + b"\0"


def outcome(burst: list[tuple[str, dict[str, str], list[tuple[bool, int]], str]]) -> tuple[Any, ...]:
    """All that can be seen of what came of it: bytes sent, records stored, figures."""
    world = World(RULES)
    world.forgiving()
    consumer, producer = world.connect(), world.connect()
    consumer.subscribe("/queue/a,/queue/memory,/topic/>", ack="auto")
    producer.say("BEGIN", transaction="t")
    world.settle()
    data, number = b"", 0
    for destination, more, messages, then in burst:
        for asks, size in messages:
            number += 1
            headers = [("destination", destination), *more.items(), *([("receipt", f"r{number}")] if asks else [])]
            data += frame(headers, f"{number}:" + "x" * size)
        if then:
            producer.say_bytes(data)
            data = b""
            if then == "turn":
                world.settle()
            else:
                world.step(-1)
    producer.say_bytes(data)
    pending_bytes, held_bytes = world.broker.pending_bytes, producer.session.receipts.held_bytes
    world.settle()
    stored = {
        name: [
            (
                batch.base_offset,
                list(batch.receive_ns),
                batch.event_ns and list(batch.event_ns),
                batch.transmit_ns and list(batch.transmit_ns),
                [batch.names[each] for each in batch.destination_ids],
                batch.blocks,
                batch.bodies,
            )
            for batch in reversed(list(log.tail.newest_first()))
        ]
        for name, log in world.store.partitions.items()
    }
    figures = world.broker.stats.as_dict()
    return producer.raw, consumer.raw, pending_bytes, held_bytes, stored, figures


@pytest.mark.thorough
@given(bursts, st.sampled_from([3, 7, 65_536]), st.sampled_from([60, 300, 1 << 24]), st.sampled_from([1, 4, 256]))
def test_a_run_has_the_effect_of_its_messages_one_by_one(
    burst: list[tuple[str, dict[str, str], list[tuple[bool, int]], str]], records_max: int, bytes_max: int, run_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "RECORDS_MAX", records_max)
        patch.setattr(partition, "BYTES_MAX", bytes_max)
        patch.setattr(sending, "RUN_MAX", run_max)
        together = outcome(burst)
        patch.setattr(sending, "send_plain", lambda *_: 0)
        assert outcome(burst) == together


def runs_of(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all runs from now on."""
    lengths: list[int] = []
    same_head_run = sending.same_head_run

    def counting(*arguments: Any) -> tuple[list[bytes], list[bytes], int]:
        run = same_head_run(*arguments)
        lengths.append(len(run[0]))
        return run

    monkeypatch.setattr(sending, "same_head_run", counting)
    return lengths


def test_messages_of_one_head_are_sent_as_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "0")
    lengths = runs_of(world, monkeypatch)
    frames = [frame([("destination", "/queue/a"), ("receipt", str(n))], str(n)) for n in range(300)]
    client.say_bytes(b"".join(frames))
    assert lengths == [sending.RUN_MAX, 300 - 3 - sending.RUN_MAX], "the first of each is sent by itself"
    world.settle()
    assert client.receipts() == [str(number) for number in range(300)]


def test_a_run_ends_where_receipts_begin_or_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.connect()
    lengths = runs_of(world, monkeypatch)
    asks = [False, False, False, True, True, True, True, False]
    receipts = [[("receipt", str(number))] if each else [] for number, each in enumerate(asks)]
    client.say_bytes(b"".join(encode("SEND", [("destination", "/queue/a"), *each], b"x") for each in receipts))
    assert lengths == [1, 3]
    world.settle()
    assert client.receipts() == ["3", "4", "5", "6"]


def test_a_run_of_a_session_whose_rights_have_changed_is_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    first, second = world.connect(), world.connect()
    second.become(rights=copy(second.session.rights))
    data = encode("SEND", [("destination", "/queue/a")], b"x") * 3
    lengths = runs_of(world, monkeypatch)
    first.say_bytes(data)
    second.say_bytes(data)
    assert lengths == [1, 1]
    world.settle()
    assert world.broker.stats.messages_in == 6


def test_a_body_that_is_no_bytes_is_an_error_and_not_appended() -> None:
    world = World(RULES)
    client = world.connect()
    client.say_bytes(frame([("destination", "/queue/a")], "1"))
    world.settle()
    partition = world.store.partitions["/queue/a"]
    session = client.session
    for body in (5, -1, None):
        (sent,) = client.server.receive(frame([("destination", "/queue/a")], "1"))
        assert sent.head.memo is not None
        sent.body = body  # type: ignore[assignment]
        arguments = (1, world.broker.generation, session.rights, session.version, session.receipts, world.time.wall)
        with pytest.raises(TypeError):
            sending.append_plain([sent], 0, *arguments)
        assert partition.next_offset == 1


def test_a_message_that_cannot_be_appended_is_left_and_those_before_it_are_counted() -> None:
    world = World(RULES)
    client = world.connect()
    both = frame([("destination", "/queue/a")], "1") + frame([("destination", "/topic/a"), ("event-time", "5")], "1")
    client.say_bytes(both)
    world.settle()
    frames = client.server.receive(both)
    frames[1].head.memo.event_ns = 1 << 63
    session, before = client.session, world.broker.stats.messages_in
    assert sending.send_plain(world.broker, session, frames, 0, world.time) == 1
    assert world.broker.stats.messages_in == before + 1 and world.broker.pending_bytes > 0
