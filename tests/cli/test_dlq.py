"""radiator dlq, with a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from radiator.cli.main import run
from radiator.client import connect
from tests.running import BrokerProcess
from tests.storage.driving import ALWAYS, NOW, commit, opened

CONFIG = "destinations: [{match: '/queue/work.*', dead_letter: '/queue/dead.{1}', redeliver: {max: 2, delay: 0ms}}]"


@pytest.fixture
def broker(start_broker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    started = start_broker(CONFIG)
    monkeypatch.setenv("RADIATOR_URL", started.address)
    with connect(started.address) as client:
        for number in range(3):
            client.send("/queue/work.x", f"bad {number}".encode(), {"colour": "red", "dedup-id": str(number)})
        client.send("/queue/work.x", b"reject")
        with client.subscribe("/queue/work.x", ack="client-individual", prefetch=1) as inbox:
            for _ in range(7):
                message = inbox.fetch(30)
                assert message is not None
                if message.body == b"reject":
                    message.reject(receipt=True)
                else:
                    message.nack(receipt=True)
    yield started


def said(capfd: Any, *args: str, code: int = 0) -> Any:
    assert run(args) == code
    return capfd.readouterr()


def stored(address: str, queue: str) -> list[Any]:
    with connect(address) as client:
        return list(client.subscribe(queue, headers={"browser": "true"}))


def test_ls_counts_by_reason_and_origin(broker: BrokerProcess, capfd: Any) -> None:
    (queue,) = json.loads(said(capfd, "dlq", "ls", "--json").out)["queues"]
    assert queue["name"] == "/queue/dead.x" and queue["origins"] == {"/queue/work.x": queue["count"]}
    assert queue["reasons"] == {"max-deliveries": 3, "rejected": 1} and queue["oldest_ns"] > 10**18
    assert "/queue/work.x" in said(capfd, "dlq", "ls").out
    assert json.loads(said(capfd, "dlq", "ls", "/queue/nothing", "--json").out) == {"queues": []}
    assert said(capfd, "dlq", "ls", "/queue/nothing").out == "no dead-letter queue matches /queue/nothing\n"


def test_show_prints_the_oldest(broker: BrokerProcess, capfd: Any) -> None:
    text = said(capfd, "dlq", "show", "/queue/dead.x", "-n", "1").out
    assert "bad 0" in text and "max-deliveries" in text and "bad 1" not in text
    records = [json.loads(line) for line in said(capfd, "dlq", "show", "/queue/dead.x", "--json").out.splitlines()]
    assert records[0]["body"] == "bad 0" and records[0]["id"]


def test_an_id_is_shown_as_a_name_and_taken_as_it_is_shown(broker: BrokerProcess, capfd: Any) -> None:
    shown = said(capfd, "dlq", "show", "/queue/dead.x", "-n", "1").out.split()[0]
    assert shown == "/queue/dead.x@0"
    done = said(capfd, "dlq", "drop", "/queue/dead.x", "--id", shown).out
    assert done == "1 message of /queue/dead.x dropped\n"
    assert "%2F" not in said(capfd, "dlq", "drop", "/queue/dead.x", "--id", "/queue/dead.x@99", code=5).err


def test_replay_sends_back_and_takes_away(broker: BrokerProcess, capfd: Any) -> None:
    before = stored(broker.address, "/queue/dead.x")
    one = before[1]
    done = json.loads(said(capfd, "dlq", "replay", "/queue/dead.x", "--id", one.id, "--json").out)
    assert done == {"queue": "/queue/dead.x", "replayed": 1, "left": 0, "refused": 0, "to": {"/queue/work.x": 1}}
    assert broker.logs('COMMIT {"sent": ["1 /queue/work.x"], "acknowledged": ["1 /queue/dead.x"]}: ok')
    (back,) = stored(broker.address, "/queue/work.x")
    assert back.body == one.body and back.headers["colour"] == "red"
    assert not [name for name in back.headers if name.startswith("dlq-")]
    assert "redelivered" not in back.headers
    left = [each.id for each in stored(broker.address, "/queue/dead.x")]
    assert left == [each.id for each in before if each is not one]
    assert "sent back" in said(capfd, "dlq", "replay", "/queue/dead.x", "--all", "--to", "/queue/other").out
    assert len(stored(broker.address, "/queue/other")) == len(before) - 1
    assert stored(broker.address, "/queue/dead.x") == []


def test_drop_takes_away(broker: BrokerProcess, capfd: Any) -> None:
    count = len(stored(broker.address, "/queue/dead.x"))
    assert json.loads(said(capfd, "dlq", "drop", "/queue/dead.x", "--all", "--json").out)["dropped"] == count
    assert stored(broker.address, "/queue/dead.x") == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["show"], 2),
        (["replay", "/queue/dead.x"], 2),
        (["drop", "/queue/dead.x", "--id", "x", "--all"], 2),
        (["drop", "/queue/dead.x", "--all", "--to", "/queue/a"], 2),
        (["replay", "/queue/dead.x", "--id", "nothing@1"], 5),
        (["show", "/queue/missing"], 5),
        (["replay", "/queue/missing", "--all"], 5),
        (["drop", "/queue/missing", "--all"], 5),
    ],
)
def test_what_cannot_be_done_is_reported(broker: BrokerProcess, args: list[str], code: int, capfd: Any) -> None:
    assert said(capfd, "dlq", *args, code=code).err.startswith("radiator: ")


# --- messages that are no dead letters --------------------------------------------------------------------------------

FORGED = {"dlq-reason": "rejected", "dlq-destination": "/queue/payments", "dlq-time": "1", "dlq-deliveries": "3"}


def test_a_message_that_a_client_sent_there_is_refused_by_name_and_the_others_go_back(
    broker: BrokerProcess, capfd: Any
) -> None:
    letters = len(stored(broker.address, "/queue/dead.x"))
    with connect(broker.address) as client:
        client.send("/queue/dead.x", b"pay me", FORGED, receipt=True)
    (forged,) = [each for each in stored(broker.address, "/queue/dead.x") if each.body == b"pay me"]
    assert not [name for name in forged.headers if name.startswith("dlq-")]
    (queue,) = json.loads(said(capfd, "dlq", "ls", "--json").out)["queues"]
    assert queue["origins"] == {"/queue/work.x": letters, "unknown": 1}
    assert "not a dead letter" in said(capfd, "dlq", "show", "/queue/dead.x").out
    done = said(capfd, "dlq", "replay", "/queue/dead.x", "--all", "--json", code=1)
    result = json.loads(done.out)
    assert (result["replayed"], result["refused"]) == (letters, 1) and unquote(forged.id) in done.err
    assert stored(broker.address, "/queue/payments") == []
    assert [each.id for each in stored(broker.address, "/queue/dead.x")] == [forged.id]
    said(capfd, "dlq", "replay", "/queue/dead.x", "--id", forged.id, code=1)
    assert (
        "1 to /queue/looked-at"
        in said(capfd, "dlq", "replay", "/queue/dead.x", "--id", forged.id, "--to", "/queue/looked-at").out
    )


def test_a_forged_message_in_a_store_of_an_earlier_version_is_refused_too(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    broker = start_broker(CONFIG)
    assert broker.stop() == 0
    store, _ = opened(root=str(broker.data))
    block = "\n".join(f"{name}:{value}" for name, value in FORGED.items()).encode()
    store.partition("/queue/dead.x", ALWAYS).append("/queue/dead.x", block, b"pay me", NOW)
    commit(store)
    store.close()
    broker.start()
    monkeypatch.setenv("RADIATOR_URL", broker.address)
    (forged,) = stored(broker.address, "/queue/dead.x")
    assert forged.headers["dlq-destination"] == "/queue/payments", "it was stored so"
    assert "not a dead letter" in said(capfd, "dlq", "show", "/queue/dead.x").out
    assert unquote(forged.id) in said(capfd, "dlq", "replay", "/queue/dead.x", "--all", code=1).err
    assert stored(broker.address, "/queue/payments") == []


# --- letters of durable subscriptions ---------------------------------------------------------------------------------


@pytest.fixture
def topics(start_broker: Any, monkeypatch: pytest.MonkeyPatch) -> BrokerProcess:
    started: BrokerProcess = start_broker("destinations: [{match: '/*/t', dead_letter: /queue/dead}]")
    monkeypatch.setenv("RADIATOR_URL", started.address)
    with connect(started.address) as client:
        named = {name: subscribed(client, name) for name in ("A", "B", "C")}
        client.send("/topic/t", "poison")
        client.send("/queue/t", "poison of a queue")
        for name in ("A", "B"):
            taken(named[name]).reject(receipt=True)
        taken(named["C"]).ack(receipt=True)
        taken(client.subscribe("/queue/t", ack="client-individual")).reject(receipt=True)
    return started


def subscribed(client: Any, name: str) -> Any:
    return client.subscribe("/topic/t", ack="client-individual", headers={"subscription-name": name})


def taken(inbox: Any) -> Any:
    message = inbox.fetch(20)
    assert message is not None
    return message


def test_a_dead_letter_of_a_subscription_is_shown_with_its_name(topics: BrokerProcess, capfd: Any) -> None:
    (queue,) = json.loads(said(capfd, "dlq", "ls", "--json").out)["queues"]
    assert queue["origins"] == {"/topic/t": 2, "/queue/t": 1}
    assert queue["subscriptions"] == {"sub:A": 1, "sub:B": 1}
    assert "sub:A" in said(capfd, "dlq", "ls").out
    assert "from /topic/t for sub:A after 1 delivery\n" in said(capfd, "dlq", "show", "/queue/dead").out


def test_a_dead_letter_of_a_subscription_is_not_sent_to_all_readers_by_default(
    topics: BrokerProcess, capfd: Any
) -> None:
    told = said(capfd, "dlq", "replay", "/queue/dead", "--all", code=2).err
    assert "2 of these messages are of subscriptions (sub:A 1, sub:B 1)" in told and "--to-topic" in told
    letters = stored(topics.address, "/queue/dead")
    assert len(letters) == 3
    (of_a_queue,) = [each.id for each in letters if "dlq-subscription" not in each.headers]
    assert "sent back: 1 to /queue/t" in said(capfd, "dlq", "replay", "/queue/dead", "--id", of_a_queue).out
    (of_a, *_) = [each.id for each in letters if "dlq-subscription" in each.headers]
    said(capfd, "dlq", "replay", "/queue/dead", "--id", of_a, code=2)
    with connect(topics.address) as client:
        assert subscribed(client, "C").fetch(0.2) is None
    assert "2 to /queue/mine" in said(capfd, "dlq", "replay", "/queue/dead", "--all", "--to", "/queue/mine").out
    assert [each.text for each in stored(topics.address, "/queue/mine")] == ["poison"] * 2


def test_with_the_option_it_goes_to_all_readers_of_the_topic(topics: BrokerProcess, capfd: Any) -> None:
    assert "2 to /topic/t" in said(capfd, "dlq", "replay", "/queue/dead", "--all", "--to-topic").out
    with connect(topics.address) as client:
        inbox = subscribed(client, "C")
        for _ in range(2):
            message = taken(inbox)
            assert message.text == "poison" and "dlq-subscription" not in message.headers
            message.ack(receipt=True)
    said(capfd, "dlq", "drop", "/queue/dead", "--all", "--to-topic", code=2)
    said(capfd, "dlq", "replay", "/queue/dead", "--all", "--to", "/queue/x", "--to-topic", code=2)
