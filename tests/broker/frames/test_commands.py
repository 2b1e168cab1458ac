"""Every command: what it needs, its receipt, its errors; the table against the protocol's tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.frames.commands import COMMANDS
from radiator.clock import NS_PER_SECOND
from radiator.config import LimitsConfig
from radiator.errors import ERROR_CODES
from radiator.stomp.encoder import encode
from radiator.stomp.spec import CLIENT_COMMANDS, DEAD_LETTER, RESERVED, VERSIONS
from tests.broker.harness import NOW, Client, World

Q, T = "/queue/a", "/topic/a"


def test_every_command_of_the_protocol_has_a_function() -> None:
    assert set(COMMANDS) == set(CLIENT_COMMANDS)


# --- CONNECT ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_connection_opens_in_every_version(world: World, version: str, command: str) -> None:
    client = Client(world, version)
    client.say(command, accept_version=version, host="h", login="me", passcode="x")
    (frame,) = client.take()
    assert frame.command == "CONNECTED"
    assert frame.headers["session"] == client.session.id
    assert frame.headers["server"].startswith("radiator/")
    assert frame.headers["version"] == version
    assert client.session.version == version
    assert client.session.user == ""  # nobody has verified it


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("1.0,1.1,1.2", "1.2"), ("1.2,1.0", "1.2"), ("1.1,9.9", "1.1"), (None, "1.0"), ("1.0", "1.0")],
)
def test_the_highest_common_version_is_chosen(world: World, offered: str | None, chosen: str) -> None:
    client = Client(world)
    client.say_bytes(encode("CONNECT", [] if offered is None else [("accept-version", offered)], b"", "1.0"))
    assert client.session.version == chosen
    answer = b"".join(client.session.outbox.take())
    assert (f"\nversion:{chosen}\n".encode() in answer) == (offered is not None)


@pytest.mark.parametrize("offered", ["", "2.0", "1.2.0", "one"])
def test_no_common_version_is_an_error_that_lists_ours(world: World, offered: str) -> None:
    client = Client(world)
    client.say("CONNECT", accept_version=offered)
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-version"
    assert b"1.0, 1.1, 1.2" in error.body
    assert client.session.closing


@pytest.mark.parametrize("command", sorted(set(CLIENT_COMMANDS) - {"CONNECT", "STOMP"}))
def test_nothing_comes_before_connect(world: World, command: str) -> None:
    client = Client(world)
    client.say(command, destination=T, id="0", transaction="t")
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-command"
    assert client.session.closing
    assert not world.broker.destinations


def test_a_connection_is_opened_once(world: World) -> None:
    client = world.connect()
    client.say("CONNECT", accept_version="1.2")
    assert client.error() == "bad-command"


@pytest.mark.parametrize(
    "text", ["0", "-1", "x", "", "1.5", "65537", "99999999999999999999", "1" * 5_000, "²", "000000000001999999"]
)
def test_a_window_is_a_number_in_its_range(world: World, text: str) -> None:
    client = Client(world)
    client.say("CONNECT", accept_version="1.2", max_in_flight=text)
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-header"
    assert b"65536" in error.body + error.headers["message"].encode()
    client = world.connect()
    client.subscribe(Q, prefetch_count=text)
    assert client.error() == "bad-header"
    assert not client.session.subscriptions.by_id


# --- receipts ---------------------------------------------------------------------------------------------------------

CONVERSATION = [
    ("SUBSCRIBE", {"destination": Q, "id": "0", "ack": "client-individual"}),
    ("SEND", {"destination": Q}),
    ("BEGIN", {"transaction": "t"}),
    ("SEND", {"destination": Q, "transaction": "t"}),
    ("COMMIT", {"transaction": "t"}),
    ("ACK", {}),
    ("NACK", {}),
    ("BEGIN", {"transaction": "t"}),
    ("ABORT", {"transaction": "t"}),
    ("UNSUBSCRIBE", {"id": "0"}),
    ("DISCONNECT", {}),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_command_is_receipted_in_the_order_of_the_frames(world: World, version: str) -> None:
    client = world.connect(version)
    expected = []
    for number, (command, headers) in enumerate(CONVERSATION):
        if command in ("ACK", "NACK"):
            world.settle()
            message = next(frame for frame in client.inbox if frame.command == "MESSAGE")
            client.inbox.remove(message)
            client.ack(message, command, receipt=f"r{number}")
        else:
            client.say(command, receipt=f"r{number}", **headers)
        expected.append(f"r{number}")
    world.settle()
    assert client.receipts() == expected
    assert client.session.closing


def test_receipts_of_a_pipeline_keep_the_order_although_only_some_wait_for_the_disk(world: World) -> None:
    client = world.connect()
    client.publish(Q, "1", receipt="1")
    client.subscribe(Q, receipt="2")
    client.publish(Q, "2", receipt="3")
    client.say("UNSUBSCRIBE", id="0", receipt="4")
    client.say("DISCONNECT", receipt="5")
    client.flush()
    assert client.receipts() == []
    world.settle()
    assert client.receipts() == ["1", "2", "3", "4", "5"]


def test_a_receipt_is_not_sent_before_the_sync(world: World) -> None:
    client = world.connect()
    client.publish(Q, "m", receipt="r")
    world.take()
    client.flush()
    world.write()
    client.flush()
    assert client.receipts() == []
    world.sync()
    world.completed()
    assert client.receipts() == ["r"]


@pytest.mark.parametrize("policy", ["never", "1h"])
def test_without_always_a_receipt_comes_after_the_write(policy: str) -> None:
    world = World(f"defaults: {{fsync: {policy}}}")
    client = world.connect()
    client.publish(T, "m", receipt="r")
    before = world.fs.calls["fdatasync"]
    world.settle()
    assert client.receipts() == ["r"]
    assert world.fs.calls["fdatasync"] == before


@pytest.mark.parametrize("policy", ["never", "1h"])
def test_one_message_can_ask_for_the_sync_whatever_the_rule(policy: str) -> None:
    world = World(f"defaults: {{fsync: {policy}}}")
    client = world.connect()
    client.publish(T, "m", receipt="r", durability="fsync")
    world.take()
    assert client.receipts() == []
    before = world.fs.calls["fdatasync"]
    world.write()
    world.sync()
    assert world.fs.calls["fdatasync"] == before + 1
    world.completed()
    assert client.receipts() == ["r"]


def test_an_interval_is_kept() -> None:
    world = World("defaults: {fsync: 5s}")
    client = world.connect()
    client.publish(T, "m")
    world.settle()
    before = world.fs.calls["fdatasync"]
    world.tick(4.9)
    assert world.fs.calls["fdatasync"] == before
    world.tick(0.2)
    assert world.fs.calls["fdatasync"] == before + 1
    world.tick(100)
    assert world.fs.calls["fdatasync"] == before + 1


def test_one_sync_covers_what_all_clients_sent(world: World) -> None:
    clients = [world.connect() for _ in range(10)]
    for client in clients:
        client.publish(T, *"12345", receipt="r")
    before = world.fs.calls["fdatasync"]
    world.commit()
    assert world.fs.calls["fdatasync"] == before + 1
    world.settle()
    assert [len(client.receipts()) for client in clients] == [5] * 10


def test_the_receipt_of_an_ack_waits_for_the_cursor(world: World) -> None:
    client = world.connect()
    client.publish(Q, "m")
    client.subscribe(Q)
    world.settle()
    client.ack(client.messages()[0], receipt="r")
    world.take()
    world.write()
    client.flush()
    assert client.receipts() == []
    world.sync()
    world.completed()
    assert client.receipts() == ["r"]


def test_a_repeated_ack_is_not_receipted_before_the_first_is_stored(world: World) -> None:
    """The second ack changes nothing, but its receipt says that the message is settled."""
    client = world.connect()
    client.publish(Q, "m")
    client.subscribe(Q)
    world.settle()
    (message,) = client.messages()
    client.ack(message)
    world.take()
    world.write()
    client.ack(message, receipt="r")
    client.flush()
    assert client.receipts() == []
    world.completed()
    world.settle()
    assert client.receipts() == ["r"]
    world.power_cut()
    other = world.connect()
    other.subscribe(Q)
    world.settle()
    assert other.messages() == []


def test_the_receipt_of_a_send_says_where_it_went_and_to_how_many(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/*", id="0")
    client.subscribe(T, id="1")
    client.publish(T, "1", "2", receipt="r")
    world.settle()
    first, second = client.take("RECEIPT")
    assert (first.headers["offset"], second.headers["offset"]) == ("0", "1")
    assert first.headers["partition"] == T
    assert first.headers["delivered-to"] == "2"


@pytest.mark.parametrize("receipt", ["a:b", "a\\b", "ü", "a b", " x ", "x" * 1_000, "\\n", "line\nbreak"])
def test_a_receipt_id_comes_back_as_it_was(world: World, receipt: str) -> None:
    for version in ("1.1", "1.2"):
        client = world.connect(version)
        client.publish(T, "m", receipt=receipt)
        world.settle()
        assert client.receipts() == [receipt]


# --- SEND -------------------------------------------------------------------------------------------------------------


def echo(world: World, body: bytes = b"m", version: str = "1.2", **headers: str) -> dict[str, str]:
    """The headers with which a message comes back."""
    client = world.connect(version)
    client.subscribe(T, ack="auto")
    client.publish(T, body, **headers)
    world.settle()
    (message,) = client.messages()
    assert message.body == body
    return dict(message.headers)


def test_headers_are_carried_as_they_are(world: World) -> None:
    sent = {"content_type": "text/plain", "tag_carrier": "UA", "correlation_id": "7", "odd": "a:b\\c\nd\r ü"}
    headers = echo(world, **sent)
    assert {name: headers[name.replace("_", "-")] for name in sent} == sent


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("to", VERSIONS)
def test_headers_reach_every_version(world: World, version: str, to: str) -> None:
    reader = world.connect(to)
    reader.subscribe(T, ack="auto")
    sender = world.connect(version)
    sender.publish(T, "m", odd="a:b\\c")
    world.settle()
    (message,) = reader.messages()
    assert message.headers["odd"] == "a:b\\c"


@pytest.mark.parametrize("name", sorted(RESERVED - {"partition"}))
def test_a_client_cannot_write_the_brokers_headers(world: World, name: str) -> None:
    headers = echo(world, **{name.replace("-", "_"): "forged"})
    assert headers.get(name) != "forged"


@pytest.mark.parametrize("name", sorted(DEAD_LETTER))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_cannot_write_the_headers_of_a_dead_letter(world: World, name: str, version: str) -> None:
    client = world.connect(version)
    client.subscribe(T, ack="auto")
    headers = {name.replace("-", "_"): "forged", "own": "a:b"}
    client.publish(T, "at once", **headers)
    client.say("BEGIN", transaction="t")
    client.publish(T, "in a transaction", transaction="t", **headers)
    client.say("COMMIT", transaction="t")
    world.settle()
    messages = client.messages()
    assert [name in message.headers for message in messages] == [False, False]
    assert all(message.headers["own"] for message in messages)


def test_hop_by_hop_headers_are_not_carried(world: World) -> None:
    client = world.connect()
    client.subscribe(T, ack="auto")
    client.say("BEGIN", transaction="t")
    client.publish(T, "m", transaction="t", receipt="r")
    client.say("COMMIT", transaction="t")
    world.settle()
    (message,) = client.messages()
    assert not {"transaction", "receipt"} & set(message.headers)
    assert message.headers["content-length"] == "1"


@pytest.mark.parametrize(
    "body", [b"", b"\0", b"a\0b\0", bytes(range(256)), b"\n", b"\r\n\0\n", "ü".encode(), b"x" * 100_000]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_bodies_are_bytes(world: World, body: bytes, version: str) -> None:
    assert echo(world, body, version)["content-length"] == str(len(body))


@pytest.mark.parametrize(
    "text", ["0", "1356998400000000000", "2013-01-01T05:15:00Z", "1960-01-01T00:00:00Z", "9223372036854775807"]
)
@pytest.mark.parametrize("header", ["event_time", "transmit_time"])
def test_the_clients_times_are_carried_verbatim(world: World, header: str, text: str) -> None:
    assert echo(world, **{header: text})[header.replace("_", "-")] == text


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2013-01-01", "9223372036854775808", "9999-12-31T23:59:59Z", "-1", "1e9"]
)
@pytest.mark.parametrize("header", ["event-time", "transmit-time"])
def test_what_is_not_a_time_is_refused(world: World, header: str, text: str) -> None:
    client = world.connect()
    client.publish(T, "m", receipt="r", **{header: text})
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-time"
    assert header in error.headers["message"]
    assert error.headers["receipt-id"] == "r"


def test_a_send_with_a_bad_header_creates_no_destination(world: World) -> None:
    client = world.connect()
    client.publish("/queue/new", "x", event_time="yesterday")
    assert client.error() == "bad-time"
    assert "/queue/new" not in world.broker.destinations


def test_a_bad_header_of_a_send_in_a_transaction_is_refused_before_its_commit(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "x", transaction="t", delay="soon")
    assert client.error() == "bad-header"


def test_the_receive_time_never_falls(world: World) -> None:
    client = world.connect()
    client.subscribe(T, ack="auto")
    for step in (5, -3, 1, -10, 20):
        world.now += step * NS_PER_SECOND
        client.publish(T, "m")
        world.settle()
    times = [int(message.headers["receive-time"]) for message in client.messages()]
    assert times == sorted(times)
    assert times[0] == NOW + 5 * NS_PER_SECOND


@pytest.mark.parametrize("missing", [{}, {"destination": ""}])
def test_send_needs_a_destination(world: World, missing: dict[str, str]) -> None:
    client = world.connect()
    client.say("SEND", "m", **missing)
    assert client.error() == "bad-destination"


def test_only_fsync_is_a_durability(world: World) -> None:
    client = world.connect()
    client.publish(T, "m", durability="maybe")
    assert client.error() == "bad-header"


def test_equal_headers_of_many_clients_are_understood_once_and_meant_for_each(world: World) -> None:
    """Plans are shared through the parser's cache; receipts, bodies and times must not be."""
    clients = [world.connect() for _ in range(3)]
    reader = world.connect()
    reader.subscribe(T, ack="auto")
    for number in range(9):
        clients[number % 3].publish(T, f"{number}", receipt=f"r{number}", same="header")
    world.settle()
    assert reader.bodies() == [str(number) for number in range(9)]
    assert [client.receipts() for client in clients] == [["r0", "r3", "r6"], ["r1", "r4", "r7"], ["r2", "r5", "r8"]]


