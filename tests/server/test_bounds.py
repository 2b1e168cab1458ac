"""What one peer can cost: a slow reader, one that does not read at all, half frames, large frames, too many of them."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire, rss_kib

StartBroker = Callable[..., BrokerProcess]
T, Q = "/topic/a", "/queue/a"
MIB = 1024  # in KiB

# Memory of a broker may grow by this much whatever peers do; what they are sent in these tests is three times as much.
GROWTH_KIB_MAX = 56 * MIB
BATCHES, BATCH = 160, 32  # of bodies of 32 KiB: 160 MiB
SMALL_TAIL = "limits: {tail: 1MiB}\ndefaults: {fsync: never}"


@pytest.mark.thorough
def test_a_subscriber_that_does_not_read_costs_no_memory_and_delays_no_other(start_broker: StartBroker) -> None:
    broker = start_broker(SMALL_TAIL)
    body = b"x" * 32_768
    with Wire(broker, receive_bytes=4_096) as stuck, Wire(broker) as quick, Wire(broker) as sender:
        for wire in (stuck, quick, sender):
            wire.open()
        for wire in (stuck, quick):
            wire.say("SUBSCRIBE", destination=T, id="0", receipt="s")
            wire.hear("RECEIPT")
        before = rss_kib(broker)
        for _ in range(BATCHES):
            for _ in range(BATCH):
                sender.say("SEND", body, destination=T, receipt="r")
            sender.hear_many("RECEIPT", BATCH)
            assert {len(frame.body) for frame in quick.hear_many("MESSAGE", BATCH)} == {32_768}
        assert rss_kib(broker) - before < GROWTH_KIB_MAX
        found = [int(stuck.hear("MESSAGE").headers["offset"]) for _ in range(BATCHES * BATCH)]
        assert found == list(range(BATCHES * BATCH))  # what it had not read was in the log


def test_a_client_that_does_not_read_its_receipts_is_not_read_any_more(start_broker: StartBroker) -> None:
    broker = start_broker(SMALL_TAIL)
    with Wire(broker, receive_bytes=4_096) as wire, Wire(broker) as other:
        wire.open()
        other.open()
        before = rss_kib(broker)
        frame = b"SEND\ndestination:/topic/a\nreceipt:%0900d\n\n\0"
        wire.socket.setblocking(False)
        sent, data = 0, b""
        while sent < 200_000:  # of these receipts 180 MiB
            data = data or b"".join(frame % number for number in range(sent, sent + 50))
            if not select.select([], [wire.socket], [], 1.0)[1]:
                break  # the socket is full: the broker does not read
            taken = wire.socket.send(data)
            data = data[taken:]
            sent += 0 if data else 50
        assert sent < 200_000, "the broker read on, although nobody took its answers"
        assert rss_kib(broker) - before < GROWTH_KIB_MAX
        other.barrier()  # the others are served
        wire.socket.settimeout(30)
        heard = 0
        while heard < sent:  # now it reads, and gets all it is owed
            wire.more()
            heard += len(wire.inbox)
            wire.inbox.clear()
        assert broker.running


@pytest.mark.thorough
def test_answers_that_need_no_disk_do_not_pile_up_either(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker, receive_bytes=4_096) as wire, Wire(broker) as other:
        wire.open()
        other.open()
        before = rss_kib(broker)
        frames = b"BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\nreceipt:%04000d\n\n\0"
        wire.socket.setblocking(False)
        sent, data = 0, b""
        while sent < 40_000:  # of these receipts 160 MB
            data = data or b"".join(frames % number for number in range(sent, sent + 10))
            if not select.select([], [wire.socket], [], 1.0)[1]:
                break
            data = data[wire.socket.send(data) :]
            sent += 0 if data else 10
        assert sent < 40_000, "the broker read on, although nobody took its answers"
        assert rss_kib(broker) - before < GROWTH_KIB_MAX
        other.barrier()
        wire.socket.settimeout(30)
        heard: list[int] = []
        while len(heard) < sent:
            assert wire.more()
            heard += [int(frame.headers["receipt-id"]) for frame in wire.inbox]
            wire.inbox.clear()
        assert heard[:sent] == list(range(sent))  # now that it reads, it is read on, and nothing is left out
        assert broker.running


@pytest.mark.thorough
def test_messages_to_a_slow_queue_consumer_wait_in_the_log(start_broker: StartBroker) -> None:
    broker = start_broker(SMALL_TAIL)
    with Wire(broker, receive_bytes=4_096) as slow, Wire(broker) as sender:
        slow.open()
        sender.open()
        slow.say("SUBSCRIBE", destination=Q, id="0", ack="auto")
        before = rss_kib(broker)
        for _ in range(BATCHES):
            for _ in range(BATCH):
                sender.say("SEND", b"x" * 32_768, destination=Q, receipt="r")
            sender.hear_many("RECEIPT", BATCH)
        assert rss_kib(broker) - before < GROWTH_KIB_MAX
        slow.close()
    with Wire(broker) as last:
        last.open()
        last.say("SUBSCRIBE", destination=Q, id="0", ack="client", prefetch_count=BATCHES * BATCH)
        seen = []
        while not seen or seen[-1] < BATCHES * BATCH - 1:
            seen.append(int(last.hear("MESSAGE").headers["offset"]))
        assert seen == list(range(seen[0], BATCHES * BATCH))  # what was not written to the first is all there, in order
        assert seen[0] < BATCHES * BATCH // 2


def test_a_frame_may_come_byte_by_byte_and_several_at_once(shared_broker: BrokerProcess) -> None:
    conversation = (
        b"CONNECT\naccept-version:1.2\nhost:x\n\n\0\n\n"
        b"SUBSCRIBE\nid:0\ndestination:/topic/bytes\nreceipt:s\n\n\0"
        b"SEND\ndestination:/topic/bytes\ncontent-length:4\nreceipt:1\n\na\0b\0\0"
        b"SEND\ndestination:/topic/bytes\nreceipt:2\n\nlast\0"
    )
    for cut in (1, 2, 3, 7, 50, len(conversation)):
        with Wire(shared_broker) as wire:
            wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(conversation), cut):
                wire.send(conversation[start : start + cut])
            assert [wire.hear("MESSAGE").body for _ in range(2)] == [b"a\0b\0", b"last"]
            assert [frame.headers["receipt-id"] for frame in wire.hear_many("RECEIPT", 3)] == ["s", "1", "2"]


def test_half_a_frame_delays_no_other_client_and_is_freed_with_its_connection(shared_broker: BrokerProcess) -> None:
    halves = [Wire(shared_broker).open() for _ in range(20)]
    for wire in halves:
        wire.send(b"SEND\ndestination:/topic/half\ncontent-length:1000000\n\n" + b"x" * 500_000)
    with Wire(shared_broker) as other:
        other.open().say("SUBSCRIBE", destination="/topic/half", id="0", start_position="first", receipt="s")
        other.hear("RECEIPT")
        other.barrier()
        for wire in halves:
            wire.close()
        other.barrier()
        assert not other.inbox


def test_a_body_over_the_limit_is_refused_while_it_is_still_being_sent(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {message: 1MiB}")
    before = rss_kib(broker)
    with Wire(broker) as wire:
        wire.open()
        wire.send(b"SEND\ndestination:/topic/a\nreceipt:r\ncontent-length:100000000\n\n")
        try:
            for _ in range(100):
                wire.send(b"x" * 100_000)
        except (ConnectionResetError, BrokenPipeError):
            pass  # the broker has given up listening
        frames = wire.rest()
    assert [frame.command for frame in frames] == ["ERROR"]
    assert frames[0].headers["error-code"] == "too-large"
    assert b"1048576" in frames[0].body
    assert rss_kib(broker) - before < 8 * MIB


def test_a_body_without_a_length_and_without_an_end_is_refused_too(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {message: 1MiB}")
    before = rss_kib(broker)
    with Wire(broker) as wire:
        wire.open()
        wire.send(b"SEND\ndestination:/topic/a\n\n")
        try:
            for _ in range(300):
                wire.send(b"x" * 100_000)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert [frame.headers["error-code"] for frame in wire.rest()] == ["too-large"]
    assert rss_kib(broker) - before < 8 * MIB


def test_headers_without_an_end_are_refused(shared_broker: BrokerProcess) -> None:
    with Wire(shared_broker) as wire:
        wire.open()
        try:
            for number in range(200):
                wire.send(b"SEND\n" if not number else b"header-%d:%b\n" % (number, b"x" * 1_000))
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert [frame.headers["error-code"] for frame in wire.rest()] == ["too-large"]


def test_one_connection_too_many_gets_an_error(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {connections: 3}")
    wires = [Wire(broker).open() for _ in range(3)]
    for _ in range(5):
        with Wire(broker) as one_more:
            one_more.send(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")  # already under way when it is turned away
            frames = one_more.rest()
            assert [frame.headers["error-code"] for frame in frames] == ["too-many"]
            assert b"limits.connections" in frames[0].body
    for wire in wires:
        wire.barrier()
    wires[0].say("DISCONNECT", receipt="bye")
    assert wires[0].rest()[-1].headers["receipt-id"] == "bye"
    wires[0].close()
    connected = False
    while not connected:  # the broker hears of the close when its loop comes round to it
        with Wire(broker) as again:
            again.say("CONNECT", accept_version="1.2", host="x")
            connected = any(frame.command == "CONNECTED" for frame in [again.more() and again.inbox[0]])


@pytest.mark.parametrize(
    "garbage", [b"\0" * 1_000, b"\xff" * 5_000, b"SEND\n\n" * 50, b"A" * 100_000, b"\n" * 100_000 + b"x:\n\0"]
)
def test_garbage_ends_only_its_own_connection(shared_broker: BrokerProcess, garbage: bytes) -> None:
    with Wire(shared_broker) as good, Wire(shared_broker) as early, Wire(shared_broker) as late:
        good.open()
        for wire in (early, late.open()):
            try:
                wire.send(garbage)
                wire.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            assert all(frame.command == "ERROR" for frame in wire.rest())
        good.barrier()
