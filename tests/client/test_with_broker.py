"""The client against the real broker: what the two promise each other."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from radiator.client import Disconnected, ServerError, TimedOut, connect
from radiator.stomp.spec import VERSIONS
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
WAIT = 20.0


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_sends_receives_and_acknowledges(shared_broker: BrokerProcess, version: str) -> None:
    name = f"/queue/version-{version}"
    with connect(shared_broker.address, version=version) as connection:
        receipt = connection.send(name, b"\0\xff", {"tag-a": "b"})
        assert receipt is not None
        assert (receipt.offset, receipt.partition, receipt.delivered_to) == (0, name, 0)
        subscription = connection.subscribe(name)
        with pytest.raises(ZeroDivisionError), subscription.receive(WAIT) as message:
            raise ZeroDivisionError
        with subscription.receive(WAIT) as message:
            assert message is not None
            assert message.body == b"\0\xff"
            assert (message.offset, message.partition, message.destination) == (0, name, name)
            assert message.tags == {"a": "b"}
            assert message.redelivered
            assert message.delivery_count == 2
            assert message.receive_time is not None
            assert message.transmit_time is not None
            assert message.transmit_time <= message.receive_time
        assert subscription.fetch(0.1) is None


def test_an_unacknowledged_message_goes_to_the_next_when_its_holder_is_gone(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as second:
        with connect(shared_broker.address) as first:
            first.send("/queue/orphan", "x")
            held = first.subscribe("/queue/orphan").fetch(WAIT)
            assert held is not None
            waiting = second.subscribe("/queue/orphan")
            assert waiting.fetch(0.1) is None
        message = waiting.fetch(WAIT)
        assert message is not None
        assert message.id == held.id
        assert message.redelivered


def test_a_writer_that_expects_another_offset_learns_where_the_log_ends(shared_broker: BrokerProcess) -> None:
    name = "/topic/account.7"
    with connect(shared_broker.address, reconnect=True) as connection:
        connection.send(name, "opened", {"expected-offset": "0"})
        with pytest.raises(ServerError) as caught:
            connection.send(name, "withdrawn", {"expected-offset": "0"})
        assert (caught.value.code, caught.value.next_offset) == ("conflict", 1)
        connection.send(name, "withdrawn", {"expected-offset": "1"})


def test_the_window_is_one_unless_it_is_widened(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        connection.send_many([("/queue/window", str(number)) for number in range(5)])
        narrow = connection.subscribe("/queue/window")
        first = narrow.fetch(WAIT)
        assert first is not None
        assert narrow.fetch(0.1) is None
        narrow.close()
        wide = connection.subscribe("/queue/window", prefetch=3)
        assert [message.text for message in (wide.fetch(WAIT), wide.fetch(WAIT), wide.fetch(WAIT)) if message] == [
            "0", "1", "2"
        ]  # fmt: skip
        assert wide.fetch(0.1) is None


def test_history_then_live_every_offset_once(shared_broker: BrokerProcess) -> None:
    total = 3_000
    with connect(shared_broker.address) as publisher, connect(shared_broker.address) as reader:
        publisher.send_many([("/topic/join", str(number)) for number in range(1_000)])
        rest = [("/topic/join", str(number)) for number in range(1_000, total)]
        thread = threading.Thread(target=publisher.send_many, args=(rest,))
        thread.start()
        subscription = reader.subscribe("/topic/join", start_position="first")
        messages = [subscription.fetch(WAIT) for _ in range(total)]
        thread.join(60)
        assert [message.offset for message in messages if message] == list(range(total))
        assert [int(message.text) for message in messages if message] == list(range(total))


def test_a_bounded_replay_ends(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        connection.send_many([("/topic/bounded", str(number)) for number in range(10)])
        several = connection.subscribe("/topic/bounded", start_position="offset:2", stop_position="offset:4")
        assert [message.text for message in several] == ["2", "3", "4"]
        last = connection.subscribe("/topic/bounded", start_position="last:3", stop_position="end")
        assert [message.text for message in last] == ["7", "8", "9"]
        look = connection.subscribe("/topic/nothing-yet", start_position="first", stop_position="end")
        assert list(look) == []


def test_a_pattern_meets_destinations_created_later(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        subscription = connection.subscribe(["/topic/born.*", "/topic/other"])
        receipt = connection.send("/topic/born.later", "a")
        assert receipt is not None
        assert receipt.delivered_to == 1
        connection.send("/topic/other", "b")
        connection.send("/topic/born.too.deep", "c")
        found = [subscription.fetch(WAIT), subscription.fetch(WAIT)]
        assert {message.destination for message in found if message} == {"/topic/born.later", "/topic/other"}
        assert subscription.fetch(0.1) is None


def test_a_transaction_is_seen_at_commit_or_never(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        subscription = connection.subscribe("/topic/atomic")
        with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:
            transaction.send("/topic/atomic", "never")
            raise ZeroDivisionError
        with connection.transaction() as transaction:
            transaction.send("/topic/atomic", "one")
            assert subscription.fetch(0.1) is None
            transaction.send("/topic/atomic", "two")
        found = [subscription.fetch(WAIT), subscription.fetch(WAIT)]
        assert [message.text for message in found if message] == ["one", "two"]


def test_many_requests_at_once_get_their_own_replies(shared_broker: BrokerProcess) -> None:
    replies: dict[int, str] = {}
    with connect(shared_broker.address) as client, connect(shared_broker.address) as service:
        questions = service.subscribe("/queue/double", prefetch=100)
        worker = threading.Thread(
            target=questions.listen, args=(lambda m: m.reply(str(int(m.text) * 2)),), kwargs={"count": 50}
        )
        worker.start()

        def ask(number: int) -> None:
            replies[number] = client.request("/queue/double", str(number), timeout=WAIT).text

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in (*threads, worker):
            thread.join(60)
    assert replies == {number: str(number * 2) for number in range(50)}


def test_a_missing_answer_is_a_timeout(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        with pytest.raises(TimeoutError, match="no reply"):
            connection.request("/queue/nobody", b"?", timeout=0.1)
        assert connection.send("/queue/still-good") is not None


def test_what_the_broker_refuses_is_named(shared_broker: BrokerProcess) -> None:
    for action, code in (
        (lambda c: c.send("/topic/*", "x"), "bad-destination"),
        (lambda c: c.subscribe("/topic/a", start_position="yesterday"), "bad-position"),
        (lambda c: c.send("/topic/a", b"x" * 5_000_000), "too-large"),
        (lambda c: c.send("/topic/a", "x", {"event-time": "noon"}), "bad-time"),
    ):
        with connect(shared_broker.address) as connection:
            with pytest.raises(ServerError) as caught:
                action(connection)
            assert caught.value.code == code


def test_heart_beats_keep_an_idle_connection(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address, heart_beat=(50, 0)) as connection:
        beats = connection.link._beats
        before = beats.last_sent_ns
        waiting = connection.subscribe("/topic/idle")
        assert waiting.fetch(0.5) is None
        assert beats.last_sent_ns > before
        assert connection.send("/topic/idle") is not None


def test_a_killed_broker_is_noticed_and_keeps_what_it_receipted(broker: BrokerProcess) -> None:
    with connect(broker.address) as connection:
        subscription = connection.subscribe("/queue/a")
        receipts = connection.send_many([("/queue/a", str(number)) for number in range(100)])
        assert len(receipts) == 100
        broker.kill()
        with pytest.raises(Disconnected):
            while subscription.fetch(WAIT) is not None:
                pass
    broker.start()
    with connect(broker.address) as connection:
        found = connection.subscribe("/queue/a", start_position="first", stop_position="end")
        assert [int(message.text) for message in found] == list(range(100))


GEVENT = """
from gevent import monkey; monkey.patch_all()
import gevent, sys
from radiator.client import connect
with connect(sys.argv[1], heart_beat=(1000, 1000)) as connection:
    subscription = connection.subscribe("/topic/green", ack="auto")
    found = []
    reader = gevent.spawn(lambda: [found.append(subscription.fetch(20).text) for _ in range(100)])
    senders = [gevent.spawn(connection.send, "/topic/green", str(number)) for number in range(100)]
    gevent.joinall([reader, *senders], timeout=30, raise_error=True)
    assert sorted(map(int, found)) == list(range(100)), found
    assert [s.value.partition for s in senders] == ["/topic/green"] * 100
