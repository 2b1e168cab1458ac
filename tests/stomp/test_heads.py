"""The quick and the careful way to a head, and the cache before both."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.errors import ProtocolError
from radiator.stomp.heads import FAR_TOO_MANY, HeadCache, HeadReader
from radiator.stomp.spec import VERSIONS

BLOCKS = [
    b"SEND\ndestination:/queue/a\ncontent-length:5",
    b"SEND\ndestination:/queue/a\nevent-time:05\\c15\\c00Z",
    b"SEND\nk:a:b:c\nempty:\ndestination:/a",
    b"SEND\n\\ck:v",
    b"SEND",
    b"ACK\nid:s1-0-5",
    b"ACK\nmessage-id:a@5\nsubscription:\\c0",
    b"DISCONNECT",
    "MESSAGE\nname:grüße".encode(),
    b"SEND\na:1\na:2",
    b"SEND\na:x\\\\cy",
    b"SEND\na: b",
    b"SEND\na:C\\\\new",
    b"SEND\na:b\rc",
]


def reader(version: str = "1.2", count_max: int = 10, cache: HeadCache | None = None) -> HeadReader:
    return HeadReader(version, HeadCache() if cache is None else cache, count_max)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("block", BLOCKS)
def test_the_quick_way_leads_to_the_same_head_or_nowhere(block: bytes, version: str) -> None:
    quick = reader(version).quick(block)
    careful = reader(version).read(block)
    if quick is not None:
        for slot in ("command", "headers", "raw", "version", "content_length", "memo"):
            assert getattr(quick, slot) == getattr(careful, slot)


@pytest.mark.parametrize("block", BLOCKS[:9])
def test_what_clients_usually_send_goes_the_quick_way(block: bytes) -> None:
    assert reader().quick(block) is not None


@pytest.mark.parametrize(
    "block",
    [b"SEND\nno colon", b"ACK\nno colon", b"SEND\n:x", b"SEND\na:\\t", b"SEND\na:\xff", b"SEND\na:1\n"],
)
def test_the_quick_way_leaves_complaints_to_the_careful_one(block: bytes) -> None:
    assert reader().quick(block) is None
    with pytest.raises(ProtocolError) as caught:
        reader().read(block)
    assert caught.value.code == "bad-header"


def test_too_many_headers_are_refused_by_number() -> None:
    block = b"SEND" + b"".join(b"\nh%d:x" % number for number in range(11))
    assert reader().quick(block) is None
    with pytest.raises(ProtocolError, match="too many headers") as caught:
        reader().read(block)
    assert caught.value.code == "too-many"
    assert "11" in caught.value.detail


def test_an_equal_send_is_the_same_head() -> None:
    both = reader()
    first = both.quick(BLOCKS[0])
    assert both.read(BLOCKS[0]) is first
    assert both.cache.young[BLOCKS[0]] is first


def test_only_heads_of_send_are_remembered() -> None:
    both = reader()
    both.quick(b"ACK\nid:1")
    both.read(b"SUBSCRIBE\nid:1")
    assert len(both.cache) == 0


def test_a_block_that_is_too_long_or_has_a_cr_is_not_remembered() -> None:
    both = reader()
    both.read(b"SEND\nk:" + b"x" * limits.HEAD_CACHE_BLOCK_BYTES_MAX)
    both.read(b"SEND\nk:a\rb")
    assert len(both.cache) == 0


def test_the_cache_is_bounded_and_what_is_used_stays() -> None:
    cache = HeadCache(entries_max=8)
    both = reader(cache=cache)
    kept = both.quick(b"SEND\nkept:1")
    for number in range(100):
        both.quick(b"SEND\nk:%d" % number)
        assert (cache.young.get(b"SEND\nkept:1") or both.quick(b"SEND\nkept:1")) is kept
        assert len(cache) <= 8
    cache.clear()
    assert len(cache) == 0


def test_the_cache_is_bounded_by_the_bytes_of_the_blocks_too() -> None:
    cache = HeadCache(bytes_max=2_000)
    both = reader(cache=cache)
    for number in range(100):
        both.quick(b"SEND\nk:%d" % number + b"x" * 180)
        assert sum(map(len, [*cache.young, *cache.old])) <= 2_000
    assert len(cache) >= 5  # a generation, which a block of 190 bytes fits into five times


@pytest.mark.parametrize(
    ("value", "length"),
    [
        *[(b"0", 0), (b"5", 5), (b"007", 7), (b" 5", 5), (b"5\t", 5), (b"9" * 18, 10**18 - 1)],
        *[(b"0" * 6_000, 0), (b"0" * 6_000 + b"7", 7), (b"9" * 19, FAR_TOO_MANY), (b"1" + b"0" * 22, FAR_TOO_MANY)],
        (b"9" * 6_000, FAR_TOO_MANY),
    ],
)
def test_content_length_counts_bytes_in_decimal(value: bytes, length: int) -> None:
    assert reader().read(b"SEND\ncontent-length:" + value).content_length == length


@pytest.mark.parametrize(
    "value", [b"", b"-1", b"+1", b"1_0", b"0x1", b"5 5", b"five", "²".encode(), "٣".encode(), b"9" * 18 + b"x"]
)
def test_any_other_content_length_is_a_bad_header(value: bytes) -> None:
    for way in (reader().quick, reader().read):
        with pytest.raises(ProtocolError, match="content-length") as caught:
            way(b"SEND\ncontent-length:" + value)
        assert caught.value.code == "bad-header"


def test_opening_frames_are_not_unescaped() -> None:
    for command in (b"CONNECT", b"STOMP"):
        head = reader().read(command + b"\naccept-version:1.2\npasscode:a\\cb\\ ")
        assert head.headers["passcode"] == "a\\cb\\ "
    assert reader().read(b"CONNECT\nlogin: me").headers == {"login": "me"}
    with pytest.raises(ProtocolError):
        reader().read(b"CONNECT\nlogin")


@pytest.mark.parametrize("receipt", [b"a", b"", b"a b", b"a:b", b"a\\cb", "grüße".encode()])
def test_a_receipt_is_echoed_as_it_came(receipt: bytes) -> None:
    assert reader().clean_receipt(receipt) == receipt


def test_a_receipt_that_cannot_be_echoed_is_refused() -> None:
    for receipt in (b"\xff", b"\\t"):
        with pytest.raises(ProtocolError):
            reader().clean_receipt(receipt)
    assert reader("1.0").clean_receipt(b" \\t ") == b"\\t"
