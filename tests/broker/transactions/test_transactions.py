"""Transactions: all of it at COMMIT, in order, or nothing; also when the disk or the process fails."""

from __future__ import annotations

import pytest

from radiator.config import LimitsConfig
from radiator.errors import ProtocolError
from tests.broker.harness import Client, World

Q = "/queue/a"


def consumer(world: World, destination: str = Q) -> Client:
    client = world.connect()
    client.subscribe(destination, ack="auto")
    world.settle()
    return client


def test_nothing_is_visible_before_commit_and_then_all_of_it_in_order(world: World) -> None:
    reader, client = consumer(world, "/queue/*"), world.connect()
    client.say("BEGIN", transaction="t", receipt="b")
    for number in range(5):
        client.publish(f"/queue/{'ab'[number % 2]}", f"{number}", transaction="t")
    world.settle()
    assert client.receipts() == ["b"]
    assert reader.messages() == []
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]
    assert sorted(reader.bodies()) == list("01234")


def test_messages_outside_the_transaction_are_not_held_back(world: World) -> None:
    reader, client = consumer(world), world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "inside", transaction="t")
    client.publish(Q, "outside")
    world.settle()
    assert reader.bodies() == ["outside"]
    client.say("COMMIT", transaction="t")
    world.settle()
    assert reader.bodies() == ["inside"]