# --- SUBSCRIBE, UNSUBSCRIBE -------------------------------------------------------------------------------------------

BAD_SUBSCRIPTIONS = [
    ({"destination": None}, "bad-destination"),
    ({"destination": ""}, "bad-destination"),
    ({"id": None}, "bad-header"),
    ({"ack": "sometimes"}, "bad-header"),
    ({"ack": "AUTO"}, "bad-header"),
    ({"prefetch_count": "-1"}, "bad-header"),
    ({"destination": "/topic/>.x"}, "bad-pattern"),
    ({"destination": "/topic/a,"}, "bad-pattern"),
    ({"destination": ",".join(f"/topic/{number}" for number in range(101))}, "bad-pattern"),
    ({"start_position": "soon"}, "bad-position"),
    ({"stop_position": "soon"}, "bad-position"),
    ({"selector": "a ="}, "bad-selector"),
    ({"selector": "redelivered"}, "bad-selector"),
    ({"durable": "maybe"}, "bad-header"),
    ({"subscription_name": "x", "group": "g"}, "bad-header"),
    ({"group": "g", "destination": "/queue/a"}, "bad-destination"),
    ({"destination": "/temp-queue/x@another"}, "denied"),
]


@pytest.mark.parametrize(("change", "code"), BAD_SUBSCRIPTIONS)
def test_a_bad_subscription_is_refused_and_nothing_is_left_of_it(
    world: World, change: dict[str, str], code: str
) -> None:
    client = world.connect()
    headers = {"destination": T, "id": "0", **change}
    client.say("SUBSCRIBE", receipt="r", **{name: value for name, value in headers.items() if value is not None})
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == code
    assert error.headers["receipt-id"] == "r"
    assert client.receipts() == []
    client.drop()
    world.holds_nothing()


