"""Header blocks to Heads, and the cache that makes most of that unnecessary.

A *block* is the command line and the header lines of one frame, joined by LF, without the line of the first
``receipt``: that one differs from frame to frame and is only ever echoed. Publishers repeat the rest, so the heads of
SEND are kept in a HeadCache under their block. Equal block, equal head: the key is exact, nothing is guessed. Blocks
with a header that says which message this is (``spec.UNIQUE``) do not repeat, and are not kept.

Two ways lead from a block to a head. ``quick`` takes what clients really send (known command, LF, no escape but
``\\c``) with a handful of calls into C and gives None at the first doubt; ``read`` takes anything, and is the only one
that complains about the form of a header. A test holds both against each other.
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
    """Parsed heads of SEND by their block. Bounded: two generations, the older is dropped when the younger is full.

    Args:
        entries_max: the most heads.
        bytes_max: the most bytes that their blocks have together; what is made of a block takes some times as much.
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
        """A head of the older generation; being used, it joins the younger."""
        head = self.old.pop(block, None)
        if head is not None:
            self.add(block, head)
        return head

    def add(self, block: bytes, head: Head) -> None:
        size = len(block)
        if len(self.young) >= self._generation_entries_max or self._young_bytes + size > self._generation_bytes_max:
            self.old, self.young, self._young_bytes = self.young, {}, 0
        self.young[block] = head
        self._young_bytes += size

    def clear(self) -> None:
        """Forget everything: the owner of ``memo`` asks for it when what it derived no longer holds."""
        self.young = {}
        self.old = {}
        self._young_bytes = 0


class HeadReader:
    """Reads the blocks of one version, through the cache of that version."""

    __slots__ = ("_count_max", "cache", "version")

    def __init__(self, version: str, cache: HeadCache, count_max: int) -> None:
        self.version = version
        self.cache = cache
        self._count_max = count_max

    def quick(self, block: bytes) -> Head | None:
        """The head of a plain block of at most HEAD_CACHE_BLOCK_BYTES_MAX. None: ``read`` must look at it."""
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
        """The head of any block whose first line looks like a command; ProtocolError if it has none."""
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
        """A receipt is echoed as it came, so it must be a header value that a peer of this version can be sent."""
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
    """Headers of CONNECT, STOMP and CONNECTED: never escaped, and trimmed only where a 1.0 peer wrote them."""
    found = pairs(raw, "1.0", trim=False)
    names = {name for name, _ in found}
    if "accept-version" in names or "version" in names:
        return found
    return [(name, value.strip(" \t")) for name, value in found]


def content_length(text: str) -> int:
    """At most FAR_TOO_MANY."""
    digits = text.strip(" \t")
    if not digits.isascii() or not digits.isdigit():
        raise ProtocolError(
            "bad-header", "content-length is not a number of bytes", f"expected decimal digits, got {text[:80]!r}"
        )
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= 18 else FAR_TOO_MANY
