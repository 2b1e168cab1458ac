"""Bytes to frames, at about a microsecond a frame.

``feed`` takes whatever a socket returned and gives the frames that are complete; the rest is kept. Three ideas make it
fast in plain Python:

* nothing walks over bytes: ``find`` looks for the blank line, ``content-length`` or ``find`` gives the body;
* a publisher repeats its header block, so parsed heads are kept in a HeadCache whose key is the block as it came, only
  the line of the first ``receipt`` cut out (it differs each time and is only echoed). Equal key, equal head: exact;
* a half frame is kept as a list of pieces and looked at again only when what it waits for (blank line, length, NUL)
  has come, so the cost is linear however the stream is cut, and nothing depends on where it is cut.

``feed`` never raises for input: frames before the offending one are returned, then ``failed`` is set for ever.
Parsing stops after CONNECT, STOMP and CONNECTED until ``resume``: what follows depends on the version they settle.
Whether a command exists is not asked here; that it looks like one is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .. import limits as _limits
from ..errors import ProtocolError
from .frames import Frame, Head
from .headers import pairs, unescape
from .spec import OPENING_COMMANDS, VERSIONS

_FAR = 1 << 62  # a position that no buffer reaches: "not found"
_LINE_ENDS = re.compile(rb"[\r\n]*")
_COMMAND = re.compile(rb"[A-Za-z]*")
_WAIT_HEAD, _WAIT_LENGTH, _WAIT_NUL = range(3)


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """What one frame may cost. The defaults are those of ``radiator.limits``."""

    body_bytes_max: int = _limits.FRAME_BODY_BYTES_MAX
    header_block_bytes_max: int = _limits.HEADER_BLOCK_BYTES_MAX
    header_count_max: int = _limits.HEADER_COUNT_MAX


class HeadCache:
    """Parsed heads of SEND by their block. Bounded: two generations, the older is dropped when the younger is full."""

    __slots__ = ("young", "old", "_generation_entries_max")

    def __init__(self, entries_max: int = _limits.HEAD_CACHE_ENTRIES_MAX) -> None:
        self.young: dict[bytes, Head] = {}
        self.old: dict[bytes, Head] = {}
        self._generation_entries_max = max(1, entries_max // 2)

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def revive(self, key: bytes) -> Head | None:
        """A head of the older generation; being used, it joins the younger."""
        head = self.old.pop(key, None)
        if head is not None:
            self.add(key, head)
        return head

    def add(self, key: bytes, head: Head) -> None:
        if len(self.young) >= self._generation_entries_max:
            self.old = self.young
            self.young = {}
        self.young[key] = head

    def clear(self) -> None:
        """Forget everything (the owner of ``memo`` asks for it when what it derived no longer holds)."""
        self.young = {}
        self.old = {}


def new_caches() -> dict[str, HeadCache]:
    """One cache per version, to be shared by all connections of a process."""
    return {version: HeadCache() for version in VERSIONS}


class Parser:
    """The incremental parser of one direction of one connection."""

    def __init__(self, *, limits: ParserLimits | None = None, caches: Mapping[str, HeadCache] | None = None) -> None:
        self._limits = limits or ParserLimits()
        self._caches = caches if caches is not None else new_caches()
        self._version = "1.0"
        self._cache = self._caches["1.0"]
        self.failed: ProtocolError | None = None
        self.paused = False
        # A half frame: its pieces, their length, and what they wait for. With a head they are its body only.
        self._pieces: list[bytes] = []
        self._held = 0
        self._wait = _WAIT_HEAD
        self._head: Head | None = None
        self._receipt: bytes | None = None

    @property
    def version(self) -> str:
        return self._version

    @version.setter
    def version(self, version: str) -> None:
        self._version = version
        self._cache = self._caches[version]

    @property
    def pending_bytes(self) -> int:
        """How much of unfinished input is held."""
        return self._held + (len(self._head.raw) if self._head is not None else 0)

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two frames."""
        return self._held == 0 and self._head is None

    def resume(self, version: str) -> list[Frame]:
        """Go on after an opening frame, by the rules of ``version``; gives the frames that were waiting."""
        self.version = version
        self.paused = False
        return self.feed(b"")

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes."""
        if self.failed is not None:
            return []
        if self._held or self._head is not None or self.paused:
            boundary = self._pieces[-1][-2:] if self._pieces else b""
            if data:
                self._pieces.append(data)
                self._held += len(data)
            if self.paused or not self._worth_looking(boundary, data):
                return []
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces = []
            self._held = 0
        frames: list[Frame] = []
        try:
            self._run(data, frames)
        except ProtocolError as problem:
            self.failed = problem
            self._pieces = []
            self._held = 0
        return frames

    # --- the loop -------------------------------------------------------------------------------------------------

    def _run(self, buf: bytes, frames: list[Frame]) -> None:
        find = buf.find
        startswith = buf.startswith
        append = frames.append
        cache = self._cache
        young = cache.young
        body_bytes_max = self._limits.body_bytes_max
        fast_block_max = _limits.HEAD_CACHE_BLOCK_BYTES_MAX
        size = len(buf)
        pos = 0
        blank = crlf_blank = -1  # where the next blank line is known to be (LF LF, LF CR LF); searched once each

        head = self._head
        receipt = self._receipt
        self._head = self._receipt = None
        body_at = 0
        while pos < size or head is not None:
            if head is None:
                # -- the head: a repeated SEND first
                if blank < pos:
                    blank = find(b"\n\n", pos)
                    if blank < 0:
                        blank = _FAR
                if blank - pos <= fast_block_max and startswith(b"SEND\n", pos):
                    receipt_at = find(b"\nreceipt:", pos, blank)
                    if receipt_at < 0:
                        receipt = None
                        head = young.get(buf[pos:blank])
                    else:
                        receipt_end = find(b"\n", receipt_at + 9, blank + 1)
                        receipt = buf[receipt_at + 9 : receipt_end]
                        head = young.get(buf[pos:receipt_at] + buf[receipt_end:blank])
                        if head is not None and not receipt.isalnum():
                            receipt = self._clean_receipt(receipt)
                    body_at = blank + 2
                if head is None:
                    # -- the head: anything
                    if buf[pos] in b"\r\n":
                        match = _LINE_ENDS.match(buf, pos)
                        assert match is not None
                        pos = match.end()
                        continue
                    if crlf_blank < pos:
                        crlf_blank = find(b"\n\r\n", pos)
                        if crlf_blank < 0:
                            crlf_blank = _FAR
                    end = blank if blank < crlf_blank else crlf_blank
                    self._check_block(buf, pos, end if end < _FAR else size, end < _FAR)
                    if end == _FAR:
                        self._hold(buf[pos:], _WAIT_HEAD)
                        return
                    body_at = end + (2 if end == blank else 3)
                    head, receipt = self._parse_head(buf[pos:end])
                    young = cache.young
            # -- the body
            length = head.content_length
            if length >= 0:
                if length > body_bytes_max:
                    raise _body_too_large(length, body_bytes_max)
                body_end = body_at + length
                if body_end >= size:
                    self._head, self._receipt = head, receipt
                    self._hold(buf[body_at:], _WAIT_LENGTH)
                    return
                if buf[body_end]:
                    raise ProtocolError(
                        "bad-frame",
                        "the body is not followed by a NUL",
                        f"content-length is {length} (it counts bytes, not characters); "
                        f"expected a NUL after so many bytes, got {buf[body_end : body_end + 1]!r}",
                    )
            else:
                body_end = find(b"\0", body_at)
                if (body_end if body_end >= 0 else size) - body_at > body_bytes_max:
                    raise _body_too_large(-1, body_bytes_max)
                if body_end < 0:
                    self._head, self._receipt = head, receipt
                    self._hold(buf[body_at:], _WAIT_NUL)
                    return
            append(Frame(head, receipt, buf[body_at:body_end]))
            pos = body_end + 1
            if head.command in OPENING_COMMANDS:
                self.paused = True
                if pos < size:
                    self._hold(buf[pos:], _WAIT_HEAD)
                return
            head = None

    # --- half frames ------------------------------------------------------------------------------------------------

    def _hold(self, rest: bytes, wait: int) -> None:
        self._wait = wait
        self._held = len(rest)
        self._pieces = [rest] if rest else []

    def _worth_looking(self, boundary: bytes, data: bytes) -> bool:
        """Whether what the half frame waits for may have come with ``data``; ``boundary``: the two bytes before it."""
        if self._wait == _WAIT_LENGTH:
            assert self._head is not None
            return self._held > self._head.content_length
        if b"\0" in data:
            return True
        if self._wait == _WAIT_NUL:
            return self._held > self._limits.body_bytes_max
        if self._held <= 2 * _limits.COMMAND_BYTES_MAX or self._held > self._limits.header_block_bytes_max:
            return True
        seam = boundary + data[:2]
        return b"\n\n" in seam or b"\n\r\n" in seam or b"\n\n" in data or b"\n\r\n" in data

    def _check_block(self, buf: bytes, pos: int, stop: int, complete: bool) -> None:
        """Refuse what cannot become a head, in the order of its bytes: the verdict is the same for every cut."""
        match = _COMMAND.match(buf, pos)
        assert match is not None
        after = match.end()
        line_end = buf[after : after + 2]
        if (
            after == pos
            or after - pos > _limits.COMMAND_BYTES_MAX
            or (line_end and line_end[:1] != b"\n" and line_end not in (b"\r", b"\r\n"))
        ):
            raise ProtocolError(
                "bad-frame",
                "expected a STOMP command",
                f"expected a line of at most {_limits.COMMAND_BYTES_MAX} letters, "
                f"got {buf[pos : pos + _limits.COMMAND_BYTES_MAX]!r}",
            )
        most = self._limits.header_block_bytes_max
        if buf.find(b"\0", pos, min(stop, pos + most)) >= 0:
            raise ProtocolError(
                "bad-frame",
                "a NUL inside the headers",
                "expected a blank line between the headers and the body, got a NUL first",
            )
        if stop - pos > (most if complete else most + 2):
            raise ProtocolError("too-large", "the headers of a frame are too large", f"at most {most} bytes")

    # --- heads -------------------------------------------------------------------------------------------------------

    def _parse_head(self, block: bytes) -> tuple[Head, bytes | None]:
        """The head of a complete block (command line and header lines), through the cache if it is a SEND."""
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        receipt: bytes | None = None
        receipt_at = block.find(b"\nreceipt:")
        if receipt_at >= 0:
            receipt_end = block.find(b"\n", receipt_at + 9)
            if receipt_end < 0:
                receipt_end = len(block)
            receipt = self._clean_receipt(block[receipt_at + 9 : receipt_end])
            block = block[:receipt_at] + block[receipt_end:]
        if not block.startswith(b"SEND\n") or len(block) > _limits.HEAD_CACHE_BLOCK_BYTES_MAX:
            return self._decode(block), receipt
        cache = self._cache
        head = cache.young.get(block) or cache.revive(block)
        if head is None:
            head = self._decode(block)
            if b"\r" not in block:  # the fast path relies on it: an equal key has no other line ends
                cache.add(block, head)
        return head, receipt

    def _decode(self, block: bytes) -> Head:
        version = self._version
        try:
            text = block.decode()
        except UnicodeDecodeError as problem:
            raise ProtocolError("bad-header", "a header is not valid UTF-8", str(problem)) from None
        command, _, rest = text.partition("\n")
        raw = block[len(command) + 1 :]
        if not rest:
            return Head(command, {}, raw, version, -1)
        lines = rest.split("\n")
        if len(lines) > self._limits.header_count_max:
            raise ProtocolError(
                "too-many", "a frame has too many headers", f"at most {self._limits.header_count_max}, got {len(lines)}"
            )
        headers: dict[str, str] | None = None
        if command in OPENING_COMMANDS:
            headers = _opening_headers(command, lines)
        elif "\\" not in rest and (version != "1.0" or (" " not in rest and "\t" not in rest)):
            try:
                headers = dict([line.split(":", 1) for line in lines])  # type: ignore[misc]
            except ValueError:
                pass  # a line without a colon: told below
            else:
                if len(headers) != len(lines) or "" in headers:
                    headers = None
        if headers is None:
            headers = {}
            for name, value in pairs(raw, version):
                headers.setdefault(name, value)
        headers.pop("receipt", None)  # a repeated one; the first was cut out
        length = -1
        if "content-length" in headers:
            length = _content_length(headers["content-length"])
        return Head(command, headers, raw, version, length)

    def _clean_receipt(self, receipt: bytes) -> bytes:
        """A receipt is echoed as it came, so it must be a header value that this version can be sent."""
        receipt = receipt.removesuffix(b"\r")
        if self._version == "1.0":
            receipt = receipt.strip(b" \t")
        if b"\0" in receipt:
            raise ProtocolError("bad-frame", "a NUL inside the headers", f"in the header receipt: {receipt[:80]!r}")
        pairs(b"receipt:" + receipt, self._version)
        return receipt


def _opening_headers(command: str, lines: list[str]) -> dict[str, str]:
    """Headers of CONNECT, STOMP and CONNECTED: not escaped, as no version is agreed yet."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise ProtocolError(
                "bad-header", "a header line is not name:value", f"expected 'name:value', got {line[:200]!r}"
            )
        headers.setdefault(name, value)
    if "accept-version" not in headers and "version" not in headers:  # 1.0, whose own examples write "login: name"
        return {name: value.strip(" \t") for name, value in headers.items()}
    if command == "STOMP":  # some clients escape here, as in any other frame
        return {_if_escaped(name): _if_escaped(value) for name, value in headers.items()}
    return headers


def _if_escaped(text: str) -> str:
    try:
        return unescape(text, "1.2")
    except ProtocolError:
        return text


def _content_length(text: str) -> int:
    digits = text.strip(" \t")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise ProtocolError(
            "bad-header", "content-length is not a number of bytes", f"expected decimal digits, got {text[:80]!r}"
        )
    return int(digits)


def _body_too_large(length: int, most: int) -> ProtocolError:
    got = f"{length} bytes" if length >= 0 else "more, with no NUL in sight"
    return ProtocolError("too-large", "the body of a frame is too large", f"at most {most} bytes (limits.message), got {got}")