def test_what_is_not_offered_may_be_said_to_be_unwanted(world: World) -> None:
    client = world.connect()
    client.subscribe(T, durable="false", receipt="r")
    world.settle()
    assert client.receipts() == ["r"]


def test_an_id_is_unique_on_its_connection_and_free_after_unsubscribe(world: World) -> None:
    client, other = world.connect(), world.connect()
    client.subscribe(T, id="x")
    other.subscribe(T, id="x")
    client.say("UNSUBSCRIBE", id="x")
    client.subscribe(T, id="x")
    assert not client.session.closing
    client.subscribe(T, id="x")
    assert client.error() == "bad-subscription"


def test_the_number_of_subscriptions_is_limited() -> None:
    world = World(limits=LimitsConfig(subscriptions=3))
    client = world.connect()
    for number in range(4):
        client.subscribe(T, id=str(number))
    assert client.error() == "too-many"


def test_version_1_0_may_leave_out_the_id(world: World) -> None:
    client = world.connect("1.0")
    client.say("SUBSCRIBE", destination=T)
    client.publish(T, "1")
    world.settle()
    (message,) = client.messages()
    assert message.headers["destination"] == T
    client.say("UNSUBSCRIBE", destination=T, receipt="r")
    client.publish(T, "2")
    world.settle()
    assert client.receipts() == ["r"]
    assert client.messages() == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("command", ["SUBSCRIBE", "UNSUBSCRIBE"])
