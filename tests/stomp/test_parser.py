"""The parser, frame by frame: what comes out, what is refused, what is held."""

from __future__ import annotations

import tracemalloc

import pytest

from radiator import limits
from radiator.stomp.frames import Frame
from radiator.stomp.parser import Parser, ParserLimits, new_caches
from radiator.stomp.spec import VERSIONS

pytestmark = pytest.mark.usefixtures("both_speeds")

SEND = b"SEND\ndestination:/queue/a\n\nhello\0"


def parser(version: str = "1.2", **changed: int) -> Parser:
    made = Parser(limits=ParserLimits(**changed))
    made.version = version
    return made


def one(data: bytes, version: str = "1.2") -> Frame:
    made = parser(version)
    frames = made.feed(data)
    assert made.failed is None, made.failed
    (frame,) = frames
    assert made.idle
    return frame


def failure(data: bytes, version: str = "1.2", **changed: int) -> str:
    """The code with which a stream fails; the same for the whole and for every byte by itself."""
    whole, bytewise = parser(version, **changed), parser(version, **changed)
    before = len(whole.feed(data))
    assert sum(len(bytewise.feed(bytes([byte]))) for byte in data) == before
    assert whole.failed is not None
    assert bytewise.failed is not None
    assert whole.failed.code == bytewise.failed.code
    assert whole.feed(SEND) == []
    assert whole.idle
    return whole.failed.code


def test_a_frame_has_command_headers_and_body() -> None:
    frame = one(SEND)
    assert (frame.command, frame.headers, frame.receipt, frame.body) == (
        "SEND",
        {"destination": "/queue/a"},
        None,
        b"hello",
    )
    assert frame.head.raw == b"destination:/queue/a"
    assert frame.head.version == "1.2"


def test_many_frames_come_out_of_one_chunk_in_order() -> None:
    made = parser()
    stream = b"".join(b"SEND\ndestination:/a\nreceipt:%d\n\n%d\0" % (number, number) for number in range(100))
    frames = made.feed(stream)
    assert [(frame.receipt, frame.body) for frame in frames] == [(b"%d" % n, b"%d" % n) for n in range(100)]
    assert len({id(frame.head) for frame in frames}) == 1


@pytest.mark.parametrize(
    "block",
    [
        b"receipt:r-1\ndestination:/a\ncontent-length:2",
        b"destination:/a\nreceipt:r-1\ncontent-length:2",
        b"destination:/a\ncontent-length:2\nreceipt:r-1",
        b"content-length:2\nreceipt:r-1\ndestination:/a",
    ],
)
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_receipt_and_content_length_may_stand_anywhere(block: bytes, eol: bytes) -> None:
    made = parser()
    wire = (b"SEND\n" + block + b"\n\n").replace(b"\n", eol) + b"\0\0\0"
    frames = made.feed(wire * 3)
    assert [frame.receipt for frame in frames] == [b"r-1"] * 3
    assert [frame.body for frame in frames] == [b"\0\0"] * 3
    assert frames[0].headers == {"destination": "/a", "content-length": "2"}
    assert b"receipt" not in frames[0].head.raw
    assert frames[1].head is frames[0].head


def test_a_frame_with_and_one_without_receipt_share_their_head() -> None:
    made = parser()
    first, second = made.feed(SEND + b"SEND\nreceipt:1\ndestination:/queue/a\n\nhello\0")
    assert first.head is second.head
    assert (first.receipt, second.receipt) == (None, b"1")


def test_headers_that_look_like_a_receipt_are_not_one() -> None:
    frame = one(b"SEND\nxreceipt:1\nreceipt-id:2\nReceipt:3\nk:receipt:4\n\nreceipt:5\0")
    assert frame.receipt is None
    assert frame.headers == {"xreceipt": "1", "receipt-id": "2", "Receipt": "3", "k": "receipt:4"}
    assert frame.body == b"receipt:5"


def test_the_first_of_two_receipts_counts() -> None:
    made = parser()
    first, second = made.feed(b"SEND\nreceipt:1\na:b\nreceipt:2\n\n\0SEND\na:b\nreceipt:2\nreceipt:3\n\n\0")
    assert (first.receipt, second.receipt) == (b"1", b"2")
    assert first.headers == second.headers == {"a": "b"}


def test_an_empty_receipt_is_a_receipt() -> None:
    assert one(b"SEND\nreceipt:\na:b\n\n\0").receipt == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_of_repeated_headers_counts(version: str) -> None:
    assert one(b"SEND\na:1\nb:x\na:2\n\n\0", version).headers == {"a": "1", "b": "x"}


