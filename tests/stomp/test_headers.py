"""Escapes, wire lines, pairs and the stored block."""

from __future__ import annotations

import pytest

from radiator.errors import ProtocolError
from radiator.stomp.frames import Frame
from radiator.stomp.headers import block_for, escape, join, pairs, split_block, stored_block, unescape
from radiator.stomp.parser import Parser
from radiator.stomp.spec import ESCAPES, HOP_BY_HOP, INSTRUCTIONS, RESERVED, VERSIONS


def parse(raw: bytes, version: str) -> Frame:
    parser = Parser()
    parser.version = version
    (frame,) = parser.feed(b"SEND\n" + raw + b"\n\n\0")
    return frame


@pytest.mark.parametrize("version", VERSIONS)
def test_every_escape_of_the_table_is_applied_and_undone(version: str) -> None:
    for char, wire in ESCAPES[version].items():
        assert escape(f"a{char}b", version) == f"a{wire}b"
        assert unescape(f"a{wire}b", version) == f"a{char}b"


def test_an_escaped_backslash_before_a_letter_is_not_an_escape() -> None:
    assert unescape(r"\\n", "1.2") == r"\n"
    assert unescape(r"\\\c", "1.2") == r"\:"


@pytest.mark.parametrize(("text", "version"), [(r"\t", "1.1"), (r"\t", "1.2"), (r"\r", "1.1"), ("end\\", "1.2")])
def test_an_undefined_escape_is_an_error_that_lists_the_defined_ones(text: str, version: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        unescape(text, version)
    assert caught.value.code == "bad-header"
    assert r"\c" in caught.value.detail


def test_a_backslash_means_nothing_in_1_0() -> None:
    assert unescape(r"C:\new", "1.0") == r"C:\new"
    assert escape(r"C:\new", "1.0") == r"C:\new"


def test_nothing_that_1_0_is_sent_can_break_a_line_or_forge_a_header() -> None:
    lines = join([("a\nb:c", "d\ne:f")], "1.0")
    assert lines == "\na_b_c:d e:f"


def test_a_cr_that_1_1_has_no_escape_for_is_not_sent() -> None:
    assert join([("a\rb:c", "d\re:f\n")], "1.1") == "\na_b\\cc:d e\\cf\\n"
    assert join([("a\rb:c", "d\re:f\n")], "1.0") == "\na_b_c:d e:f "
    assert join([("a\rb", "d\re")], "1.2") == "\na\\rb:d\\re"


def test_pairs_keep_order_and_repeated_headers() -> None:
    assert pairs(b"b:1\na:2\nb:3\nempty:", "1.2") == [("b", "1"), ("a", "2"), ("b", "3"), ("empty", "")]
    assert pairs(b"", "1.2") == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_blanks_around_values_are_content(version: str) -> None:
    assert pairs(b"a: b \t", version) == [("a", " b \t")]


def test_blanks_around_values_of_1_0_are_not() -> None:
    assert pairs(b"login: me \t", "1.0") == [("login", "me")]


@pytest.mark.parametrize("raw", [b"no colon", b":no name", b"a:b\n\nc:d", b"a:\xff", b"a:\\x"])
def test_what_is_no_header_is_a_bad_header(raw: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        pairs(raw, "1.2")
    assert caught.value.code == "bad-header"


def test_a_stored_block_has_neither_headers_of_the_hop_nor_reserved_ones() -> None:
    dropped = "".join(f"{name}:x\n" for name in sorted((HOP_BY_HOP | RESERVED | INSTRUCTIONS) - {"content-length"}))
    frame = parse(f"{dropped}keep:1\ncontent-length:0\ntag-a:b".encode(), "1.2")
    assert stored_block(frame.head) == b"keep:1\ntag-a:b"


def test_a_stored_block_keeps_the_first_of_repeated_headers() -> None:
    frame = parse(b"destination:/a\nk:1\nreceipt:1\nk:2\nreceipt:2", "1.2")
    assert stored_block(frame.head) == b"k:1"


def test_a_message_without_headers_of_its_own_has_an_empty_block() -> None:
    assert stored_block(parse(b"destination:/a", "1.2").head) == b""
    assert stored_block(Parser().feed(b"SEND\n\n\0")[0].head) == b""


@pytest.mark.parametrize(
    ("raw", "version", "stored"),
    [
        (rb"k:a\cb\nc\\d", "1.2", rb"k:a\cb\nc\\d"),
        (rb"k:a\cb\nc\\d", "1.1", rb"k:a\cb\nc\\d"),
        (b"k:12:30", "1.2", rb"k:12\c30"),
        (b"k:12:30", "1.1", rb"k:12\c30"),
        (b"k:12:30", "1.0", rb"k:12\c30"),
        (rb"k:C:\new", "1.0", rb"k:C\c\\new"),
        (b"k: blank ", "1.0", b"k:blank"),
        (b"k: blank ", "1.2", b"k: blank "),
        (b"k:a\rb", "1.1", rb"k:a\rb"),
        ("k:grüße".encode(), "1.0", "k:grüße".encode()),
    ],
)
def test_a_stored_block_is_strict_stomp_1_2_whatever_came(raw: bytes, version: str, stored: bytes) -> None:
    assert stored_block(parse(b"destination:/a\n" + raw, version).head) == stored


def test_splitting_a_stored_block_gives_the_headers_back() -> None:
    assert split_block(b"") == []
    assert split_block(b"a:1\nb:") == [("a", "1"), ("b", "")]
    assert split_block(rb"a:x\cy\nz" + b"\nb:2") == [("a", "x:y\nz"), ("b", "2")]


def test_a_block_without_escapes_is_returned_unchanged() -> None:
    block = b"a:1\nb:2"
    assert all(block_for(block, version) is block for version in VERSIONS)


def test_a_block_is_escaped_again_for_the_older_versions() -> None:
    block = rb"k:a\cb\r\\"
    assert block_for(block, "1.2") is block
    assert block_for(block, "1.1") == b"k:a\\cb \\\\"
    assert block_for(block, "1.0") == b"k:a:b \\"
    assert block_for(rb"k\c:a\nb", "1.0") == b"k_:a b"
