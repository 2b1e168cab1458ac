"""Heads are shared, frames are small."""

from __future__ import annotations

import pytest

from radiator.stomp.frames import Frame, Head


def test_a_frame_shows_the_command_and_headers_of_its_head() -> None:
    head = Head("SEND", {"destination": "/a"}, b"destination:/a", "1.2", -1)
    frame = Frame(head, b"7", b"body")
    assert (frame.command, frame.headers, frame.receipt, frame.body) == ("SEND", {"destination": "/a"}, b"7", b"body")
    assert head.memo is None


def test_frames_and_heads_carry_nothing_else() -> None:
    head = Head("SEND", {}, b"", "1.2", -1)
    for thing in (head, Frame(head, None, b"")):
        with pytest.raises(AttributeError):
            thing.surprise = 1  # type: ignore[union-attr]


def test_both_can_be_read_in_a_log_without_their_whole_body() -> None:
    frame = Frame(Head("SEND", {"a": "b"}, b"a:b", "1.2", -1), None, b"x" * 10_000)
    assert "SEND" in repr(frame.head)
    assert len(repr(frame)) < 200
