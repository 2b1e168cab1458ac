"""Parse header blocks to Heads, with a cache for repeated ones.

A *block* is the command line and the header lines of one frame, joined by LF, without the line of the first
``receipt``: that one differs from frame to frame and is only echoed. Publishers repeat the rest, so the heads of SEND
are cached by their block. Equal block, equal head: the key is exact. Blocks with a header that identifies the message
(``spec.UNIQUE``) do not repeat, and are not cached.

There are two ways from a block to a head. ``quick`` parses what clients usually send (known command, LF, at most the
escape of a colon) with a few calls into C, and returns None in all other cases. ``read`` parses anything, and is the
only one that raises errors about the form of a header. A test compares both.
"""

from __future__ import annotations

from radiator import limits
from radiator.errors import ProtocolError
from radiator.stomp.frames import Head
from radiator.stomp.headers import pairs
from radiator.stomp.spec import CLIENT_COMMANDS, OPENING_COMMANDS, SERVER_COMMANDS, UNIQUE

FAR_TOO_MANY = 10**18  # bytes of a body
_QUICK_COMMANDS = frozenset({*CLIENT_COMMANDS, *SERVER_COMMANDS} - OPENING_COMMANDS)


class HeadCache:
    """Parsed heads of SEND by their block. It has two generations; the older is dropped when the younger is full.

    Args:
        entries_max: The most heads.
        bytes_max: The most bytes that their blocks have together; the parsed heads take several times as much.
    """

    __slots__ = ("_generation_bytes_max", "_generation_entries_max", "_young_bytes", "old", "young")

    def __init__(
        self, entries_max: int = limits.HEAD_CACHE_ENTRIES_MAX, bytes_max: int = limits.HEAD_CACHE_BYTES_MAX
    ) -> None:
        self.young: dict[bytes, Head] = {}
        self.old: dict[bytes, Head] = {}
        self._young_bytes = 0
        self._generation_entries_max = max(1, entries_max // 2)
        self._generation_bytes_max = bytes_max // 2

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def revive(self, block: bytes) -> Head | None:
        """Return a head of the older generation, and move it to the younger; None if there is none."""
        head = self.old.pop(block, None)
        if head is not None:
            self.add(block, head)
        return head

    def add(self, block: bytes, head: Head) -> None:
        """Add a head."""
        size = len(block)
        if len(self.young) >= self._generation_entries_max or self._young_bytes + size > self._generation_bytes_max:
            self.old, self.young, self._young_bytes = self.young, {}, 0
        self.young[block] = head
        self._young_bytes += size

    def clear(self) -> None:
        """Drop all heads: the owner of ``memo`` calls it when its derived values are outdated."""
        self.young = {}
        self.old = {}
        self._young_bytes = 0


class HeadReader:
    """Parses the blocks of one version, with the cache of that version."""

    __slots__ = ("_count_max", "cache", "version")

    def __init__(self, version: str, cache: HeadCache, count_max: int) -> None:
        self.version = version
        self.cache = cache
        self._count_max = count_max

    def quick(self, block: bytes) -> Head | None:
        """Return the head of a plain block of at most HEAD_CACHE_BLOCK_BYTES_MAX. None: call ``read``."""
        try:
            command, lf, text = block.decode().partition("\n")
            if command not in _QUICK_COMMANDS or "\r" in text or "\0" in text:
                return None
            if command == "SEND":
                head = self.cache.revive(block)
                if head is not None:
                    return head
            if self.version == "1.0" and (" " in text or "\t" in text or "\\" in text):
                return None
            if "\n" not in text:  # most ACKs
                name, colon, value = text.partition(":")
                if bool(lf) != bool(colon):
                    return None
                headers = {name: value} if lf else {}
            else:
                lines = text.split("\n")
                headers = dict([line.split(":", 1) for line in lines])
                if len(headers) != len(lines) or len(lines) > self._count_max:
                    return None
        except ValueError:  # not UTF-8, or a line without a colon
            return None
        if "" in headers or "receipt" in headers:
            return None
        if "\\" in text:
            if text.count("\\") != text.count("\\c"):
                return None
            headers = {name.replace("\\c", ":"): value.replace("\\c", ":") for name, value in headers.items()}
        length = content_length(headers["content-length"]) if "content-length" in headers else -1
        head = Head(command, headers, block[len(command) + 1 :], self.version, length)
        if command == "SEND" and UNIQUE.isdisjoint(headers):
            self.cache.add(block, head)
        return head

    def read(self, block: bytes) -> Head:
        """Return the head of any block whose first line looks like a command. Raises ProtocolError."""
        cacheable = block.startswith(b"SEND\n") and len(block) <= limits.HEAD_CACHE_BLOCK_BYTES_MAX
        head = (self.cache.young.get(block) or self.cache.revive(block)) if cacheable else None
        if head is None:
            head = self._decode(block)
            if (
                cacheable and b"\r" not in block and UNIQUE.isdisjoint(head.headers)
            ):  # what finds the block end relies on cached blocks having no CR
                self.cache.add(block, head)
        return head

    def _decode(self, block: bytes) -> Head:
        command_line, lf, raw = block.partition(b"\n")
        command = command_line.decode("ascii")
        count = raw.count(b"\n") + 1 if lf else 0
        if count > self._count_max:
            raise ProtocolError(
                "too-many",
                "a frame has too many headers",
                f"expected at most {self._count_max} (limits.header_count in the YAML file), got {count}",
            )
        headers: dict[str, str] = {}
        for name, value in _opening_pairs(raw) if command in OPENING_COMMANDS else pairs(raw, self.version):
            headers.setdefault(name, value)
        headers.pop("receipt", None)  # a repeated one: the first was cut out, the first wins
        length = content_length(headers["content-length"]) if "content-length" in headers else -1
        return Head(command, headers, raw, self.version, length)

    def clean_receipt(self, receipt: bytes) -> bytes:
        """Return a receipt that can be echoed to a peer of this version. Raises ProtocolError."""
        if receipt.isalnum():  # as nearly all are
            return receipt
        receipt = receipt.removesuffix(b"\r")
        if b"\r" in receipt:
            raise ProtocolError(
                "bad-header", "a CR inside a receipt", f"expected a value without CR and LF, got {receipt[:200]!r}"
            )
        if self.version == "1.0":
            receipt = receipt.strip(b" \t")
        pairs(b"receipt:" + receipt, self.version)
        return receipt


def _opening_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Return the headers of CONNECT, STOMP and CONNECTED: never escaped, trimmed only for 1.0 peers."""
    found = pairs(raw, "1.0", trim=False)
    names = {name for name, _ in found}
    if "accept-version" in names or "version" in names:
        return found
    return [(name, value.strip(" \t")) for name, value in found]


def content_length(text: str) -> int:
    """Return the value of ``content-length``, at most FAR_TOO_MANY. Raises ProtocolError."""
    digits = text.strip(" \t")
    if not digits.isascii() or not digits.isdigit():
        raise ProtocolError(
            "bad-header", "content-length is not a number of bytes", f"expected decimal digits, got {text[:80]!r}"
        )
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= 18 else FAR_TOO_MANY
