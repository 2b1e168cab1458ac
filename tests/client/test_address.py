from __future__ import annotations

import pytest

from radiator.client.address import Address, parse
from radiator.client.errors import BadAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:61613", Address("127.0.0.1", 61613)),
        ("broker", Address("broker", 61613)),
        ("stomp://broker:7", Address("broker", 7)),
        ("stomp://a%40b:c%3Ad@broker:7/", Address("broker", 7, "a@b", "c:d")),
        ("[::1]:7", Address("::1", 7)),
        ("stomp://[::1]", Address("::1", 61613)),
        ("stomp+tls://broker", Address("broker", 61614, scheme="stomp+tls")),
        ("stomps://a:b@broker:7", Address("broker", 7, "a", "b", scheme="stomp+tls")),
        ("ws://broker/stomp", Address("broker", 15674, path="/stomp", scheme="ws")),
        ("wss://[::1]:7", Address("::1", 7, scheme="wss")),
        ("unix:./run/x.sock", Address("127.0.0.1", 0, path="./run/x.sock", scheme="unix")),
        ("unix:///run/x.sock", Address("127.0.0.1", 0, path="/run/x.sock", scheme="unix")),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "http://a:1",
        "a:b",
        "a:70000",
        "a:0",
        "a/b",
        "stomp://",
        "unix:",
        "unix://a",
        "a:1?x=2",
        "[::1",
        "stomp+tls://a/b",
        "wss://",
    ],
)
def test_what_is_no_address_is_refused_with_both_sides(text: str) -> None:
    with pytest.raises(BadAddress, match="expected host:port") as caught:
        parse(text)
    assert text.partition("?")[0] in str(caught.value)


TYPED = ["[::1]:7", "a:1", "unix:/x", "stomp+tls://a:1", "wss://[::1]:7/x"]


def test_an_address_prints_as_it_is_typed() -> None:
    assert [str(parse(text)) for text in TYPED] == TYPED


@pytest.mark.parametrize(
    "text",
    [
        "stomp://alice:s3cret@host:99999",
        "stomp://alice:s3cret@host:0",
        "stomp://alice:s3cret@host/path",
        "stomp://alice:s3cret@[::1",
        "stomp://alice:s3cret@host:1x",
        "alice:s3cret@host:99999",
        "http://alice:s3cret@host",
        "alice:s3cret://@host",
        "stomp://alice:s3cret@@@host:99999",
        "stomp://alice:a/s3cret@host",
        "stomp://alice:a?s3cret@host",
        "stomp://alice:1#s3cret@host",
        "stomp://host?passcode=s3cret",
        "ws://host:1/path?token=s3cret",
        "stomp://host?passcode=a@s3cret",
        "host#s3cret",
    ],
)
def test_a_passcode_is_not_shown_where_an_address_is_wrong(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(text)
    assert "s3cret" not in str(caught.value)
    assert "alice" not in str(caught.value)
    assert "host" in str(caught.value) or "::1" in str(caught.value)
