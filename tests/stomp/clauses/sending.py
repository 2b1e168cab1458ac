"""Cases about SEND, transactions and receipts."""

from __future__ import annotations

from tests.stomp.clauses.stage import Stage


def send_needs_a_destination(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SEND", b"x", receipt="r")
    frame = peer.refused("bad-destination")
    assert frame.headers["receipt-id"] == "r"


def the_body_is_the_message(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"hello\0\n\r\n\xff")
    assert peer.hear("MESSAGE").body == b"hello\0\n\r\n\xff"


def names_are_opaque(stage: Stage) -> None:
    """Any text is a name; docs/protocol.md says which of them are queues."""
    peer = stage.peer()
    for number, name in enumerate(
        (f"{stage.name} with blanks", f"{stage.name}/ünï:cö/{{}}", f"/queue/{stage.name}?x=y")
    ):
        peer.subscribe(name, id=f"s{number}")
        peer.publish(name, b"x")
        assert peer.hear("MESSAGE", subscription=f"s{number}").headers["destination"] == name


def a_failed_send_is_an_error(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SEND", b"x", destination="/topic/*", receipt="r")
    assert peer.refused("bad-destination").headers["receipt-id"] == "r"
    assert peer.eof


def users_headers_go_through(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    own = {"colour": "blue", "X-Y": "1", "login": "l", "priority": "7"}
    peer.publish(stage.topic, b"x", **own)
    assert own.items() <= peer.hear("MESSAGE").headers.items()


def sends_in_a_transaction(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.say("BEGIN", transaction="t")
    peer.publish(stage.topic, b"1", b"2", transaction="t")
    peer.quiet()
    peer.say("COMMIT", transaction="t", receipt="c")
    assert [frame.body for frame in peer.hear_many("MESSAGE", 2)] == [b"1", b"2"]
    peer.hear("RECEIPT", receipt_id="c")


def acks_in_a_transaction(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual" if stage.version != "1.0" else "client")
    peer.publish(stage.queue, b"x")
    message = peer.hear("MESSAGE")
    for end in ("ABORT", "COMMIT"):
        peer.say("BEGIN", transaction="t")
        peer.settle(message, transaction="t")
        peer.say(end, transaction="t", receipt="e")
        peer.hear("RECEIPT", receipt_id="e")
        if end == "ABORT":  # it is held still: the next one counts
            peer.publish(stage.queue, b"next")
            peer.quiet()
    assert peer.hear("MESSAGE").body == b"next"


def nacks_in_a_transaction(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client-individual")
    peer.publish(stage.queue, b"x")
    message = peer.hear("MESSAGE")
    peer.say("BEGIN", transaction="t")
    peer.settle(message, "NACK", transaction="t")
    peer.quiet()
    peer.say("COMMIT", transaction="t")
    assert peer.hear("MESSAGE").headers["redelivered"] == "true"


def a_transaction_is_whole(stage: Stage) -> None:
    """One frame of it is refused at COMMIT, so none has happened."""
    peer, other = stage.peer(), stage.peer()
    other.subscribe(stage.topic)
    peer.say("BEGIN", transaction="t")
    peer.publish(stage.topic, b"1", transaction="t")
    peer.say("SEND", b"2", destination=stage.topic + ".nobody", mandatory="true", transaction="t", receipt="2")
    peer.hear("RECEIPT", receipt_id="2")
    peer.say("COMMIT", transaction="t", receipt="c")
    assert peer.refused("no-route").headers["receipt-id"] == "c"
    other.quiet()


def transactions_are_named(stage: Stage) -> None:
    for command in ("BEGIN", "COMMIT", "ABORT"):
        peer = stage.peer()
        peer.say(command, receipt="r")
        assert "transaction" in peer.refused("bad-header").headers["message"]


def transactions_are_known(stage: Stage) -> None:
    for command in ("COMMIT", "ABORT"):
        peer = stage.peer()
        peer.say(command, transaction="none", receipt="r")
        peer.refused("bad-transaction")


def transactions_differ(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("BEGIN", transaction="a")
    peer.say("BEGIN", transaction="b", receipt="b")
    peer.hear("RECEIPT", receipt_id="b")
    peer.say("BEGIN", transaction="a", receipt="a")
    assert peer.refused("bad-transaction").headers["receipt-id"] == "a"


def abort_undoes(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.say("BEGIN", transaction="t")
    peer.publish(stage.topic, b"1", transaction="t")
    peer.say("ABORT", transaction="t", receipt="a")
    peer.hear("RECEIPT", receipt_id="a")
    peer.quiet()
    peer.say("BEGIN", transaction="t")  # the name is free again
    peer.quiet()


def an_end_aborts(stage: Stage) -> None:
    other = stage.peer()
    other.subscribe(stage.topic)
    for polite in (True, False):
        peer = stage.peer()
        peer.say("BEGIN", transaction="t")
        peer.publish(stage.topic, b"1", transaction="t")
        if polite:
            peer.say("DISCONNECT")
            peer.rest()
        peer.close()
    other.quiet()


def a_receipt_for_any_frame(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client")
    peer.publish(stage.queue, b"x")
    peer.settle(peer.hear("MESSAGE"))
    peer.say("BEGIN", transaction="t", receipt="begin")
    peer.say("ABORT", transaction="t", receipt="abort")
    peer.say("BEGIN", transaction="t")
    peer.say("COMMIT", transaction="t", receipt="commit")
    peer.say("UNSUBSCRIBE", id="s", receipt="unsubscribe")
    peer.say("DISCONNECT", receipt="an: odd\\ \u00e4 value" if stage.version != "1.0" else "an odd: value")
    found = [frame.headers["receipt-id"] for frame in peer.rest()]
    assert found[:4] == ["begin", "abort", "commit", "unsubscribe"]
    assert found[4].startswith("an")
    assert found[4].endswith("value")


def receipt_on_connect(stage: Stage) -> None:
    """Is no frame that may ask for one: CONNECTED is the answer, and the only one."""
    peer = stage.raw()
    peer.send(b"CONNECT\naccept-version:%b\nhost:x\nreceipt:c\n\n\0" % stage.version.encode())
    peer.hear("CONNECTED")
    peer.quiet()


def receipts_are_in_order(stage: Stage) -> None:
    peer = stage.peer()
    for number in range(50):
        peer.say(
            "SEND", b"x", destination=(stage.queue, stage.topic, f"{stage.topic}.{number}")[number % 3], receipt=number
        )
    assert [frame.headers["receipt-id"] for frame in peer.hear_many("RECEIPT", 50)] == [str(n) for n in range(50)]


def processing_goes_on_after_a_lost_connection(stage: Stage) -> None:
    other = stage.peer()
    other.subscribe(stage.topic)
    peer = stage.peer()
    for number in range(20):
        peer.say("SEND", b"%d" % number, destination=stage.topic)
    peer.close()
    assert other.bodies(20) == [b"%d" % number for number in range(20)]
