"""kombu over a real broker: what AMQP's users expect of queues and exchanges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

kombu = pytest.importorskip("kombu")

import radiator.kombu  # noqa: E402, F401 - makes the transport known
from radiator.client import ClientError, Disconnected, ServerError, connect  # noqa: E402
from radiator.server.embedded import Broker  # noqa: E402
from tests.running import free_port  # noqa: E402

WAIT_SECONDS = 20
ENDED = (Disconnected, ServerError)  # a broker that stops sends ERROR before it closes, if it can


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.url.replace("stomp://", "radiator://") + "//"


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """The URL of a broker, and a function that restarts it and returns once the kombu connection has noticed."""
    address = f"127.0.0.1:{free_port()}"

    def start() -> Broker:
        return Broker(data_dir=tmp_path, listen=(f"stomp://{address}",)).start()

    brokers = [start()]

    def restart(connection: Any) -> None:
        client = connection.transport.link.connection
        brokers.pop().stop()
        brokers.append(start())
        deadline = time.monotonic() + WAIT_SECONDS
        while not client.closed:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    yield f"radiator://{address}//", restart
    for broker in brokers:
        broker.stop()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:60]


def connected(url: str, **options: Any) -> Any:
    return kombu.Connection(url, transport_options=options)


class Taking:
    """A consumer that writes down what it gets, and acknowledges when it is binding to."""

    def __init__(self, connection: Any, queues: Any, **options: Any) -> None:
        self.connection = connection
        self.got: list[Any] = []
        self.channel = connection.channel()
        self.consumer = kombu.Consumer(
            self.channel, queues=queues, on_message=self.got.append, **{"prefetch_count": 10, **options}
        )
        self.consumer.consume()

    def bodies(self, count: int) -> list[Any]:
        """The bodies of the next ``count`` messages."""
        while len(self.got) < count:
            self.connection.drain_events(timeout=WAIT_SECONDS)
        return [message.decode() for message in self.got]

    def nothing_more(self) -> bool:
        try:
            self.connection.drain_events(timeout=0.3)
        except TimeoutError:
            return True
        return False


def test_a_message_goes_through_a_direct_exchange_and_is_acknowledged(url: str, name: str) -> None:
    queue = kombu.Queue(name, kombu.Exchange(f"x{name}"), routing_key="k")
    with connected(url) as one, connected(url) as two:
        taking = Taking(one, [queue])
        kombu.Producer(two).publish({"n": 1}, exchange=queue.exchange, routing_key="k", declare=[queue])
        assert taking.bodies(1) == [{"n": 1}]
        taking.got[0].ack()
    with connected(url) as again:
        assert Taking(again, [queue]).nothing_more()


def test_what_was_not_acknowledged_comes_again_marked(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as one:
        kombu.Producer(one).publish("x", routing_key=name, declare=[queue])
        assert Taking(one, [queue]).bodies(1) == ["x"]
    with connected(url) as two:
        taking = Taking(two, [queue])
        assert taking.bodies(1) == ["x"]
        assert taking.got[0].delivery_info["redelivered"]
        taking.got[0].ack()


def test_a_rejected_message_comes_back_if_it_shall(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as connection:
        kombu.Producer(connection).publish("x", routing_key=name, declare=[queue])
        taking = Taking(connection, [queue])
        taking.bodies(1)
        taking.got[0].requeue()
        assert taking.bodies(2) == ["x", "x"]


def test_the_prefetch_count_holds(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as connection:
        producer = kombu.Producer(connection)
        for number in range(5):
            producer.publish(number, routing_key=name, declare=[queue])
        taking = Taking(connection, [queue], prefetch_count=2)
        assert taking.bodies(2) == [0, 1]
        assert taking.nothing_more()
        taking.got[0].ack()
        assert taking.bodies(3) == [0, 1, 2]


def test_a_prefetch_count_that_grows_lets_more_come_while_the_first_are_held(url: str, name: str) -> None:
    """As a worker does for tasks that are due later."""
    queue = kombu.Queue(name)
    with connected(url) as connection:
        producer = kombu.Producer(connection)
        for number in range(20):
            producer.publish(number, routing_key=name, declare=[queue])
        taking = Taking(connection, [queue], prefetch_count=2)
        taking.bodies(2)
        taking.consumer.qos(prefetch_count=15)
        assert sorted(taking.bodies(15)) == list(range(15))
        assert taking.nothing_more()


def test_basic_get_takes_one_and_leaves_the_others(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as one, connected(url) as two:
        producer = kombu.Producer(one)
        for number in range(2):
            producer.publish(number, routing_key=name, declare=[queue])
        bound = queue.bind(one.channel())
        message = bound.get()
        assert message.decode() == 0
        assert queue.bind(two.channel()).get().decode() == 1
        message.ack()
        assert bound.get() is None


def test_every_queue_bound_to_a_fanout_exchange_gets_a_copy(url: str, name: str) -> None:
    exchange = kombu.Exchange(f"x{name}", type="fanout")
    with connected(url) as one, connected(url) as two, connected(url) as three:
        taking = [
            Taking(each, [kombu.Queue(f"{name}{number}", exchange, auto_delete=True)], no_ack=True)
            for number, each in enumerate((one, two))
        ]
        kombu.Producer(three, exchange=exchange).publish("all")
        assert [each.bodies(1) for each in taking] == [["all"], ["all"]]


def test_a_topic_exchange_delivers_by_pattern_to_queues_that_others_have_bound(url: str, name: str) -> None:
    exchange = kombu.Exchange(f"x{name}", type="topic")
    with connected(url) as one, connected(url) as two, connected(url) as three:
        weather = Taking(one, [kombu.Queue(f"{name}w", exchange, routing_key="weather.#")])
        everything = Taking(two, [kombu.Queue(f"{name}a", exchange, routing_key="*.*")])
        producer = kombu.Producer(three, exchange=exchange)
        for key in ("weather.jfk", "flights.jfk", "weather.jfk.wind"):
            producer.publish(key, routing_key=key)
        assert weather.bodies(2) == ["weather.jfk", "weather.jfk.wind"]
        assert everything.bodies(2) == ["weather.jfk", "flights.jfk"]


def test_a_removed_binding_has_no_effect(url: str, name: str) -> None:
    exchange = kombu.Exchange(f"x{name}", type="direct")
    queue = kombu.Queue(name, exchange, routing_key="k")
    with connected(url) as one, connected(url) as two:
        bound = queue.bind(one.channel())
        bound.declare()
        producer = kombu.Producer(two, exchange=exchange)
        producer.publish("1", routing_key="k")
        bound.unbind_from(exchange, routing_key="k")
        producer.publish("2", routing_key="k")
        assert bound.get().decode() == "1"
        assert bound.get() is None


def test_size_and_purge_return_the_number_of_waiting_messages(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as connection:
        for number in range(3):
            kombu.Producer(connection).publish(number, routing_key=name, declare=[queue])
        bound = queue.bind(connection.channel())
        assert bound.queue_declare().message_count == 3
        assert bound.purge() == 3
        assert bound.queue_declare().message_count == 0


def test_a_queue_of_a_simple_queue_user_works(url: str, name: str) -> None:
    with connected(url) as connection:
        simple = connection.SimpleQueue(name)
        simple.put({"a": 1})
        message = simple.get(timeout=WAIT_SECONDS)
        assert message.payload == {"a": 1}
        message.ack()
        with pytest.raises(simple.Empty):
            simple.get(timeout=0.2)


def test_the_application_of_the_guide_works(url: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "celery.md").read_text("utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code.replace("radiator://127.0.0.1:61613//", url), "docs/celery.md", "exec"), names)
    names["app"].conf.task_default_queue = "guide"
    names["add"].delay(2, 3)
    with connected(url) as connection:
        taking = Taking(connection, [kombu.Queue("guide")], accept=["json"])
        assert taking.bodies(1)[0][0] == [2, 3]


def test_names_that_mean_something_to_patterns_are_names(url: str) -> None:
    queue = kombu.Queue("odd,*.#>%", kombu.Exchange("odd x,*"), routing_key="k")
    with connected(url) as connection:
        taking = Taking(connection, [queue])
        kombu.Producer(connection).publish("x", exchange=queue.exchange, routing_key="k", declare=[queue])
        assert taking.bodies(1) == ["x"]


@pytest.mark.thorough
def test_a_connection_that_has_ended_is_an_error_that_kombu_recovers_from() -> None:
    with Broker() as broker:
        url = broker.url.replace("stomp://", "radiator://") + "//"
        connection = connected(url)
        taking = Taking(connection, [kombu.Queue("q")])
    with pytest.raises(connection.connection_errors):
        taking.bodies(1)
    assert issubclass(ClientError, connection.recoverable_connection_errors)
    with pytest.raises(connection.connection_errors):
        kombu.Connection(url, connect_timeout=1).connect()


def test_a_consumer_sees_that_its_connection_ended_between_a_message_and_the_acknowledgement(
    restarted: tuple[str, Callable[[Any], None]],
) -> None:
    """kombu must not replace the connection by one without subscriptions: a Celery worker would wait there for ever."""
    url, restart = restarted
    queue = kombu.Queue("q")
    with connected(url) as connection:
        kombu.Producer(connection).publish("x", routing_key="q", declare=[queue])
        taking = Taking(connection, [queue])
        assert taking.bodies(1) == ["x"]
        restart(connection)
        with pytest.raises(ENDED):
            taking.got[0].ack()
        with pytest.raises(ENDED):
            connection.drain_events(timeout=0.3)
        connection.collect()  # as Celery does then
        taking = Taking(connection, [queue])
        assert taking.bodies(1) == ["x"]
        taking.got[0].ack()


def test_a_connection_that_has_ended_is_replaced_once_nothing_is_subscribed_on_it(
    restarted: tuple[str, Callable[[Any], None]],
) -> None:
    url, restart = restarted
    queue = kombu.Queue("q")

    def get() -> Any:
        return queue.bind(connection.default_channel).get()

    with connected(url) as connection:
        kombu.Producer(connection).publish("x", routing_key="q", declare=[queue])
        Taking(connection, [queue]).consumer.cancel()
        restart(connection)
        message = get()
        assert message.decode() == "x"
        restart(connection)
        with pytest.raises(ENDED):
            get()
        with pytest.raises(ENDED):
            message.ack()
        assert get().decode() == "x"


def test_a_channel_closes_while_another_thread_acknowledges(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the thread of a Celery worker that handles results does."""
    queue = kombu.Queue(name)
    with connected(url) as one, connected(url) as two:
        for number in range(2):
            kombu.Producer(one).publish(number, routing_key=name, declare=[queue])
        taking = Taking(one, [queue])
        taking.bodies(2)
        qos, unacknowledged = taking.channel.qos, taking.got[1:]
        forget = qos._quick_ack

        def forget_and_acknowledge_the_second(tag: str) -> None:
            forget(tag)
            if unacknowledged:
                thread = threading.Thread(target=unacknowledged.pop().ack)
                thread.start()
                thread.join(WAIT_SECONDS)

        monkeypatch.setattr(qos, "_quick_ack", forget_and_acknowledge_the_second)
        taking.channel.close()
        other = Taking(two, [queue])
        assert other.bodies(1) == [0]
        assert other.nothing_more()


