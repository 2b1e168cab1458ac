"""Clients that reconnect, against real brokers that are killed, drained or cut off."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.client import (
    ClientError,
    Connection,
    Disconnected,
    Reconnect,
    ServerError,
    StaleDelivery,
    Subscription,
    connect,
)
from tests.client.chaos import CuttingProxy, killing
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
WAIT_SECONDS = 60.0
PATIENT = Reconnect(delay=0.02, delay_max=0.2, timeout=60.0)


def stored(address: str, destination: str) -> list[bytes]:
    with connect(address) as connection:
        return [each.body for each in connection.subscribe(destination, start_position="first", stop_position="end")]


class Collector(threading.Thread):
    """Reads a subscription until it has ``count`` different bodies; ``offsets`` and ``bodies`` are in order."""

    def __init__(self, subscription: Subscription, count: int) -> None:
        super().__init__(daemon=True)
        self.offsets: list[int | None] = []
        self.bodies: list[bytes] = []
        self.error: BaseException | None = None
        self._subscription = subscription
        self._count = count
        self.start()

    def run(self) -> None:
        seen: set[bytes] = set()
        try:
            while len(seen) < self._count:
                message = self._subscription.fetch(WAIT_SECONDS)
                if message is None:
                    raise AssertionError(f"{len(seen)} of {self._count} messages came")
                seen.add(message.body)
                self.bodies.append(message.body)
                self.offsets.append(message.offset)
                with contextlib.suppress(StaleDelivery):
                    message.ack()
        except BaseException as error:
            self.error = error


@pytest.mark.thorough
def test_a_broker_that_is_killed_again_and_again_stores_each_message_once_and_consumers_miss_none(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    sent = 0
    with connect(broker.address, reconnect=PATIENT) as producer, connect(broker.address, reconnect=PATIENT) as consumer:
        replay = consumer.subscribe("/topic/killed", start_position="first")
        queue = consumer.subscribe("/queue/killed", prefetch=20)
        durable = consumer.subscribe(
            "/topic/killed", ack="client-individual", headers={"subscription-name": "killed"}, prefetch=20
        )
        bodies: list[bytes] = []
        with killing(broker, 6, 0.7) as killed_enough:
            while not killed_enough.is_set():
                chunk = [b"%d" % number for number in range(sent, sent + 50)]
                for destination in ("/topic/killed", "/queue/killed"):
                    producer.send_many(
                        [(destination, body, {"dedup-id": body.decode()}) for body in chunk], timeout=WAIT_SECONDS
                    )
                sent += 50
                bodies += chunk
        collectors = [Collector(replay, sent), Collector(queue, sent), Collector(durable, sent)]
        for collector in collectors:
            collector.join(WAIT_SECONDS)
            assert collector.error is None
        assert collectors[0].offsets == list(range(sent))
        assert collectors[0].bodies == bodies
        assert set(collectors[1].bodies) == set(collectors[2].bodies) == set(bodies)
    assert stored(broker.address, "/topic/killed") == bodies


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_connections_that_are_cut_at_random_bytes_lose_and_repeat_nothing(
    seed: int, shared_broker: BrokerProcess
) -> None:
    proxy = CuttingProxy(shared_broker.port, seed, 6_000)
    topic, queue = f"/topic/cut{seed}", f"/queue/cut{seed}"
    bodies = [b"%d" % number for number in range(400)]
    with (
        connect(proxy.address, reconnect=PATIENT) as producer,
        connect(proxy.address, reconnect=PATIENT) as consumer,
    ):
        following = Collector(consumer.subscribe(topic, start_position="first"), len(bodies))
        working = Collector(consumer.subscribe(queue, prefetch=10), len(bodies))
        for begin in range(0, len(bodies), 20):
            for destination in (topic, queue):
                producer.send_many(
                    [(destination, body, {"dedup-id": body.decode()}) for body in bodies[begin : begin + 20]],
                    timeout=WAIT_SECONDS,
                )
        for collector in (following, working):
            collector.join(WAIT_SECONDS)
            assert collector.error is None
        proxy.calm = True
    assert proxy.cuts > 5
    assert following.bodies == bodies
    assert following.offsets == list(range(len(bodies)))
    assert set(working.bodies) == set(bodies)
    assert stored(shared_broker.address, topic) == bodies
    proxy.close()


@pytest.mark.thorough
def test_clients_of_a_broker_that_stops_go_on_with_the_other_one(
    start_broker: Callable[..., BrokerProcess], shared_broker: BrokerProcess
) -> None:
    first = start_broker()
    with connect(f"{first.address},{shared_broker.address}", reconnect=PATIENT) as connection:
        subscription = connection.subscribe("/topic/moved")
        connection.send("/topic/moved", b"one")
        assert first.stop() == 0
        connection.send("/topic/moved", b"two", timeout=WAIT_SECONDS)
        assert [subscription.fetch(WAIT_SECONDS).body for _ in range(2)] == [b"one", b"two"]  # type: ignore[union-attr]
        assert str(connection.address) == shared_broker.address


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_many_threads_share_a_connection_that_is_cut_again_and_again(seed: int, shared_broker: BrokerProcess) -> None:
    proxy = CuttingProxy(shared_broker.port, seed, 20_000)
    problems: list[BaseException] = []
    bodies = [b"%d" % number for number in range(100)]
    queues = [f"/queue/threads{seed}-{number}" for number in range(5)]

    def guarded(work: Callable[[str], None], queue: str) -> threading.Thread:
        def run() -> None:
            try:
                work(queue)
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with connect(proxy.address, reconnect=PATIENT, heart_beat=(100, 100)) as connection:

        def send(queue: str) -> None:
            for body in bodies:
                identity = {"dedup-id": f"{queue}-{body.decode()}"}
                try:
                    with connection.transaction() as transaction:
                        transaction.send(queue, body, identity)
                except Disconnected:
                    connection.send(queue, body, identity, timeout=WAIT_SECONDS)

        def receive(queue: str) -> None:
            seen: set[bytes] = set()
            subscription = connection.subscribe(queue, prefetch=5)
            while len(seen) < len(bodies):
                message = subscription.fetch(WAIT_SECONDS)
                assert message is not None
                seen.add(message.body)
                with contextlib.suppress(StaleDelivery):
                    message.ack(receipt=len(seen) % 2 == 0)

        threads = [guarded(work, queue) for queue in queues for work in (send, receive)]
        for thread in threads:
            thread.join(WAIT_SECONDS)
        proxy.calm = True
        assert problems == []
        assert not connection.link.session.expects_receipts
    assert proxy.cuts > 5
    for queue in queues:
        assert sorted(stored(shared_broker.address, queue), key=int) == bodies
    proxy.close()


UNDER_GEVENT = """
from gevent import monkey; monkey.patch_all()
import os, sys
from radiator.client import Disconnected, Reconnect, connect
connection = connect(sys.argv[1], reconnect=Reconnect(delay=0.01))
subscription = connection.subscribe("/topic/green-again", start_position="first")
child = os.fork()
if child == 0:
    connection.send("/topic/green-again", "child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert subscription.fetch(20).text == "child"
with connection.producer() as producer:
    for number in range(300):
        producer.send("/topic/green-again", str(number))
        if number % 100 == 50:
            connection.link._break(Disconnected("the test"))
found = [int(subscription.fetch(20).text) for _ in range(300)]
assert found == list(range(300)), found
connection.close()
print("done")
"""


@pytest.mark.thorough
def test_it_reconnects_under_gevents_monkey_patch(shared_broker: BrokerProcess) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_GEVENT, shared_broker.address],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def break_connection(connection: Connection) -> None:
    """Lose the connection, and wait until the client has a new one."""
    link = connection.link
    generation = link.session.generation
    link._break(Disconnected("the test ended this connection"))
    with link.lock:
        assert link._ready.wait_for(lambda: link.session.generation > generation and link._writable, WAIT_SECONDS)


def test_a_replay_with_a_stop_and_a_browser_end_after_a_lost_connection(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address, reconnect=PATIENT) as connection:
        connection.send_many([("/topic/stop", b"%d" % number) for number in range(10)])
        connection.send_many([("/queue/browsed", b"%d" % number) for number in range(10)])
        replay = connection.subscribe("/topic/stop", start_position="first", stop_position="offset:9", ack="client")
        late = connection.subscribe("/topic/stop", start_position="offset:7", stop_position="offset:9")
        assert [message.offset for message in late] == [7, 8, 9]
        browser = connection.subscribe("/queue/browsed", browser=True)
        first = replay.fetch(WAIT_SECONDS)
        assert first is not None
        break_connection(connection)
        first.ack()  # of a replay: nothing comes again
        assert [message.offset for message in replay] == list(range(1, 10))
        assert [message.offset for message in browser] == list(range(10))
        break_connection(connection)
        assert replay.fetch(0) is None


def test_a_durable_subscription_and_a_group_go_on_where_they_were(shared_broker: BrokerProcess) -> None:
    with connect(shared_broker.address, reconnect=PATIENT) as connection:
        named = {
            name: connection.subscribe("/topic/named", ack="client-individual", headers={name: "n1"}, prefetch=3)
            for name in ("subscription-name", "group")
        }
        connection.send_many([("/topic/named", b"%d" % number) for number in range(6)])
        for subscription in named.values():
            message = subscription.fetch(WAIT_SECONDS)
            assert message is not None
            message.ack(receipt=True)
            assert subscription.fetch(WAIT_SECONDS) is not None
        break_connection(connection)
        connection.send("/topic/named", b"6")
        for subscription in named.values():
            found = []
            while len(found) < 6:
                with subscription.receive(WAIT_SECONDS) as message:
                    assert message is not None
                    found.append((int(message.body), message.redelivered))
            assert [body for body, _ in found] == list(range(1, 7))
            assert found[0][1]


@pytest.mark.thorough
def test_a_replay_of_a_memory_topic_ends_with_an_error_if_the_broker_restarts(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("destinations:\n  - {match: '/topic/memory', store: memory}\n")
    with connect(broker.address, reconnect=PATIENT) as connection:
        connection.send_many([("/topic/memory", b"%d" % number) for number in range(3)])
        replay = connection.subscribe("/topic/memory", start_position="first")
        assert [replay.fetch(WAIT_SECONDS).offset for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
        broker.kill()
        broker.start()
        with pytest.raises(ServerError) as caught:
            replay.fetch(WAIT_SECONDS)
        assert caught.value.code == "bad-position"
        assert connection.send("/topic/memory", b"again", timeout=WAIT_SECONDS) is not None


@pytest.mark.thorough
def test_fifty_forked_children_store_their_messages_once_each(shared_broker: BrokerProcess) -> None:
    children, messages = 50, 50
    with connect(shared_broker.address, reconnect=PATIENT) as connection:
        connection.send("/queue/forked", b"parent")
        pids = []
        for child in range(children):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    for number in range(messages):
                        connection.send("/queue/forked", b"%d-%d" % (child, number), timeout=WAIT_SECONDS)
                    connection.close()
                    code = 0
                except ClientError as error:
                    print(error, flush=True)
                finally:
                    os._exit(code)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * children
        connection.send("/queue/forked", b"parent again")
    expected = {b"%d-%d" % (child, number) for child in range(children) for number in range(messages)}
    found = stored(shared_broker.address, "/queue/forked")
    assert len(found) == children * messages + 2
    assert set(found) == expected | {b"parent", b"parent again"}
