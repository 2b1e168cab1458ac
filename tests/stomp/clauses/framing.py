"""Cases about bytes: the grammar of frames, escapes, bodies, repeated headers, limits."""

from __future__ import annotations

from radiator import limits
from radiator.stomp.encoder import encode
from tests.stomp.clauses.stage import CONNECT, Stage


def parts_of_a_frame(stage: Stage) -> None:
    """Command, headers, blank line, body, NUL."""
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\nodd:value\n\nbody\0" % stage.topic.encode())
    frame = peer.hear("MESSAGE")
    assert (frame.headers["odd"], frame.body) == ("value", b"body")
    assert peer.raw.split(b"MESSAGE\n")[1].endswith(b"\n\nbody\0\n")


def no_headers_at_all(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"DISCONNECT\n\n\0")
    assert peer.rest() == []


def carriage_returns(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\r\naccept-version:%b\r\nhost:x\r\n\r\n\0\r\n" % stage.version.encode())
    peer.hear("CONNECTED")
    peer.subscribe(stage.topic)
    peer.send(b"\r\nSEND\r\ndestination:%b\r\nodd:v\r\nreceipt:r\r\n\r\nb\r\n\0\r\n\r\n" % stage.topic.encode())
    peer.hear("RECEIPT", receipt_id="r")
    frame = peer.hear("MESSAGE")
    assert (frame.headers["odd"], frame.body) == ("v", b"b\r\n")


def line_ends_between_frames(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"\n\n" + CONNECT % stage.version.encode() + b"\n\n\n")
    peer.hear("CONNECTED")
    peer.send(b"\n\n\nSEND\ndestination:%b\nreceipt:1\n\n\0\n\n\n\n" % stage.topic.encode())
    peer.hear("RECEIPT", receipt_id="1")
    peer.quiet()


def our_frames_end_in_nul_and_one_line_feed(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"x", b"y")
    peer.bodies(2)
    assert all(not piece.startswith(b"\n\n") for piece in peer.raw.split(b"\0")[1:])
    assert peer.raw.count(b"\0\n") == peer.raw.count(b"\0")


def case_matters(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"x", Content_Length="7")
    assert peer.hear("MESSAGE").headers["Content-Length"] == "7"
    peer.send(b"send\ndestination:%b\n\n\0" % stage.topic.encode())
    assert b"capital letters" in peer.refused("bad-command").body


def text_is_utf8(stage: Stage) -> None:
    peer = stage.peer()
    name = f"{stage.topic}/größe"
    peer.subscribe(name)
    peer.publish(name, "Füße".encode(), Übergröße="50 €")
    frame = peer.hear("MESSAGE")
    assert (frame.headers["destination"], frame.headers["Übergröße"]) == (name, "50 €")


def text_that_is_no_utf8(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"SEND\ndestination:%b\nodd:\xff\xfe\n\n\0" % stage.topic.encode())
    peer.refused("bad-header")


def escapes_are_undone_and_done(stage: Stage) -> None:
    sequences = {"1.1": ("\\n", "\\c", "\\\\"), "1.2": ("\\r", "\\n", "\\c", "\\\\")}[stage.version]
    meaning = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}
    peer = stage.peer()
    peer.subscribe(stage.topic)
    for sequence in sequences:
        line = f"odd{sequence}name:a{sequence}b"
        peer.send(f"SEND\ndestination:{stage.topic}\n{line}\n\n\0".encode())
        frame = peer.hear("MESSAGE")
        assert frame.headers[f"odd{meaning[sequence]}name"] == f"a{meaning[sequence]}b"
        assert f"\n{line}\n".encode() in peer.raw


def unknown_escape(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"SEND\ndestination:%b\nodd:a\\tb\nreceipt:r\n\n\0" % stage.topic.encode())
    assert b"\\t" in peer.refused("bad-header").body
    if stage.version == "1.1":  # which has no escape for CR
        peer = stage.peer()
        peer.send(b"SEND\ndestination:%b\nodd:a\\rb\n\n\0" % stage.topic.encode())
        peer.refused("bad-header")