def test_a_message_rejected_for_good_does_not_come_back(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as connection:
        kombu.Producer(connection).publish("x", routing_key=name, declare=[queue])
        taking = Taking(connection, [queue])
        taking.bodies(1)
        taking.got[0].reject()
        assert taking.nothing_more()
    with connected(url) as connection:
        assert Taking(connection, [queue]).nothing_more()


def test_what_a_cancelled_consumer_holds_may_still_be_acknowledged(url: str, name: str) -> None:
    """As a worker does that ends in good order: it takes no more, and finishes what it has."""
    queue = kombu.Queue(name)
    with connected(url) as one, connected(url) as two:
        for number in range(3):
            kombu.Producer(one).publish(number, routing_key=name, declare=[queue])
        taking = Taking(one, [queue], prefetch_count=1)
        taking.bodies(1)
        taking.consumer.cancel()
        other = Taking(two, [queue], prefetch_count=10)
        assert sorted(other.bodies(2)) == [1, 2]
        assert other.nothing_more()
        taking.got[0].ack()
        assert other.nothing_more()
    with connected(url) as again:
        assert sorted(Taking(again, [queue]).bodies(2)) == [1, 2]


def test_purging_a_busy_queue_ends_and_leaves_what_came_meanwhile(url: str, name: str) -> None:
    queue = kombu.Queue(name)
    with connected(url) as connection, connected(url) as busy:
        producer = kombu.Producer(busy)
        for number in range(10):
            producer.publish(number, routing_key=name, declare=[queue])
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                producer.publish("later", routing_key=name)
                stop.wait(0.05)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            bound = queue.bind(connection.channel())
            timer = threading.Timer(WAIT_SECONDS, stop.set)
            timer.start()
            assert bound.purge() >= 10
            assert not stop.is_set()
        finally:
            stop.set()
            thread.join()
            timer.cancel()
        assert bound.get().decode() == "later"


def test_a_message_that_is_no_binding_is_ignored(url: str, name: str) -> None:
    with connected(url) as connection:
        address = connection.as_uri().removeprefix("radiator://").rstrip("/")
        with connect(address) as client:
            for body in ("nothing", "[]", '{"queue": 1}', '{"queue": "a"}'):
                client.send(f"/topic/kombu.bindings.x{name}", body)
        queue = kombu.Queue(name, kombu.Exchange(f"x{name}"), routing_key="k")
        taking = Taking(connection, [queue])
        kombu.Producer(connection).publish("x", exchange=queue.exchange, routing_key="k", declare=[queue])
        assert taking.bodies(1) == ["x"]