def test_heads_are_shared_by_all_parsers_with_the_same_caches() -> None:
    caches = new_caches()
    heads = []
    for _ in range(2):
        made = Parser(caches=caches)
        made.version = "1.1"
        heads.append(made.feed(SEND)[0].head)
    assert heads[0] is heads[1]


def test_versions_do_not_share_heads() -> None:
    caches = new_caches()
    values = []
    for version in ("1.0", "1.2"):
        made = Parser(caches=caches)
        made.version = version
        values.append(made.feed(b"SEND\na:x\\cy\n\n\0")[0].headers["a"])
    assert values == ["x\\cy", "x:y"]


@pytest.mark.parametrize("blank", [b"\n\n", b"\n\r\n", b"\r\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("receipt", [b"", b"\nreceipt:1", b"\r\nreceipt:1"])
def test_line_ends_may_be_mixed_and_the_body_is_never_altered(blank: bytes, receipt: bytes) -> None:
    body = b"\r\n\r\nbody\n\n\r"
    wire = b"SEND\ndestination:/a" + receipt + blank + body + b"\0"
    made = parser()
    frames = made.feed(wire + wire + SEND)
    assert made.failed is None
    assert [frame.body for frame in frames] == [body, body, b"hello"]
    assert frames[0].headers == {"destination": "/a"}
    assert frames[0].receipt == (b"1" if receipt else None)


def test_a_head_in_the_cache_never_swallows_a_body() -> None:
    made = parser()
    made.feed(b"SEND\na:b\nc:d\n\n\0")
    (frame,) = made.feed(b"SEND\na:b\n\r\nc:d\n\n\0")
    assert (frame.headers, frame.body) == ({"a": "b"}, b"c:d\n\n")


def test_line_ends_between_frames_are_skipped() -> None:
    made = parser()
    frames = made.feed(b"\n\r\n\n" + SEND + b"\n\n" + SEND + b"\r\n\n\n")
    assert [frame.body for frame in frames] == [b"hello", b"hello"]
    assert made.idle
    assert made.feed(b"\n") == []
    assert made.idle


@pytest.mark.parametrize("body", [b"", b"\0", b"a\0b\0", b"SEND\n\n\0", b"x" * 100_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_with_content_length_a_body_holds_any_bytes(body: bytes, version: str) -> None:
    assert one(b"SEND\ncontent-length:%d\n\n%b\0" % (len(body), body), version).body == body


def test_content_length_counts_bytes_and_says_so_if_it_does_not() -> None:
    made = parser()
    assert made.feed(SEND + "SEND\ncontent-length:5\n\ngrüße\0".encode())[0].body == b"hello"
    assert made.failed is not None
    assert made.failed.code == "bad-frame"
    assert "not characters" in made.failed.detail


def test_frames_before_a_bad_one_are_returned() -> None:
    made = parser()
    assert len(made.feed(SEND * 3 + b"SEND\nno colon\n\n\0" + SEND)) == 3
    assert made.failed is not None
    assert made.feed(SEND) == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"SEND\nno colon\n\n\0", "bad-header"),
        (b"SEND\n:no name\n\n\0", "bad-header"),
        (b"SEND\na:\\t\n\n\0", "bad-header"),
        (b"SEND\na:\xff\n\n\0", "bad-header"),
        (b"SEND\nreceipt:\xff\n\n\0", "bad-header"),
        (b"SEND\nreceipt:\\t\n\n\0", "bad-header"),
        (b"SEND\ncontent-length:x\n\n\0", "bad-header"),
        (b"SEND\ncontent-length:1\n\nab\0", "bad-frame"),
        (b"SEND\na:b\0SEND\n\n\0", "bad-frame"),
        (b"SEND\nreceipt:a\0b\n\n\0", "bad-frame"),
        (b"SEND\nreceipt:\\t\na:b\0\n\n\0", "bad-frame"),
        (b"SEND\nreceipt:\0\ncontent-length:x\n\n\0", "bad-frame"),
        (b"destination:/queue/a\n\n\0", "bad-frame"),
        (b"SEND \n\n\0", "bad-frame"),
        (b"SEND\rx\n\n\0", "bad-frame"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "bad-frame"),
        (b"X" * 100, "bad-frame"),
        (b"SEND" + b"\na:b" * 5 + b"\n\n\0", "too-many"),
        (b"SEND\na:" + b"x" * 2_000 + b"\n\n\0", "too-large"),
        (b"SEND\na:" + b"x" * 2_000, "too-large"),
        (b"SEND\na:" + b"x" * 994 + b"\n\n\0", "too-large"),
        (b"SEND\r\na:" + b"x" * 993 + b"\r\n\r\n\0", "too-large"),
        (b"SEND\na:" + b"x" * 993 + b"\0", "bad-frame"),
        (b"SEND\na:" + b"x" * 996 + b"\0", "too-large"),
        (b"SEND\ncontent-length:101\n\n", "too-large"),
        (b"SEND\n\n" + b"x" * 101, "too-large"),
        (b"SEND\n\n" + b"x" * 101 + b"\0", "too-large"),
    ],
)
def test_what_is_not_a_frame_is_refused_alike_for_every_cut(data: bytes, code: str) -> None:
    assert failure(data, body_bytes_max=100, header_block_bytes_max=1_000, header_count_max=4) == code


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
@pytest.mark.parametrize("ended", [b"\n\n\0", b""])
@pytest.mark.parametrize(
    ("lines", "receipt"),
    [
        ([b"receipt:r-1", b"a:" + b"x" * 2_000], b"r-1"),
        ([b"b:c", b"receipt:r-1", b"receipt:r-2", b"a:" + b"x" * 2_000], b"r-1"),
        ([b"a:" + b"x" * 2_000, b"receipt:r-1"], None),
        ([b"a:" + b"x" * 980, b"receipt:" + b"r" * 300], None),
        ([b"receipt:\xff", b"a:" + b"x" * 2_000], None),
        ([b"a:" + b"x" * 2_000], None),
    ],
)
def test_an_error_for_headers_that_are_too_large_has_a_receipt_within_the_limit(
    lines: list[bytes], receipt: bytes | None, ended: bytes, eol: bytes
) -> None:
    data = eol.join([b"SEND", *lines]) + ended
    for step in (1, 7, 997, len(data)):
        made = parser(header_block_bytes_max=1_000)
        for at in range(0, len(data), step):
            made.feed(data[at : at + step])
        assert made.failed is not None and made.failed.code == "too-large"
        assert made.failed_receipt == receipt, step


def test_a_body_of_more_bytes_than_can_be_counted_is_too_large() -> None:
    made = parser()
    made.feed(b"SEND\nreceipt:r\ncontent-length:" + b"9" * 23 + b"\n\n")
    assert made.failed is not None and made.failed.code == "too-large" and made.failed_receipt == b"r"
    assert "1000000000000000000 bytes or more" in made.failed.detail


def test_what_is_just_within_the_limits_passes_bytewise_too() -> None:
    data = b"SEND\r\na:" + b"x" * 991 + b"\r\n\r\n" + b"y" * 100 + b"\0"
    for step in (1, 7, len(data)):
        made = parser(body_bytes_max=100, header_block_bytes_max=1_000, header_count_max=1)
        frames = [frame for at in range(0, len(data), step) for frame in made.feed(data[at : at + step])]
        assert made.failed is None
        assert [len(frame.body) for frame in frames] == [100]


def test_errors_say_what_was_expected_and_which_key_sets_it() -> None:
    made = parser(body_bytes_max=100)
    made.feed(b"SEND\ncontent-length:101\n\n")
    assert made.failed is not None
    assert "100 bytes" in made.failed.detail
    assert "limits.message" in made.failed.detail
    assert "101 bytes" in made.failed.detail


def test_a_line_that_is_no_command_is_refused_before_its_end_comes() -> None:
    for start in (b"GET /", b"\x16\x03", b"HELO example", b"S" * (limits.COMMAND_BYTES_MAX + 1)):
        made = parser()
        made.feed(start[:1])
        made.feed(start[1:])
        assert made.failed is not None, start


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_a_head_is_judged_as_soon_as_its_blank_line_is_there(eol: bytes) -> None:
    head = b"SEND" + eol + b"k:" + b"v" * 200 + eol + b"content-length:101" + eol + eol
    for step in (1, 2, len(head) - 3, len(head) - 2, len(head) - 1):
        made = parser(body_bytes_max=100)
        for at in range(0, len(head), step):
            assert made.failed is None
            made.feed(head[at : at + step])
        assert made.failed is not None, step
        assert made.failed.code == "too-large"


def test_unknown_commands_are_left_to_the_broker() -> None:
    assert one(b"FOO\na:b\n\nx\0").command == "FOO"
    assert one(b"send\na:b\n\nx\0").command == "send"


def test_what_is_held_is_counted_and_let_go() -> None:
    made = parser()
    made.feed(b"SEND\ndestin")
    assert (made.idle, made.pending_bytes, made.pending_head) == (False, 11, None)
    made.feed(b"ation:/a\ncontent-length:4\n\nab")
    head = made.pending_head
    assert head is not None
    assert head.command == "SEND"
    (frame,) = made.feed(b"cd\0")
    assert (frame.head, frame.body) == (head, b"abcd")
    assert (made.idle, made.pending_bytes) == (True, 0)


def test_a_body_that_just_begins_is_not_idle() -> None:
    made = parser()
    assert made.feed(b"SEND\n\n") == []
    assert not made.idle
    assert made.feed(b"\0")[0].body == b""
    assert made.idle


def test_a_large_body_in_small_pieces_is_joined_once() -> None:
    class Counting(Parser):
        looks = 0

        def _run(self, buf: bytes, frames: list[Frame]) -> None:
            self.looks += 1
            super()._run(buf, frames)

    made = Counting()
    made.version = "1.2"
    body = b"x" * 100_000
    stream = b"SEND\ncontent-length:%d\n\n%b\0SEND\n\n%b\0" % (len(body), body, body)
    frames = [frame for at in range(0, len(stream), 100) for frame in made.feed(stream[at : at + 100])]
    assert [frame.body for frame in frames] == [body, body]
    assert made.looks <= 4


def test_a_long_half_head_is_not_searched_again_with_every_piece() -> None:
    class Counting(Parser):
        looks = 0

        def _run(self, buf: bytes, frames: list[Frame]) -> None:
            self.looks += 1
            super()._run(buf, frames)

    made = Counting()
    block = b"SEND" + b"".join(b"\nheader-%d:%b" % (number, b"v" * 200) for number in range(100)) + b"\n\n\0"
    frames = [frame for byte in block for frame in made.feed(bytes([byte]))]
    assert len(frames[0].headers) == 100
    assert made.looks <= limits.COMMAND_BYTES_MAX + 5


@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP", b"CONNECTED"])
def test_the_parser_waits_after_an_opening_frame(command: bytes) -> None:
    made = Parser()
    (opening,) = made.feed(command + b"\nversion:1.2\naccept-version:1.2\n\n\0SEND\na:x\\cy\n\n\0")
    assert opening.command == command.decode()
    assert made.paused
    assert made.feed(SEND) == []
    frames = made.resume("1.2")
    assert [frame.headers for frame in frames] == [{"a": "x:y"}, {"destination": "/queue/a"}]
    assert not made.paused


def test_much_may_wait_behind_an_opening_frame() -> None:
    made = Parser()
    made.feed(b"CONNECT\n\n\0" + SEND * 500)
    assert len(made.resume("1.0")) == 500
    made = Parser()
    made.feed(b"CONNECT\n\n\0")
    assert made.resume("1.1") == []
    assert len(made.feed(SEND)) == 1


def test_an_opening_frame_has_no_large_body() -> None:
    for body in (b"content-length:101\n\n", b"\n" + b"x" * 101, b"\n" + b"x" * 101 + b"\0"):
        assert failure(b"CONNECT\n" + body, header_block_bytes_max=100) == "too-large"


def test_feeding_nothing_is_harmless() -> None:
    made = parser()
    assert made.feed(b"") == []
    made.feed(b"SEND\n")
    assert made.feed(b"") == []
    assert made.feed(b"\n\0")[0].command == "SEND"


@pytest.mark.thorough
def test_an_unfinished_frame_takes_no_more_memory_than_its_bytes_however_small_its_pieces_are() -> None:
    parser, piece = Parser(), b"xy"
    parser.feed(b"SEND\ndestination:/q\ncontent-length:1000000\n\n")
    tracemalloc.start()
    try:
        for _ in range(100_000):
            parser.feed(bytes(bytearray(piece)))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 200_000 <= parser.pending_bytes < 200_100
    assert held < 1.1 * 200_000


def test_a_frame_that_is_given_up_is_not_held() -> None:
    parser = Parser()
    parser.feed(b"SEND\ndestination:/q\ncontent-length:1000000\n\n" + b"x" * 1_000)
    parser.discard()
    assert parser.idle and parser.pending_bytes == 0