def nothing_is_escaped_while_opening(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\naccept-version:%b\nhost:a\\tb\nlogin:a:b\\q\n\n\0" % stage.version.encode())
    assert peer.hear("CONNECTED")
    assert b"\\" not in peer.raw.partition(b"\0")[0]


def no_escapes_in_1_0(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\nodd:a\\nb:c\\\n\n\0" % stage.topic.encode())
    assert peer.hear("MESSAGE").headers["odd"] == "a\\nb:c\\"
    assert b"\nodd:a\\nb:c\\\n" in peer.raw


def blanks_are_content(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\n odd :  v \t\n\n\0" % stage.topic.encode())
    assert peer.hear("MESSAGE").headers[" odd "] == "  v \t"
    assert b"\n odd :  v \t\n" in peer.raw


def blanks_are_padding_in_1_0(stage: Stage) -> None:
    peer = stage.raw()
    peer.send(b"CONNECT\nlogin: me\npasscode: secret\n\n\0")
    peer.hear("CONNECTED")
    peer.send(b"SUBSCRIBE\ndestination: %b\nack: client\nreceipt: 1\n\n\0" % stage.queue.encode())
    peer.hear("RECEIPT", receipt_id="1")
    peer.send(b"SEND\ndestination: %b\n\n\0" % stage.queue.encode())
    assert peer.hear("MESSAGE").headers["destination"] == stage.queue


def body_on_other_frames(stage: Stage) -> None:
    """Is read, to keep the stream whole, and means nothing."""
    peer = stage.peer()
    peer.send(b"BEGIN\ntransaction:t\ncontent-length:3\nreceipt:1\n\na\0b\0ABORT\ntransaction:t\nreceipt:2\n\nx\0")
    peer.hear("RECEIPT", receipt_id="1")
    peer.hear("RECEIPT", receipt_id="2")
    peer.send(b"SUBSCRIBE\nid:b\ndestination:%b\nreceipt:3\n\nignored\0" % stage.topic.encode())
    assert peer.hear("RECEIPT", receipt_id="3").body == b""


def our_other_frames_have_no_body(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("SEND", destination=stage.topic, receipt="r")
    assert peer.hear("RECEIPT").body == b""
    assert peer.raw.startswith(b"CONNECTED\n")
    assert peer.raw.split(b"\0")[0].endswith(b"\n\n")


def length_counts_bytes(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    every = bytes(range(256)) * 4
    peer.send(b"SEND\ndestination:%b\ncontent-length:%d\n\n%b\0" % (stage.topic.encode(), len(every), every))
    frame = peer.hear("MESSAGE")
    assert (frame.body, frame.headers["content-length"]) == (every, "1024")


def nul_ends_a_body_without_length(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\n\nup to here\0SEND\ndestination:%b\n\nnext\0" % ((stage.topic.encode(),) * 2))
    assert peer.bodies(2) == [b"up to here", b"next"]


def nul_after_a_body_with_length(stage: Stage) -> None:
    """Is needed all the same."""
    peer = stage.peer()
    peer.send(b"SEND\ndestination:%b\ncontent-length:3\nreceipt:r\n\nabcd\0" % stage.topic.encode())
    frame = peer.refused("bad-frame")
    assert b"content-length" in frame.body
    assert frame.headers["receipt-id"] == "r"


def length_on_any_frame(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"DISCONNECT\ncontent-length:0\nreceipt:bye\n\n\0")
    assert peer.hear("RECEIPT").headers["receipt-id"] == "bye"


def our_bodies_have_a_length(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\n\nfour\0SEND\ndestination:%b\n\n\0" % ((stage.topic.encode(),) * 2))
    assert [frame.headers["content-length"] for frame in peer.hear_many("MESSAGE", 2)] == ["4", "0"]
    peer.say("NONSENSE")
    frame = peer.refused("bad-command")
    assert int(frame.headers["content-length"]) == len(frame.body) > 0


def our_errors_say_what_they_are(stage: Stage) -> None:
    peer = stage.peer()
    peer.say("NONSENSE")
    frame = peer.refused("bad-command")
    assert frame.headers["content-type"] == "text/plain;charset=utf-8"
    frame.body.decode()


def content_type_is_carried(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"<a/>", content_type="application/xml;charset=utf-8")
    assert peer.hear("MESSAGE").headers["content-type"] == "application/xml;charset=utf-8"


def no_content_type_is_invented(stage: Stage) -> None:
    """What has none is a blob: bytes go through as they are."""
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.publish(stage.topic, b"\xff\x00\xfe")
    frame = peer.hear("MESSAGE")
    assert "content-type" not in frame.headers
    assert frame.body == b"\xff\x00\xfe"


def our_client_gives_lengths(stage: Stage) -> None:
    data = stage.client().send(stage.topic, b"a\0b", {"content-type": "x/y"})
    assert b"\ncontent-length:3\n" in data
    assert data.endswith(b"\n\na\0b\0")


def our_client_escapes(stage: Stage) -> None:
    data = stage.client().send(stage.topic, b"", {"a:b": "c\nd\\"})
    assert b"\na\\cb:c\\nd\\\\\n" in data
    connect = stage.client().connect_frame("h:1")
    assert b"\nhost:h:1\n" in connect


def our_client_refuses_unknown_escapes(stage: Stage) -> None:
    client = stage.client()
    client.receive(b"MESSAGE\nsubscription:0\nmessage-id:1\ndestination:a\\tb\n\n\0")
    assert client.failed is not None
    assert client.failed.code == "bad-header"


def first_of_repeated_headers(stage: Stage) -> None:
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\nfoo:World\nfoo:Hello\ndestination:/topic/no\n\n\0" % stage.topic.encode())
    assert peer.hear("MESSAGE").headers["foo"] == "World"
    assert peer.raw.count(b"foo:") == 1


def our_client_takes_the_first(stage: Stage) -> None:
    (frame,) = stage.client().receive(b"MESSAGE\nfoo:World\nfoo:Hello\n\n\0")
    assert frame.headers["foo"] == "World"


def too_many_headers(stage: Stage) -> None:
    peer = stage.peer()
    lines = b"".join(b"h%d:x\n" % number for number in range(limits.HEADER_COUNT_MAX))
    peer.send(b"SEND\ndestination:%b\n%b\n\0" % (stage.topic.encode(), lines))
    assert b"limits.header_count" in peer.refused("too-many").body


def too_long_headers(stage: Stage) -> None:
    peer = stage.peer()
    line = b"h:" + b"x" * limits.HEADER_BLOCK_BYTES_MAX
    peer.send(b"SEND\ndestination:%b\n%b\n\n\0" % (stage.topic.encode(), line))
    assert b"limits.headers" in peer.refused("too-large").body


def too_large_body(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(
        b"SEND\ndestination:%b\nreceipt:r\ncontent-length:%d\n\n"
        % (stage.topic.encode(), limits.FRAME_BODY_BYTES_MAX + 1)
    )
    frame = peer.refused("too-large")
    assert b"limits.message" in frame.body
    assert frame.headers["receipt-id"] == "r"


def grammar_of_our_frames(stage: Stage) -> None:
    """Every frame that we send is one that the grammar of its version makes."""
    peer = stage.peer()
    peer.subscribe(stage.queue, ack="client")
    peer.publish(stage.queue, b"one", odd="a:b")
    peer.settle(peer.hear("MESSAGE"))
    peer.say("NONSENSE", receipt="r")
    peer.refused("bad-command")
    for frame in peer.raw.removesuffix(b"\0\n").split(b"\0\n"):
        head, blank, _ = frame.partition(b"\n\n")
        assert blank
        command, *lines = head.split(b"\n")
        assert command in (b"CONNECTED", b"MESSAGE", b"RECEIPT", b"ERROR")
        for line in lines:
            name, colon, value = line.partition(b":")
            assert name and colon and value
            assert stage.version == "1.0" or command == b"CONNECTED" or b":" not in value


def empty_header_value(stage: Stage) -> None:
    """1.1 and 1.2 have them; 1.0 does not, and its clients are not sent any."""
    peer = stage.peer()
    peer.subscribe(stage.topic)
    peer.send(b"SEND\ndestination:%b\nnone:\nsome:x\n\n\0" % stage.topic.encode())
    headers = peer.hear("MESSAGE").headers
    assert headers["some"] == "x"
    assert headers.get("none") == (None if stage.version == "1.0" else "")


def a_header_without_a_name(stage: Stage) -> None:
    peer = stage.peer()
    peer.send(b"SEND\ndestination:%b\n:x\n\n\0" % stage.topic.encode())
    peer.refused("bad-header")


def frames_in_any_pieces(stage: Stage) -> None:
    """A stream has no edges."""
    data = CONNECT % stage.version.encode() + encode(
        "SEND", [("destination", stage.topic), ("receipt", "r")], b"a\0b", stage.version
    )
    peer = stage.raw()
    for byte in data:
        peer.send(bytes([byte]))
    peer.hear("CONNECTED")
    peer.hear("RECEIPT", receipt_id="r")