print("green")
"""


def test_it_works_under_gevents_monkey_patch(shared_broker: BrokerProcess) -> None:
    command = [sys.executable, "-c", GEVENT, shared_broker.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "green\n"), done.stderr


def test_the_client_itself_imports_no_gevent() -> None:
    code = "import sys, radiator.client; assert not {'gevent', 'click', 'rich', 'msgspec'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def test_the_newest_message_alone_is_received_and_older_ones_are_done_with(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        connection.send_many([("/queue/latest", str(number)) for number in range(5)])
        latest = connection.subscribe("/queue/latest")
        message = latest.receive_latest(WAIT)
        assert message is not None
        assert message.text == "4"
        assert not message.settled
        latest.close()
        again = connection.subscribe("/queue/latest")
        message = again.receive_latest(WAIT)
        assert message is not None
        assert (message.text, message.delivery_count) == ("4", 2)
        message.ack()
        assert again.receive_latest(0.1) is None


def test_a_request_that_was_not_taken_in_time_is_never_delivered(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address) as connection:
        with pytest.raises(TimedOut):
            connection.request("/queue/unanswered", "too late", timeout=0.05)
        connection.send("/queue/unanswered", "in time")
        message = connection.subscribe("/queue/unanswered").fetch(WAIT)
        assert message is not None
        assert message.text == "in time"
