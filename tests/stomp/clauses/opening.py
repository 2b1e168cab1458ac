"""Cases about the opening: CONNECT, CONNECTED, the version, heart-beats."""

from __future__ import annotations

import re

from radiator.stomp.connection import ClientConnection
from radiator.stomp.heartbeat import negotiate
from radiator.stomp.spec import CLIENT_COMMANDS, VERSIONS
from tests.stomp.clauses.stage import CONNECT, Stage

LATER = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "ACK", "NACK", "DISCONNECT")


def connect_is_answered_connected(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(CONNECT % stage.version.encode() if stage.version != "1.0" else b"CONNECT\nlogin: a\npasscode:b\n\n\0")
    peer.hear("CONNECTED")
    peer.quiet()


def connect_comes_first(stage: Stage) -> None:
    for command in LATER:
        peer = stage.raw()
        peer.send(b"%b\ndestination:/topic/a\nid:0\ntransaction:t\n\n\0" % command.encode())
        peer.refused("bad-command")


def session_is_named(stage: Stage) -> None:
    sessions = set()
    for _ in range(3):
        peer = stage.raw()
        peer.send(CONNECT % stage.version.encode())
        sessions.add(peer.hear("CONNECTED").headers["session"])
    assert len(sessions) == 3
    assert not any(set(session) & set(": \\") for session in sessions)


def refusal_of_a_connection_says_why(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\naccept-version:%b\nhost:x\nmax-in-flight:lots\nreceipt:c\n\n\0" % stage.version.encode())
    frame = peer.refused("bad-header")
    assert "max-in-flight" in frame.headers["message"]
    assert frame.headers["receipt-id"] == "c"
    assert peer.eof


def stomp_opens_too(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"STOMP\naccept-version:%b\nhost:x\n\n\0" % stage.version.encode())
    assert peer.hear("CONNECTED").headers["version"] == stage.version
    peer.quiet()


def our_client_says_connect(stage: Stage) -> None:
    data = ClientConnection(versions=(stage.version,)).connect_frame("h", login="me", passcode="secret")
    assert data.startswith(b"CONNECT\n")
    for line in (b"accept-version:%b" % stage.version.encode(), b"host:h", b"login:me", b"passcode:secret"):
        assert line in data.split(b"\n")


def host_of_any_name_or_none(stage: Stage) -> None:
    for line in (b"host:nobody.example\n", b"host:/\n", b"host:\n", b""):
        peer = stage.raw()
        peer.send(b"CONNECT\naccept-version:%b\n%b\n\0" % (stage.version.encode(), line))
        assert peer.hear("CONNECTED")


def login_may_be_there(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\npasscode:p\nhost:x\nlogin:l\naccept-version:%b\n\n\0" % stage.version.encode())
    assert peer.hear("CONNECTED")


def connected_names_the_version(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(CONNECT % stage.version.encode())
    assert peer.hear("CONNECTED").headers["version"] == stage.version


def connected_names_the_server(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(CONNECT % stage.version.encode())
    assert re.fullmatch(r"[!-~]+/[\w.]+( \S+)*", peer.hear("CONNECTED").headers["server"])


def no_version_means_1_0(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\nhost:x\nheart-beat:100,100\n\n\0")
    headers = peer.hear("CONNECTED").headers
    assert "version" not in headers
    assert "heart-beat" not in headers
    peer.send(b"SEND\ndestination:%b\nodd:\\t\nreceipt:r\n\n\0" % stage.topic.encode())
    peer.hear("RECEIPT", receipt_id="r")


def highest_common_version(stage: Stage) -> None:
    upto = VERSIONS[: VERSIONS.index(stage.version) + 1]
    for offered in (",".join(upto), ",".join((*upto[::-1], "2.0")), f"0.9, {stage.version} ,3,{stage.version}"):
        peer = stage.raw()
        peer.send(b"CONNECT\naccept-version:%b\nhost:x\n\n\0" % offered.encode())
        assert peer.hear("CONNECTED").headers["version"] == stage.version


def no_common_version(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\naccept-version:2.0,2.1\nhost:x\n\n\0")
    frame = peer.refused("bad-version")
    assert frame.headers["version"] == "1.0,1.1,1.2"
    assert b"1.0, 1.1, 1.2" in frame.body
    assert peer.eof


def our_client_lists_versions_upwards(stage: Stage) -> None:
    assert b"\naccept-version:1.0,1.1,1.2\n" in ClientConnection().connect_frame("h")


def heart_beats_are_declared(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\naccept-version:%b\nhost:x\nheart-beat:0,5000\n\n\0" % stage.version.encode())
    assert re.fullmatch(r"\d+,\d+", peer.hear("CONNECTED").headers["heart-beat"])
    client = ClientConnection(heart_beat=(100, 200))
    assert b"\nheart-beat:100,200\n" in client.connect_frame("h")


def heart_beat_of_another_form(stage: Stage) -> None:
    for value in (b"1", b"1,2,3", b"-1,0", b"x,y", b"1.5,2", b""):
        peer = stage.raw()
        peer.send(b"CONNECT\naccept-version:%b\nhost:x\nheart-beat:%b\n\n\0" % (stage.version.encode(), value))
        peer.refused("bad-header")


def no_heart_beat_header_is_none(stage: Stage) -> None:
    client = stage.client()
    assert client.heart_beat == (0, 0)
    assert client.heart_beat_clock(2.0, 0).next_check_ns > 10**18


def zero_means_none(stage: Stage) -> None:
    assert negotiate((0, 9), (9, 9)) == (0, 9)
    assert negotiate((9, 9), (9, 0)) == (0, 9)
    assert negotiate((9, 0), (9, 9)) == (9, 0)


def the_larger_interval_holds(stage: Stage) -> None:
    assert negotiate((100, 4000), (3000, 200)) == (200, 4000)
    client = ClientConnection(heart_beat=(100, 4000))
    client.receive(b"CONNECTED\nversion:%b\nheart-beat:3000,200\n\n\0" % stage.version.encode())
    assert client.heart_beat == (200, 4000)


def any_bytes_are_a_beat(stage: Stage) -> None:
    clock = ClientConnection(heart_beat=(0, 100)).heart_beat_clock(2.0, 0)
    client = ClientConnection(heart_beat=(100, 100))
    client.receive(b"CONNECTED\nversion:1.2\nheart-beat:100,100\n\n\0")
    clock = client.heart_beat_clock(2.0, 0)
    clock.received(150_000_000)  # whoever calls it has not looked what came
    assert not clock.is_dead(349_000_000)
    assert clock.is_dead(351_000_000)


def the_sender_is_early_and_the_receiver_patient(stage: Stage) -> None:
    client = ClientConnection(heart_beat=(1000, 1000))
    client.receive(b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\n\n\0")
    clock = client.heart_beat_clock(2.0, 0)
    assert clock.should_send(500_000_000)
    assert not clock.is_dead(2_000_000_000)


def a_beat_is_an_eol(stage: Stage) -> None:
    """``tests/server/test_heartbeat_timeouts.py`` has beats in time; here, that they are taken and given as EOLs."""
    peer = stage.peer()
    peer.send(b"\n\r\n\n")
    peer.quiet()
    client = stage.client()
    assert client.receive(b"\n\r\n\n") == []
    assert client.failed is None


def each_frame_is_known(stage: Stage) -> None:
    """Every command of this version acts: none is answered ``bad-command``."""
    known = [
        command for command in CLIENT_COMMANDS if command in LATER and (command != "NACK" or stage.version != "1.0")
    ]
    for command in known:
        peer = stage.peer()
        peer.say(command, destination=stage.queue, id="none", transaction="none", receipt="r")
        (frame,) = peer.rest() if command not in ("SEND", "SUBSCRIBE", "BEGIN") else (peer.more() and peer.inbox[0],)
        assert frame.headers.get("error-code") != "bad-command", command


def other_frames_are_refused(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SHOUT", receipt="r")
    frame = peer.refused("bad-command")
    assert frame.headers["receipt-id"] == "r"
    assert b"SUBSCRIBE" in frame.body


def limits_are_reported(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(CONNECT % stage.version.encode())
    assert peer.hear("CONNECTED").headers["max-message-size"] == "4194304"
