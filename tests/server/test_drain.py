"""A real broker that is drained: by a request, and by SIGTERM with ``drain.on_stop``."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.client import Connection, connect
from radiator.client.admin import ask
from radiator.client.errors import ServerError
from radiator.client.reliable import ReliableSender
from radiator.client.sending import Outgoing
from radiator.errors import ClientError
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
ADMIN = "admin: http://127.0.0.1:0\n"
STAYS = {"while-draining": "true"}


@pytest.fixture
def operator(shared_broker: BrokerProcess) -> Iterator[Connection]:
    """An administrator of the shared broker, who ends the drain when the test is over."""
    with connect(shared_broker.address, headers=STAYS) as connection:
        yield connection
        ask(connection, "broker.drain", cancel=True)


def ready(broker: BrokerProcess) -> tuple[int, dict[str, Any]]:
    found = re.search(r"admin: (http://\S+)", broker.text())
    assert found is not None
    try:
        with urllib.request.urlopen(f"{found[1]}/ready", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_clients_leave_with_an_error_and_new_ones_are_refused(
    shared_broker: BrokerProcess, operator: Connection
) -> None:
    with Wire(shared_broker) as old, Wire(shared_broker) as new:
        old.open()
        ask(operator, "broker.drain", seconds=1)
        (error,) = old.rest()
        assert (error.headers["error-code"], error.headers["message"]) == ("draining", "the broker is going down")
        assert b"Connect to another broker" in error.body
        new.say("CONNECT", accept_version="1.2", host="test")
        (error,) = new.rest()
        assert error.headers["error-code"] == "draining"
    with pytest.raises(ServerError) as refused:
        connect(shared_broker.address)
    assert refused.value.code == "draining"
    ask(operator, "broker.drain", cancel=True)
    connect(shared_broker.address).close()


def test_a_python_client_learns_why_it_was_disconnected(shared_broker: BrokerProcess, operator: Connection) -> None:
    with connect(shared_broker.address) as client, client.subscribe("/queue/quiet") as subscription:
        ask(operator, "broker.drain", seconds=1)
        with pytest.raises(ServerError, match="going down"):
            next(iter(subscription))


def test_the_command_drains_waits_and_cancels(
    shared_broker: BrokerProcess, operator: Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", shared_broker.address]
    with Wire(shared_broker) as client:
        client.open()
        assert run(["drain", "--seconds", "1", *url]) == 0
        assert [frame.headers["error-code"] for frame in client.rest()] == ["draining"]
    out, err = capfd.readouterr()
    assert out == "drained: no client is connected\n"
    assert err == "radiator: draining: 1 connection to disconnect within 1 s; new clients are refused\n"
    assert run(["send", "/queue/a", "x", *url]) == 3
    for command in ("clients", "stats", "ls", "cursors ls", "clock", "maintain", "top --once --interval 0.1"):
        assert run([*command.split(), *url]) == 0
    for command in ("describe /queue/b", "pause /queue/b", "purge /queue/b --yes", "disconnect s --yes"):
        assert run([*command.split(), *url]) == 5
    capfd.readouterr()
    assert run(["drain", "--json", *url]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "drain": {"draining": True, "ends_in_seconds": None, "connections": 0}
    }
    assert run(["drain", "--cancel", *url]) == 0
    assert capfd.readouterr().out == "clients are accepted again\n"
    assert run(["send", "/queue/a", "x", *url]) == 0
    assert run(["drain", "--cancel", "--seconds", "1", *url]) == 2


def test_a_stop_disconnects_clients_over_the_period_and_is_not_ready_meanwhile(start_broker: StartBroker) -> None:
    broker = start_broker(f"{ADMIN}drain: {{on_stop: 30s}}\n")
    with Wire(broker) as consumer, Wire(broker) as idle, Wire(broker) as publisher:
        consumer.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="client-individual", prefetch_count="1")
        idle.open()
        publisher.open().say("SEND", b"1", destination="/queue/a", receipt="1")
        message = consumer.hear("MESSAGE")
        assert ready(broker)[0] == 200
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.logs("the broker is draining: 3 connections end within 30 s")
        status, answer = ready(broker)
        assert (status, answer["ready"]) == (503, False)
        assert re.fullmatch(r"the broker is draining: 3 connections end within \d+ s", answer["reasons"][0])
        with Wire(broker) as new:
            new.say("CONNECT", accept_version="1.2", host="test")
            assert new.hear("ERROR").headers["error-code"] == "draining"
        publisher.say("SEND", b"2", destination="/queue/a", receipt="2")
        publisher.hear("RECEIPT", receipt_id="2")
        consumer.say("ACK", id=message.headers["ack"])
        assert [frame.headers["error-code"] for frame in consumer.rest()] == ["draining"]  # and no second message
        idle.close()
        publisher.close()
        assert broker.process is not None
        assert broker.process.wait(20) == 0, broker.text()
    broker.start()
    with Wire(broker) as consumer:
        consumer.open().say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto")
        message = consumer.hear("MESSAGE")
        assert (message.body, message.headers.get("redelivered")) == (b"2", None)
    assert broker.stop() == 0  # at once, as no client is left


@pytest.mark.thorough
def test_a_second_signal_ends_a_drain_at_once(start_broker: StartBroker) -> None:
    broker = start_broker("drain: {on_stop: 1h}\n")
    with Wire(broker) as client:
        client.open()
        client.say("BEGIN", transaction="t")
        client.barrier()
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.logs("the broker is draining: 1 connection ends within 3600 s")
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.process is not None
        assert broker.process.wait(20) == 1


class Consumer(threading.Thread):
    """Acknowledges one message after the other, and connects again until ``over``."""

    def __init__(self, address: str, over: threading.Event) -> None:
        super().__init__()
        self.address, self.over = address, over
        self.seen: list[str] = []
        self.unsure: set[str] = set()  # acknowledged without a receipt
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with connect(self.address) as connection:
                    self.consume(connection)
            except ServerError as error:
                self.errors[error.code] += 1
            except ClientError:
                pass
            time.sleep(0.02)

    def consume(self, connection: Connection) -> None:
        subscription = connection.subscribe("/queue/work", ack="client-individual", prefetch=20)
        while not self.over.is_set():
            message = subscription.fetch(timeout=0.2)
            if message is not None:
                text = message.text
                self.seen.append(text)
                self.unsure.add(text)
                message.ack(receipt=True)
                self.unsure.discard(text)


@pytest.mark.thorough
def test_a_drain_under_load_loses_nothing_and_repeats_only_what_was_not_acknowledged(start_broker: StartBroker) -> None:
    broker = start_broker("drain: {on_stop: 3s}\n")
    over, ended = threading.Event(), threading.Event()
    consumers = [Consumer(broker.address, over) for _ in range(4)]
    sent: list[list[str]] = [[] for _ in range(3)]

    def publish(number: int) -> None:
        sender = ReliableSender(
            lambda policy: connect(broker.address, reconnect=policy), messages_per_receipt=20, patience_seconds=60
        )
        while not ended.is_set():
            text = f"{number}-{len(sent[number])}"
            sender.send(Outgoing("/queue/work", text.encode(), {"dedup-id": text}))
            sent[number].append(text)
            time.sleep(0.001)
        sender.flush()
        sender.close()

    publishers = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in (*consumers, *publishers):
        thread.start()
    try:
        time.sleep(1)
        assert broker.stop() == 0, broker.text()
        broker.start()
        time.sleep(1)
        ended.set()
        for publisher in publishers:
            publisher.join(60)
        wanted = {text for each in sent for text in each}
        deadline = time.monotonic() + 60
        while {text for each in consumers for text in each.seen} != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        ended.set()
        over.set()
        for thread in (*publishers, *consumers):
            thread.join(60)
    assert broker.stop() == 0
    seen = Counter(text for each in consumers for text in each.seen)
    unsure = set().union(*(each.unsure for each in consumers))
    assert set(seen) == wanted
    assert {text for text, times in seen.items() if times > 1} <= unsure
    assert all(each.errors["draining"] for each in consumers)