def test_later_versions_need_the_id(world: World, version: str, command: str) -> None:
    client = world.connect(version)
    client.say(command, destination=T)
    assert client.error() == "bad-header"


def test_unsubscribing_what_is_not_subscribed_is_an_error(world: World) -> None:
    client = world.connect()
    client.say("UNSUBSCRIBE", id="0")
    assert client.error() == "bad-subscription"


def test_after_unsubscribe_nothing_more_is_sent(world: World) -> None:
    client = world.connect()
    client.subscribe(T, ack="auto")
    client.publish(T, "1")
    world.commit()
    client.say("UNSUBSCRIBE", id="0", receipt="r")
    world.settle()
    assert client.messages() == []
    assert client.receipts() == ["r"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("/topic/*", "ab"),
        ("/topic/>", "abcd"),
        ("/topic/#", "abcd"),
        ("/topic/a.*", "cd"),
        ("/topic/a,/topic/b", "ab"),
        ("/topic/a, /topic/*", "ab"),
        ("/topic/#.x", "c"),
    ],
)
def test_wildcards_match_whole_segments_and_deliver_once(world: World, pattern: str, matched: str) -> None:
    names = {"a": "/topic/a", "b": "/topic/b", "c": "/topic/a.x", "d": "/topic/a/y"}
    early, late, sender = world.connect(), world.connect(), world.connect()
    early.subscribe(pattern, ack="auto")
    world.settle()
    for letter, name in names.items():
        sender.publish(name, letter)
    world.settle()
    assert sorted(early.bodies()) == list(matched)
    late.subscribe(pattern, ack="auto")
    world.settle()
    assert late.messages() == []
    for letter, name in names.items():
        sender.publish(name, letter)
    world.settle()
    assert sorted(early.bodies()) == sorted(late.bodies()) == list(matched)


