"""Cases about SUBSCRIBE, MESSAGE, ACK, NACK, UNSUBSCRIBE."""

from __future__ import annotations

from tests.stomp.clauses.stage import Stage


def subscribe_needs_a_destination(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SUBSCRIBE", id="0", receipt="r")
    assert peer.refused("bad-destination").headers["receipt-id"] == "r"


def messages_come_from_then_on(stage: Stage) -> None:
    peer = stage.peer()
    peer.publish(stage.topic, b"before")
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"1", b"2")
    assert peer.bodies(2) == [b"1", b"2"]


def a_failed_subscribe_is_an_error(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SUBSCRIBE", id="0", destination=stage.topic, ack="sometimes", receipt="r")
    frame = peer.refused("bad-header")
    assert "client-individual" in frame.headers["message"]
    assert peer.eof


def subscribe_needs_an_id(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SUBSCRIBE", destination=stage.topic, receipt="r")
    assert peer.refused("bad-header").headers["receipt-id"] == "r"


def ids_differ(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic, id="a")
    peer.say("SUBSCRIBE", destination=stage.queue, id="a", receipt="r")
    assert peer.refused("bad-subscription").headers["receipt-id"] == "r"


def several_subscriptions_on_one_connection(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic, id="a")
    peer.subscribe(stage.topic, id="b")
    peer.publish(stage.topic, b"x")
    assert {frame.headers["subscription"] for frame in peer.hear_many("MESSAGE", 2)} == {"a", "b"}
    peer.say("UNSUBSCRIBE", id="a")
    peer.publish(stage.topic, b"y")
    assert peer.hear("MESSAGE").headers["subscription"] == "b"
    peer.quiet()


def server_headers_are_offered(stage: Stage) -> None:
    peer = stage.peer()
    peer.publish(stage.topic, b"1", b"2")
    peer.subscribe(stage.topic, start_position="first")
    assert peer.bodies(2) == [b"1", b"2"]


def selectors(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic, selector="colour = 'blue'")
    peer.publish(stage.topic, b"x", colour="red")
    peer.publish(stage.topic, b"y", colour="blue")
    assert peer.hear("MESSAGE").body == b"y"
    peer.quiet()


def auto_is_the_default(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SUBSCRIBE", id="s", destination=stage.queue)
    peer.publish(stage.queue, b"1", b"2", b"3")
    assert peer.bodies(3) == [b"1", b"2", b"3"]
    assert b"\nack:" not in peer.raw
    peer.say("DISCONNECT")
    peer.rest()
    other = stage.peer()
    other.subscribe(stage.queue)
    other.quiet()


def sent_is_delivered_under_auto(stage: Stage) -> None:
    auto_is_the_default(stage)


def client_mode_is_cumulative(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client", prefetch_count="10")
    peer.publish(stage.queue, b"1", b"2", b"3")
    messages = peer.hear_many("MESSAGE", 3)
    peer.settle(messages[1])
    peer.say("UNSUBSCRIBE", id="s", receipt="u")
    peer.hear("RECEIPT", receipt_id="u")
    peer.subscribe(stage.queue, id="again", ack="client", prefetch_count="10")
    assert peer.hear("MESSAGE").body == b"3"
    peer.quiet()


def client_mode_stays_within_its_subscription(stage: Stage) -> None:
    peer = stage.peer()
    for name in ("a", "b"):
        peer.subscribe(f"{stage.queue}.{name}", id=name, ack="client", prefetch_count="10")
        peer.publish(f"{stage.queue}.{name}", b"1", b"2")
    first = peer.hear_many("MESSAGE", 4)
    peer.settle(first[-1])
    peer.say("DISCONNECT", receipt="bye")
    peer.rest()
    other = stage.peer()
    other.subscribe(f"{stage.queue}.a", ack="auto")
    assert other.bodies(2) == [b"1", b"2"]
    other.subscribe(f"{stage.queue}.b", id="b")
    other.quiet()


def individual_mode_is_not_cumulative(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual", prefetch_count="10")
    peer.publish(stage.queue, b"1", b"2", b"3")
    messages = peer.hear_many("MESSAGE", 3)
    peer.settle(messages[1])
    peer.say("DISCONNECT", receipt="bye")
    peer.rest()
    other = stage.peer()
    other.subscribe(stage.queue)
    assert other.bodies(2) == [b"1", b"3"]
    other.quiet()


def unacknowledged_goes_to_another(stage: Stage) -> None:
    peer, other = stage.peer(), stage.peer()
    peer.subscribe(stage.queue, ack="client")
    peer.publish(stage.queue, b"x")
    assert peer.hear("MESSAGE")
    other.subscribe(stage.queue, ack="client")
    other.quiet()
    peer.close()
    message = other.hear("MESSAGE")
    assert (message.body, message.headers["redelivered"]) == (b"x", "true")


def unacknowledged_is_not_consumed(stage: Stage) -> None:
    unacknowledged_goes_to_another(stage)


def unsubscribe_ends_it(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.say("UNSUBSCRIBE", id="s", receipt="u")
    peer.hear("RECEIPT", receipt_id="u")
    peer.publish(stage.topic, b"x")
    peer.quiet()


def unsubscribe_by_destination(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic, id=None)
    peer.publish(stage.topic, b"x")
    assert peer.hear("MESSAGE").headers["subscription"] == stage.topic
    peer.say("UNSUBSCRIBE", destination=stage.topic, receipt="u")
    peer.hear("RECEIPT", receipt_id="u")
    peer.publish(stage.topic, b"y")
    peer.quiet()


def unsubscribe_names_a_subscription(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("UNSUBSCRIBE", receipt="r")
    peer.refused("bad-header")
    peer = stage.peer()
    peer.say("UNSUBSCRIBE", id="none", receipt="r")
    assert peer.refused("bad-subscription").headers["receipt-id"] == "r"


def ack_names_a_delivery(stage: Stage) -> None:
    for command in ("ACK", "NACK"):
        peer = stage.peer()
        peer.say(command, receipt="r")
        peer.refused("bad-header")
        peer = stage.peer()
        peer.say(command, id="0-never@1", message_id="never@1", subscription="s", receipt="r")
        assert peer.refused("bad-ack").headers["receipt-id"] == "r"


def ack_consumes(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client")
    peer.publish(stage.queue, b"1", b"2")
    peer.settle(peer.hear("MESSAGE"))
    assert peer.hear("MESSAGE").body == b"2"
    peer.close()
    other = stage.peer()
    other.subscribe(stage.queue)
    assert other.hear("MESSAGE").body == b"2"
    other.quiet()


def ack_without_subscription(stage: Stage) -> None:
    """1.1 asks for it; the id alone says which delivery is meant."""
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual")
    peer.publish(stage.queue, b"1", b"2")
    peer.say("ACK", message_id=peer.hear("MESSAGE").headers["message-id"])
    assert peer.hear("MESSAGE").body == b"2"


def nack_refuses(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual")
    peer.publish(stage.queue, b"1", b"2")
    peer.settle(peer.hear("MESSAGE"), "NACK")
    message = peer.hear("MESSAGE")
    assert (message.body, message.headers["redelivered"], message.headers["delivery-count"]) == (b"1", "true", "2")


def nack_is_cumulative_under_client(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client", prefetch_count="3")
    peer.publish(stage.queue, b"1", b"2", b"3")
    messages = peer.hear_many("MESSAGE", 3)
    peer.settle(messages[1], "NACK")
    again = peer.hear_many("MESSAGE", 2)
    assert {frame.body for frame in again} == {b"1", b"2"}
    peer.quiet()


def nack_is_single_under_individual(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual", prefetch_count="3")
    peer.publish(stage.queue, b"1", b"2", b"3")
    messages = peer.hear_many("MESSAGE", 3)
    peer.settle(messages[1], "NACK")
    assert peer.hear("MESSAGE").body == b"2"
    peer.quiet()


def nack_in_1_0(stage: Stage) -> None:
    nack_refuses(stage)


def message_says_where_it_was_sent(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(f"/topic/{stage.name}.>", id="w")
    peer.publish(f"{stage.topic}.one", b"x")
    assert peer.hear("MESSAGE").headers["destination"] == f"{stage.topic}.one"


def message_ids_are_unique(stage: Stage) -> None:
    peer = stage.peer()
    name = f"{stage.queue}:with:colons"
    peer.subscribe(name, ack="client-individual", prefetch_count="10")
    peer.publish(name, b"1", b"2", b"3")
    messages = peer.hear_many("MESSAGE", 3)
    ids = {frame.headers["message-id"] for frame in messages} | {frame.headers["ack"] for frame in messages}
    assert len(ids) == 6
    assert not any(set(each) & set(":\\ \r\n") for each in ids)
    for message in messages:
        peer.settle(message)


def message_names_its_subscription(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic, id="an: odd/id" if stage.version != "1.0" else "an odd/id")
    peer.publish(stage.topic, b"x")
    assert peer.hear("MESSAGE").headers["subscription"].startswith("an")
    assert peer.raw.count(b"\nsubscription:an") == 1


def message_has_an_ack_header_when_it_must_be_acknowledged(stage: Stage) -> None:
    peer = stage.peer()
    for mode in ("client", "client-individual", "auto"):
        peer.subscribe(f"{stage.queue}.{mode}", id=mode, ack=mode)
        peer.publish(f"{stage.queue}.{mode}", b"x")
        message = peer.hear("MESSAGE", subscription=mode)
        assert ("ack" in message.headers) == (mode != "auto")
        if mode != "auto":
            peer.say("ACK", id=message.headers["ack"], receipt="a")
            peer.hear("RECEIPT", receipt_id="a")


def message_has_what_was_sent(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"x", colour="blue", content_type="text/plain")
    headers = peer.hear("MESSAGE").headers
    assert (headers["colour"], headers["content-type"], headers["content-length"]) == ("blue", "text/plain", "1")
    assert {"offset", "partition", "receive-time"} <= headers.keys()


def our_client_names_deliveries(stage: Stage) -> None:
    headers = {"message-id": "m", "ack": "a", "subscription": "s"}
    wanted = {"1.0": b"message-id:m", "1.1": b"message-id:m\nsubscription:s", "1.2": b"id:a"}[stage.version]
    for command in ("ack", "nack"):
        data: bytes = getattr(stage.client(), command)(headers, transaction="t")
        assert wanted in data
        assert b"\ntransaction:t\n" in data


def our_client_gives_ids(stage: Stage) -> None:
    client = stage.client()
    assert client.subscribe("/q", "7", "client") == b"SUBSCRIBE\ndestination:/q\nid:7\nack:client\n\n\0"
    assert client.unsubscribe("7") == b"UNSUBSCRIBE\nid:7\n\n\0"
    assert client.begin("t") == b"BEGIN\ntransaction:t\n\n\0"
