"""No text of one client breaks or forges a header line that another client receives, in any version of STOMP."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radiator.stomp.spec import RESERVED, VERSIONS
from tests.broker.harness import Client, World

odd = st.text(st.sampled_from("ab:\\\r\nü \tnrc"), min_size=1, max_size=8)
names = odd.map(lambda text: "x" + text)  # no header that means something


def header_lines(raw: bytes) -> list[bytes]:
    """The header lines of all frames; every body of these tests is ``body`` or has none of the characters at stake."""
    lines: list[bytes] = []
    for frame in raw.split(b"\0\n"):
        head, _, _ = frame.partition(b"\n\n")
        lines += head.split(b"\n")[1:]
    return lines


def is_sound(client: Client) -> None:
    assert b"\r" not in b"\n".join(header_lines(client.raw))
    assert all(b":" in line for line in header_lines(client.raw))


@given(st.dictionaries(names, odd, min_size=1, max_size=4), odd, st.sampled_from(VERSIONS))
def test_headers_and_destinations_of_a_message(headers: dict[str, str], tail: str, version: str) -> None:
    world = World()
    reader, sender = world.connect(version), world.connect("1.2")
    name = "/topic/a" + tail.replace("\n", "").strip(" ") + "."
    reader.subscribe("#", ack="client-individual")
    pairs = [("destination", name), ("receipt", "r"), *headers.items()]
    sender.say_bytes(_send(pairs))
    world.settle()
    (message,) = reader.messages()
    is_sound(reader)
    is_sound(sender)
    assert message.body == b"body"
    own = {*RESERVED, "destination", "content-length"}
    assert len(message.headers.keys() - own) <= len(headers), "none was split in two"
    reader.ack(message, receipt="acked")
    world.settle()
    assert reader.receipts() == ["acked"]


@given(odd, st.sampled_from(VERSIONS))
def test_an_error_that_repeats_what_came(text: str, version: str) -> None:
    world = World()
    client = world.connect(version)
    client.say("SUBSCRIBE", id=f"x{text}", destination="/topic/a", ack=f"x{text}", receipt="r")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "r"
    is_sound(client)


@given(odd, st.sampled_from(VERSIONS))
def test_a_receipt_is_echoed_or_refused(text: str, version: str) -> None:
    world = World()
    client = world.connect(version)
    client.say_bytes(b"SEND\ndestination:/topic/a\nreceipt:x%b\n\nbody\0" % text.replace("\n", "").encode())
    world.settle()
    assert client.take("RECEIPT") or client.take("ERROR")
    is_sound(client)


def _send(headers: list[tuple[str, str]]) -> bytes:
    table = str.maketrans({"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"})
    lines = "".join(f"\n{name.translate(table)}:{value.translate(table)}" for name, value in headers)
    return f"SEND{lines}\n\nbody\0".encode()