# --- DISCONNECT, the unknown ------------------------------------------------------------------------------------------


def test_frames_after_disconnect_are_ignored(world: World) -> None:
    client = world.connect()
    client.say_bytes(
        encode("DISCONNECT", [("receipt", "bye")]) + encode("SEND", [("destination", T), ("receipt", "x")], b"m")
    )
    world.settle()
    assert client.receipts() == ["bye"]
    assert not world.broker.destinations


@pytest.mark.parametrize("command", ["HELLO", "send", "MESSAGE", "RECEIPT", "ERROR", "CONNECTED"])
def test_an_unknown_command_is_an_error(world: World, command: str) -> None:
    client = world.connect()
    client.say(command, receipt="r")
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-command"
    assert client.session.closing


def test_an_error_comes_after_the_receipts_of_earlier_frames(world: World) -> None:
    client = world.connect()
    client.publish(T, "m", receipt="r")
    client.say("NONSENSE", receipt="n")
    client.flush()
    assert client.take() == []
    world.settle()
    receipt, error = client.take()
    assert receipt.headers["receipt-id"] == "r"
    assert error.headers["receipt-id"] == "n"


def test_frames_after_an_error_are_ignored(world: World) -> None:
    client = world.connect()
    client.say_bytes(encode("NONSENSE") + encode("SEND", [("destination", T)], b"m"))
    world.settle()
    assert not world.broker.destinations


VALUES = st.one_of(
    st.sampled_from(
        [Q, T, "0", "1", "t", "auto", "client", "true", "first", "end", "/topic/*", "/temp-queue/x", "", "@"]
    ),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12),
)
NAMES = st.sampled_from(
    [
        "destination", "id", "ack", "message-id", "subscription", "transaction", "receipt", "prefetch-count",
        "partition", "start-position", "stop-position", "browser", "event-time", "reply-to", "mandatory",
        "durability", "selector",
        "x-stream-offset", "credit", "durable", "requeue", "partition-key", "content-length", "persistent", "expires",
    ]
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*CLIENT_COMMANDS, "SUBSCRIBE", "SEND", "ACK"]), st.dictionaries(NAMES, VALUES, max_size=5)
        ),
        max_size=8,
    )
)
def test_no_frame_raises_anything_and_every_error_is_in_the_table(frames: list[tuple[str, dict[str, str]]]) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/*", id="0", prefetch_count=3)
    for command, headers in frames:
        client.say_bytes(encode(command, headers.items(), b"m", "1.2"))
    world.settle()
    for error in client.take("ERROR"):
        assert error.headers["error-code"] in ERROR_CODES
        assert client.session.closing
    client.drop()
    world.settle()
    world.holds_nothing()