def test_the_receipt_of_commit_waits_for_the_disk(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t")
    client.publish("/queue/b", "2", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.take()
    world.write()
    world.flush()
    assert client.receipts() == []
    world.sync()
    first, *rest = world.jobs
    world.broker.completed([first], world.time)
    client.flush()
    assert client.receipts() == []
    world.jobs = rest
    world.completed()
    assert client.receipts() == ["c"]


def test_a_receipt_inside_the_transaction_is_answered_at_once(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t", receipt="accepted")
    client.flush()
    assert client.receipts() == ["accepted"]
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]


@pytest.mark.parametrize("ending", ["ABORT", "drop", "DISCONNECT", "error"])
def test_a_transaction_that_ends_otherwise_has_done_nothing(world: World, ending: str) -> None:
    reader, client = consumer(world), world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t")
    if ending == "ABORT":
        client.say("ABORT", transaction="t", receipt="a")
        world.settle()
        assert client.receipts() == ["a"]
    elif ending == "drop":
        client.drop()
    elif ending == "DISCONNECT":
        client.say("DISCONNECT", receipt="d")
    else:
        client.say("NONSENSE")
    world.settle()
    assert reader.messages() == []
    assert client.session.transactions.size_bytes == 0
    assert not client.session.transactions.by_name


def test_acks_and_nacks_take_effect_at_commit(world: World) -> None:
    client = world.connect()
    client.publish(Q, *"123")
    client.subscribe(Q, prefetch_count=3)
    world.settle()
    one, two, _ = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(one, transaction="t", receipt="1")
    client.nack(two, transaction="t")
    world.settle()
    assert client.receipts() == ["1"]
    assert client.messages() == []
    assert len(next(iter(client.session.subscriptions.by_id.values())).in_flight) == 3
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]
    assert client.bodies() == ["2"]
    world.power_cut()
    other = world.connect()
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    assert other.bodies() == ["2", "3"]


def test_an_aborted_ack_has_not_settled_anything(world: World) -> None:
    client = world.connect()
    client.publish(Q, "1")
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    client.say("ABORT", transaction="t")
    client.drop()
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.bodies() == ["1"]


@pytest.mark.parametrize(
    "bad",
    [
        {"command": "ACK", "id": "nonsense"},
        {"command": "NACK", "id": "nonsense"},
        {"command": "ACK"},
        {"command": "NACK", "id": "{good}", "requeue": "perhaps"},
        {"command": "NACK", "id": "{good}", "delay": "soon"},
        {"command": "SEND", "destination": "/queue/none", "mandatory": "true"},
        {"command": "SEND", "destination": "/queue/" + "x" * 300},
        {"command": "SEND", "destination": Q, "event_time": "yesterday"},
        {"command": "SEND", "destination": Q, "transmit_time": "9999-12-31T23:59:59Z"},
        {"command": "SEND", "destination": "/temp-queue/a*", "reply_to": "/temp-queue/*"},
    ],
)
def test_a_commit_that_is_refused_has_changed_nothing(world: World, bad: dict[str, str]) -> None:
    reader, client = consumer(world, "/queue/b"), world.connect()
    client.publish(Q, "kept")
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.say("BEGIN", transaction="t")
    client.publish("/queue/b", "1", transaction="t")
    client.ack(message, transaction="t")
    command, *_ = bad.values()
    headers = {key: value.format(good=message.headers["ack"]) for key, value in bad.items() if key != "command"}
    client.say(command, "2", transaction="t", **headers)
    client.publish("/queue/b", "3", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    client.error()
    assert client.receipts() == []
    assert reader.messages() == []
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.bodies() == ["kept"]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_transaction_that_is_not_open_cannot_be_ended(world: World, command: str) -> None:
    client = world.connect()
    client.say(command, transaction="t")
    assert client.error() == "bad-transaction"


@pytest.mark.parametrize("command", ["SEND", "ACK", "NACK"])
def test_a_frame_of_a_transaction_that_is_not_open_is_refused(world: World, command: str) -> None:
    client = world.connect()
    client.publish(Q, "m")
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.say(command, destination=Q, id=message.headers["ack"], transaction="t")
    assert client.error() == "bad-transaction"


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_what_was_never_delivered_is_refused_before_commit(world: World, command: str) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "m", transaction="t")
    client.say(command, id=f"{client.session.id}-0-0", transaction="t")
    assert client.error() == "bad-ack"
    client.drop()
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.bodies() == []


def test_an_open_id_cannot_be_opened_again_and_a_closed_one_can(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        client.say("BEGIN", transaction="t")
        client.say("COMMIT", transaction="t")
    client.say("BEGIN", transaction="t")
    client.say("BEGIN", transaction="t")
    assert client.error() == "bad-transaction"


def test_transactions_of_two_clients_do_not_know_one_another(world: World) -> None:
    reader = consumer(world)
    clients = [world.connect(), world.connect()]
    for number, client in enumerate(clients):
        client.say("BEGIN", transaction="t")
        client.publish(Q, f"{number}", transaction="t")
    clients[0].say("ABORT", transaction="t")
    clients[1].say("COMMIT", transaction="t")
    world.settle()
    assert reader.bodies() == ["1"]


def test_the_number_of_open_transactions_is_limited() -> None:
    world = World(limits=LimitsConfig(transactions=3))
    client = world.connect()
    for number in range(4):
        client.say("BEGIN", transaction=f"t{number}")
    assert client.error() == "too-many"


def test_the_bytes_of_open_transactions_are_limited_and_given_back() -> None:
    world = World(limits=LimitsConfig(transaction=10_000))
    client = world.connect()
    for _ in range(5):
        client.say("BEGIN", transaction="t")
        client.publish(Q, "x" * 8_000, transaction="t")
        client.say("ABORT", transaction="t")
    client.say("BEGIN", transaction="a")
    client.say("BEGIN", transaction="b")
    client.publish(Q, "x" * 8_000, transaction="a")
    assert not client.session.closing
    client.publish(Q, "x" * 8_000, transaction="b")
    assert client.error() == "too-large"


def test_a_transaction_to_a_late_temporary_queue_answers_each_receipt_once(world: World) -> None:
    owner, client = world.connect(), world.connect()
    owner.subscribe("/temp-queue/x", ack="auto")
    name = next(iter(owner.session.temporary.names))
    owner.drop()
    client.say("BEGIN", transaction="t")
    client.publish(name, "late", transaction="t", receipt="1")
    client.say("COMMIT", transaction="t", receipt="2")
    world.settle()
    assert client.receipts() == ["1", "2"]


@pytest.mark.parametrize("seed", range(30))
def test_a_transaction_in_one_log_is_whole_or_absent_after_a_power_cut(seed: int) -> None:
    """The cut comes between write and sync: bytes of the batch survive by chance, messages only together."""
    world = World()
    world.fs.random.seed(seed)
    client = world.connect()
    client.publish(Q, "before", receipt="b")
    world.settle()
    client.say("BEGIN", transaction="t")
    client.publish(Q, *["x" * 600 for _ in range(8)], transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.take()
    world.write()
    world.power_cut()
    reader = consumer(world)
    world.settle()
    assert len(reader.messages()) in (1, 9)


@pytest.mark.parametrize("size", [4_000_000, 3_000_000])
def test_a_transaction_is_one_batch_even_where_the_open_batch_is_nearly_full(world: World, size: int) -> None:
    """One batch is one crc: split over two, a crash in between would leave half of it."""
    client = world.connect()
    other = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, *["x" * size] * 3, transaction="t")
    other.publish(Q, "y" * size, "y" * size)
    client.say("COMMIT", transaction="t", receipt="c")
    jobs = world.take()
    batches = [job.batch for job in jobs if job.batch is not None]
    whole = [batch for batch in batches if any(body.startswith(b"x") for body in batch.bodies)]
    assert len(whole) == 1
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert client.receipts() == ["c"]


def test_a_transaction_chooses_partitions_as_single_messages_do() -> None:
    world = World("destinations: [{match: /topic/p, partitions: 3, partition_by: 'header:user'}]")
    client = world.connect()
    client.publish("/topic/p", "outside", user="ann", receipt="r")
    world.settle()
    (receipt,) = client.take("RECEIPT")
    reader = world.connect()
    reader.subscribe("/topic/p", ack="auto")
    client.say("BEGIN", transaction="t")
    client.publish("/topic/p", *"123", user="ann", transaction="t")
    client.publish("/topic/p", *"abcdef", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]
    messages = reader.messages()
    keyed = [message for message in messages if "user" in message.headers]
    assert [message.body for message in keyed] == [b"1", b"2", b"3"]
    assert {message.headers["partition"] for message in keyed} == {receipt.headers["partition"]}
    others = [message.headers["partition"] for message in messages if "user" not in message.headers]
    assert sorted(others) == sorted([f"/topic/p-{number}" for number in range(3)] * 2)


def test_low_disk_space_refuses_transactions_too(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t")
    world.broker.files_refused = ProtocolError("storage", "not enough free disk space to store the message")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.error() == "storage"
    assert world.store.partitions[Q].next_offset == 0


def test_a_transaction_that_finds_one_of_its_logs_full_has_changed_no_other() -> None:
    world = World("destinations: [{match: /queue/m, store: memory, retention: {size: 1KiB}}]")
    client = world.connect()
    while not client.session.closing:
        client.publish("/queue/m", "x" * 500)
        world.settle()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t")
    client.publish("/queue/m", "2", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.error() == "storage"
    assert consumer(world).messages() == []


@pytest.mark.parametrize("verb", ["pwritev", "fdatasync"])
def test_a_transaction_that_the_disk_refuses_is_answered_with_an_error(world: World, verb: str) -> None:
    client = world.connect()
    client.publish(Q, "before")
    world.settle()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "1", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.fs.fail(verb)
    world.settle()
    assert client.receipts() == []
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "storage"
    assert error.headers["receipt-id"] == "c"


def test_a_message_of_a_transaction_that_a_full_queue_drops_is_not_receipted_twice() -> None:
    world = World("destinations: [{match: '/queue/a', max_messages: 1, on_full: drop_newest}]")
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "kept", transaction="t", receipt="1")
    client.publish(Q, "dropped", transaction="t", receipt="2")
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["1", "2", "c"]
    assert world.broker.stats.dropped_newest == 1
    assert consumer(world).bodies() == ["kept"]


# --- limits.transaction_timeout ---------------------------------------------------------------------------------------


def with_open_ack(world: World) -> tuple[Client, Client]:
    """A client that has acknowledged a message in a transaction and does not end it, and one that waits for one."""
    worker, other = world.connect(), world.connect()
    for client in (worker, other):
        client.subscribe(Q)
    world.settle()
    other.publish(Q, "work")
    world.settle()
    (message,) = worker.messages()
    worker.say("BEGIN", transaction="t")
    worker.ack(message, transaction="t")
    world.settle()
    return worker, other


def test_a_transaction_that_is_not_ended_in_time_ends_and_what_it_acknowledged_goes_to_others() -> None:
    world = World("limits: {transaction_timeout: 60s}")
    worker, other = with_open_ack(world)
    world.tick(59)
    world.settle()
    assert not worker.session.closing and not other.messages()
    world.tick(2)
    world.settle()
    (error,) = worker.take("ERROR")
    assert error.headers["error-code"] == "timeout" and b"limits.transaction_timeout" in error.body
    assert other.bodies() == ["work"]
    assert world.broker.stats.transactions_timed_out == 1


def test_frames_in_a_transaction_win_it_no_time_and_a_new_one_has_its_own() -> None:
    world = World("limits: {transaction_timeout: 60s}")
    client = world.connect()
    for _ in range(3):
        client.say("BEGIN", transaction="t")
        world.tick(50)
        client.publish(Q, "1", transaction="t")
        client.say("COMMIT", transaction="t", receipt="c")
        world.settle()
        assert client.receipts() == ["c"]
    client.say("BEGIN", transaction="t")
    world.tick(50)
    client.publish(Q, "1", transaction="t")
    world.tick(11)
    assert client.error() == "timeout"


def test_without_a_time_limit_a_transaction_may_stay_open() -> None:
    world = World("limits: {transaction_timeout: none}")
    worker, other = with_open_ack(world)
    world.tick(1_000_000)
    world.settle()
    assert not worker.session.closing and not other.messages()


def test_a_commit_that_has_to_wait_does_not_time_out() -> None:
    world = World(
        "limits: {transaction_timeout: 60s}\n"
        f"destinations: [{{match: {Q}, max_messages: 1, on_full: block, block_timeout: none}}]"
    )
    client = world.connect()
    client.publish(Q, "first")
    client.say("BEGIN", transaction="t")
    client.publish(Q, "second", transaction="t")
    client.say("COMMIT", transaction="t", receipt="c")
    world.tick(1_000)
    world.settle()
    assert not client.session.closing and client.receipts() == []
    taker = consumer(world)
    world.settle()
    assert client.receipts() == ["c"] and taker.bodies() == ["first", "second"]


# --- limits.memory ----------------------------------------------------------------------------------------------------

MIB = 1024 * 1024


def fill(world: World) -> list[Client]:
    """Open transactions that hold as much as they may, and of whom the last was refused."""
    clients = []
    while not clients or not clients[-1].session.closing:
        clients.append(world.connect())
        clients[-1].say("BEGIN", transaction="t")
        clients[-1].publish(Q, "x" * 500_000, transaction="t")
    return clients


def test_open_transactions_of_all_clients_are_bounded_by_limits_memory() -> None:
    world = World("limits: {memory: 4MiB}")
    *clients, refused = fill(world)
    account = world.broker.memory
    assert len(clients) == 7 and account.bytes <= account.bytes_max
    (error,) = refused.take("ERROR")
    assert error.headers["error-code"] == "full" and b"limits.memory in the YAML file is 4194304" in error.body
    assert world.broker.stats.memory_refusals == 1
    quiet = world.connect()
    quiet.publish(Q, "goes on", receipt="r")
    world.settle()
    assert quiet.receipts() == ["r"]


def test_a_transaction_gives_its_memory_back_however_it_ends() -> None:
    world = World("limits: {memory: 4MiB}")
    *clients, _ = fill(world)
    clients[0].say("COMMIT", transaction="t")
    clients[1].say("ABORT", transaction="t")
    clients[2].say("DISCONNECT")
    clients[3].say("NONSENSE")
    for client in clients[4:]:
        client.drop()
    world.settle()
    assert world.broker.memory.shares["transactions"].bytes == world.broker.memory.bytes == 0
    assert len(fill(world)) == 8


def test_consumers_make_room_with_transactions_while_messages_fill_the_memory() -> None:
    world = World("limits: {memory: 1MiB}\ndestinations: [{match: '/queue/m', store: memory}]")
    sender, worker = world.connect(), world.connect()
    worker.subscribe("/queue/m")
    for _ in range(20):
        sender.publish("/queue/m", "x" * 100_000)
        world.settle()
    assert sender.rest
    for _ in range(20):
        (message,) = worker.messages()
        worker.say("BEGIN", transaction="t")
        worker.ack(message, transaction="t")
        worker.publish("/queue/out", "x" * 1_000, transaction="t")
        worker.say("COMMIT", transaction="t", receipt="c")
        world.settle()
        assert worker.receipts() == ["c"]
    assert not sender.rest
