"""Cases about RECEIPT, ERROR, DISCONNECT and the time after."""

from __future__ import annotations

from tests.stomp.clauses.stage import Stage


def disconnect_is_answered_last(stage: Stage) -> None:
    """The receipt says that everything before it has happened; then the broker closes."""
    other, peer = stage.peer(), stage.peer()
    other.subscribe(stage.topic)
    for number in range(20):
        peer.say("SEND", b"%d" % number, destination=stage.topic)
    peer.say("DISCONNECT", receipt="77")
    (frame,) = peer.rest()
    assert (frame.command, frame.headers) == ("RECEIPT", {"receipt-id": "77"})
    assert other.bodies(20) == [b"%d" % number for number in range(20)]


def disconnect_without_receipt(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("DISCONNECT")
    assert peer.rest() == []


def nothing_counts_after_disconnect(stage: Stage) -> None:
    other, peer = stage.peer(), stage.peer()
    other.subscribe(stage.topic)
    peer.send(b"DISCONNECT\nreceipt:bye\n\n\0SEND\ndestination:%b\nreceipt:1\n\nx\0" % stage.topic.encode())
    assert [frame.headers["receipt-id"] for frame in peer.rest()] == ["bye"]
    other.quiet()


def just_closing(stage: Stage) -> None:
    other, peer = stage.peer(), stage.peer()
    peer.subscribe(stage.queue, ack="client")
    peer.publish(stage.queue, b"x")
    peer.hear("MESSAGE")
    peer.close()
    other.subscribe(stage.queue)
    assert other.hear("MESSAGE").body == b"x"


def receipts_follow_the_effect(stage: Stage) -> None:
    peer, other = stage.peer(), stage.peer()
    peer.say("SEND", b"x", destination=stage.topic, receipt="r:1" if stage.version != "1.0" else "r1")
    frame = peer.hear("RECEIPT")
    assert frame.headers["receipt-id"].startswith("r")
    assert frame.body == b""
    other.subscribe(stage.topic, start_position="first")
    assert other.hear("MESSAGE").body == b"x"


def receipts_only_if_asked(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SEND", b"x", destination=stage.topic)
    peer.say("BEGIN", transaction="t")
    peer.quiet()


def errors_close(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"SHOUT\nreceipt:1\n\n\0SEND\ndestination:%b\nreceipt:2\n\n\0" % stage.topic.encode())
    peer.refused("bad-command")
    assert peer.eof


def errors_have_a_message(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SHOUT", receipt="r")
    frame = peer.refused("bad-command")
    assert "SHOUT" in frame.headers["message"]
    assert "\n" not in frame.headers["message"]
    assert frame.body


def errors_name_the_receipt(stage: Stage) -> None:
    peer = stage.peer()
    receipt = "a:b\\c" if stage.version != "1.0" else "a:b"
    peer.say("SHOUT", receipt=receipt)
    assert peer.refused("bad-command").headers["receipt-id"] == receipt
    peer = stage.peer()
    peer.say("SHOUT")
    assert "receipt-id" not in peer.refused("bad-command").headers


def errors_arrive_although_more_is_sent(stage: Stage) -> None:
    """We linger: what the client goes on sending does not reset the connection before it has read the ERROR."""
    peer = stage.peer()
    peer.say("SHOUT")
    try:
        for _ in range(50):
            peer.send(b"SEND\ndestination:%b\n\n%b\0" % (stage.topic.encode(), b"x" * 4_000))
    except (BrokenPipeError, ConnectionResetError):
        pass
    peer.refused("bad-command")


def rapid_connections(stage: Stage) -> None:
    for number in range(40):
        peer = stage.peer()
        if number % 2:
            peer.say("DISCONNECT", receipt="bye")
            assert peer.rest()
        peer.close()
    stage.peer().quiet()


def server_frames_are_these(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"x")
    peer.say("SHOUT")
    commands = [frame.command for frame in peer.rest()]
    assert sorted(commands) == ["ERROR", "MESSAGE"]
