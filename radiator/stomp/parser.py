"""Parse bytes to frames, in about a microsecond a frame.

``feed`` takes any bytes of a socket and returns the complete frames; the rest is stored. Ordinary frames are parsed by
``take_ordinary`` (``ordinary.py``), which may be compiled; this module parses all others, and refuses invalid ones.
Three ideas make both fast in plain Python:

* no loop over bytes: ``find`` searches the blank line, ``content-length`` or ``find`` gives the body;
* a publisher repeats its header block, so a head is parsed once and found again by the block itself (``heads.py``);
* a partial frame is stored as a list of pieces and parsed again only when what it waits for (blank line, length, NUL)
  has come: the cost is linear however the stream is cut, and neither frames nor errors depend on where it is cut.

``feed`` never raises for input: frames before an invalid one are returned, then ``failed`` is set for good. Parsing
stops after CONNECT, STOMP and CONNECTED until ``resume``: the rules for what follows depend on the agreed version. The
parser does not check whether a command exists, only that it looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from radiator import limits as _limits
from radiator.errors import ProtocolError
from radiator.stomp.frames import Frame, Head
from radiator.stomp.heads import FAR_TOO_MANY, HeadCache, HeadReader
from radiator.stomp.ordinary import BETWEEN, take_ordinary
from radiator.stomp.spec import OPENING_COMMANDS, VERSIONS

__all__ = ["HeadCache", "Parser", "ParserLimits", "new_caches"]

_NOT_FOUND = 1 << 62  # a position that no buffer reaches: "not found"
_LF = ord("\n")
_LETTERS = re.compile(rb"[A-Za-z]*")
_WAIT_HEAD, _WAIT_LENGTH, _WAIT_NUL = range(3)


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """The limits of one frame. The defaults are those of ``radiator.limits``."""

    body_bytes_max: int = _limits.FRAME_BODY_BYTES_MAX
    header_block_bytes_max: int = _limits.HEADER_BLOCK_BYTES_MAX
    header_count_max: int = _limits.HEADER_COUNT_MAX


def new_caches() -> dict[str, HeadCache]:
    """Return one cache per version, to be shared by all connections of a process."""
    return {version: HeadCache() for version in VERSIONS}


class Parser:
    """The incremental parser of one direction of one connection."""

    def __init__(self, *, limits: ParserLimits | None = None, caches: Mapping[str, HeadCache] | None = None) -> None:
        self._limits = limits or ParserLimits()
        self._caches = caches if caches is not None else new_caches()
        self._quick_bytes_max = min(_limits.HEAD_CACHE_BLOCK_BYTES_MAX, self._limits.header_block_bytes_max)
        self.version = "1.0"
        self.failed: ProtocolError | None = None
        self.failed_receipt: bytes | None = None  # of the offending frame, where it was seen before the offence
        self.failed_head: Head | None = None  # the head of the frame with the offending body
        self.paused = False
        # A half frame: its pieces, their length and last two bytes, and what they wait for. If the head is complete it
        # is in pending_head, and the pieces are of the body only.
        self._pieces: list[bytes] = []
        self._partial_bytes = 0
        self.pending_bytes = 0  # how much of an unfinished frame is held, with its head
        self._boundary = b""
        self._wait = _WAIT_HEAD
        self._body_bytes_max = 0  # while waiting for a NUL
        self.pending_head: Head | None = None
        self._pending_receipt: bytes | None = None

    @property
    def version(self) -> str:
        """The version by whose rules frames are parsed."""
        return self._reader.version

    @version.setter
    def version(self, version: str) -> None:
        self._reader = HeadReader(version, self._caches[version], self._limits.header_count_max)

    @property
    def idle(self) -> bool:
        """Whether the stream is between two frames."""
        return self._partial_bytes == 0 and self.pending_head is None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes. While ``paused`` nothing is parsed: call ``resume`` first."""
        if self.failed is not None:
            return []
        if self._partial_bytes or self.pending_head is not None or self.paused:
            if not data:
                return []
            boundary = self._boundary + data[:2]
            pieces = self._pieces
            if pieces and len(pieces[-1]) + len(data) <= _limits.PIECE_BYTES_MIN:
                pieces[-1] += data
            else:
                pieces.append(data)
            self._partial_bytes += len(data)
            self.pending_bytes += len(data)
            self._boundary = data[-2:] if len(data) > 1 else boundary[-2:]
            if self.paused or not self._may_be_complete(boundary, data):
                return []
            data = self._take()
        frames: list[Frame] = []
        try:
            self._run(data, frames)
        except ProtocolError as problem:
            self._fail(problem)
        return frames

    def discard(self) -> None:
        """Drop the unfinished frame. Nothing may be fed afterwards."""
        self.pending_head = None
        self._take()

    def resume(self, version: str) -> list[Frame]:
        """Continue after an opening frame, by the rules of ``version``; return the frames that were waiting."""
        self.version = version
        self.paused = False
        frames: list[Frame] = []
        try:
            self._run(self._take(), frames)
        except ProtocolError as problem:
            self._fail(problem)
        return frames

    def _fail(self, problem: ProtocolError) -> None:
        self.failed = problem
        self.discard()

    def _run(self, buf: bytes, frames: list[Frame]) -> None:
        pos, size = 0, len(buf)
        body_bytes_max = self._limits.body_bytes_max
        if self.pending_head is None:  # and mostly all that came is ordinary
            pos = take_ordinary(buf, 0, self._reader, self._quick_bytes_max, body_bytes_max, frames)
            if pos >= size:
                return
        find = buf.find
        append = frames.append
        reader = self._reader
        body_at = 0
        blank = crlf_blank = -1  # the next blank line (LF LF, LF CR LF), where known: each byte is searched once

        head = self.pending_head
        receipt = self._pending_receipt
        opening = head is not None and head.command in OPENING_COMMANDS
        if opening:
            body_bytes_max = min(body_bytes_max, self._limits.header_block_bytes_max)
        self.pending_head = None
        while True:
            if head is None:  # -- the head, whatever it is
                if blank < pos:
                    blank = find(b"\n\n", pos)
                    if blank < 0:
                        blank = _NOT_FOUND
                if crlf_blank < pos:
                    crlf_blank = find(b"\n\r\n", pos, blank + 2)
                    if crlf_blank < 0 and blank == _NOT_FOUND:
                        crlf_blank = _NOT_FOUND
                end = blank if crlf_blank < pos else min(blank, crlf_blank)
                if end == _NOT_FOUND:
                    self._check_block(buf, pos, size, complete=False)
                    self._keep_partial(buf[pos:], _WAIT_HEAD)
                    return
                self._check_block(buf, pos, end, complete=True)
                body_at = end + (2 if end == blank else 3)
                head, receipt = self._read_head(buf[pos:end])
                opening = head.command in OPENING_COMMANDS
                if opening:  # has no larger body, and the client has not logged in
                    body_bytes_max = min(body_bytes_max, self._limits.header_block_bytes_max)
            # -- the body
            length = head.content_length
            if length >= 0:
                if length > body_bytes_max:
                    self.failed_receipt, self.failed_head = receipt, head
                    got = f"{length} bytes" if length < FAR_TOO_MANY else f"{FAR_TOO_MANY} bytes or more"
                    raise _body_too_large(got, body_bytes_max, opening)
                body_end = body_at + length
                if body_end >= size:
                    self._keep_partial(buf[body_at:], _WAIT_LENGTH, head, receipt)
                    return
                if buf[body_end]:
                    self.failed_receipt, self.failed_head = receipt, head
                    raise _no_nul(length, buf[body_end : body_end + 1])
            else:
                body_end = find(b"\0", body_at)
                if (body_end if body_end >= 0 else size) - body_at > body_bytes_max:
                    self.failed_receipt, self.failed_head = receipt, head
                    raise _body_too_large("more, without content-length", body_bytes_max, opening)
                if body_end < 0:
                    self._body_bytes_max = body_bytes_max
                    self._keep_partial(buf[body_at:], _WAIT_NUL, head, receipt)
                    return
            append(Frame(head, receipt, buf[body_at:body_end]))
            pos = body_end + 1
            if opening:
                self.paused = True
                self._keep_partial(buf[pos:], _WAIT_HEAD)
                return
            head = None
            if blank < _NOT_FOUND:  # else nothing in the rest is ordinary
                pos = take_ordinary(buf, pos, reader, self._quick_bytes_max, body_bytes_max, frames)
            else:
                pos = BETWEEN.match(buf, pos).end()  # type: ignore[union-attr]
            if pos >= size:
                return

    def _read_head(self, block: bytes) -> tuple[Head, bytes | None]:
        """Return the head and the receipt of a complete block that may have CRs, escapes and mistakes."""
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        receipt: bytes | None = None
        receipt_at = block.find(b"\nreceipt:")
        if receipt_at >= 0:
            receipt_end = block.find(b"\n", receipt_at + 9)
            if receipt_end < 0:
                receipt_end = len(block)
            receipt = self._reader.clean_receipt(block[receipt_at + 9 : receipt_end])
            block = block[:receipt_at] + block[receipt_end:]
        self.failed_receipt = receipt
        head = self._reader.read(block)
        self.failed_receipt = None
        return head, receipt

    def _check_block(self, buf: bytes, pos: int, stop: int, *, complete: bool) -> None:
        """Refuse what cannot become a head, in the order of its bytes: the result is the same for every cut."""
        letters = _LETTERS.match(buf, pos)
        assert letters is not None
        line_end = buf[letters.end() : letters.end() + 2]
        if not 0 < letters.end() - pos <= _limits.COMMAND_BYTES_MAX or (
            line_end and line_end[0] != _LF and line_end != b"\r" and line_end != b"\r\n"
        ):
            raise ProtocolError(
                "bad-frame",
                "expected a STOMP command",
                f"expected a line of at most {_limits.COMMAND_BYTES_MAX} letters, "
                f"got {buf[pos : pos + _limits.COMMAND_BYTES_MAX]!r}",
            )
        most = self._limits.header_block_bytes_max
        if buf.find(b"\0", pos, min(stop, pos + most + 2)) >= 0:
            raise ProtocolError(
                "bad-frame",
                "a NUL inside the headers",
                "expected a blank line between the headers and the body, got a NUL first",
            )
        if stop - pos > (most if complete else most + 2):  # LF CR of the blank line may be here already
            self.failed_receipt = self._receipt_within(buf[pos : pos + most])
            raise ProtocolError(
                "too-large",
                "the headers of a frame are too large",
                f"expected at most {most} bytes (limits.headers in the YAML file)",
            )

    def _receipt_within(self, block: bytes) -> bytes | None:
        """Return the receipt in the beginning of a block that is too large, if it is complete and valid."""
        receipt_at = block.find(b"\nreceipt:")
        receipt_end = block.find(b"\n", receipt_at + 9)
        if receipt_at < 0 or receipt_end < 0:
            return None
        try:
            return self._reader.clean_receipt(block[receipt_at + 9 : receipt_end])
        except ProtocolError:
            return None

    # --- half frames --------------------------------------------------------------------------------------------------

    def _keep_partial(self, rest: bytes, wait: int, head: Head | None = None, receipt: bytes | None = None) -> None:
        self._wait = wait
        self._pieces = [rest] if rest else []
        self._partial_bytes = len(rest)
        self.pending_bytes = len(rest) + (0 if head is None else len(head.raw))
        self._boundary = rest[-2:]
        self.pending_head = head
        self._pending_receipt = receipt

    def _take(self) -> bytes:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._partial_bytes = self.pending_bytes = 0
        self._boundary = b""
        return data

    def _may_be_complete(self, boundary: bytes, data: bytes) -> bool:
        """Return whether ``data`` may complete the partial frame; ``boundary``: two bytes of each side of the cut."""
        if self._wait == _WAIT_LENGTH:
            assert self.pending_head is not None
            return self._partial_bytes > self.pending_head.content_length
        if b"\0" in data:
            return True
        if self._wait == _WAIT_NUL:
            return self._partial_bytes > self._body_bytes_max
        if (
            self._partial_bytes - len(data) <= _limits.COMMAND_BYTES_MAX
            or self._partial_bytes > self._limits.header_block_bytes_max
        ):
            return True  # refuse an unknown command or too large a head at once
        return b"\n\n" in boundary or b"\n\r\n" in boundary or b"\n\n" in data or b"\n\r\n" in data


def _body_too_large(got: str, most: int, opening: bool) -> ProtocolError:
    key = "limits.headers" if opening else "limits.message"
    detail = f"expected at most {most} bytes ({key} in the YAML file), got {got}"
    return ProtocolError("too-large", "the body of a frame is too large", detail)


def _no_nul(length: int, got: bytes) -> ProtocolError:
    return ProtocolError(
        "bad-frame",
        "the body is not followed by a NUL",
        f"expected a NUL after the {length} bytes of content-length (which counts bytes, not characters), got {got!r}",
    )
