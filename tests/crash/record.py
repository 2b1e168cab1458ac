"""What the clients of a broker were promised, in files that outlive client and broker, and how bodies are made.

Each client has a file of its own and appends lines to it, one write each: what it is about to do goes in before it is
done, what it was told as soon as it is heard. The judge (``tests/crash/judge.py``) reads them after each kill.

| event | |
|---|---|
| stored partition offset id | a RECEIPT named this place for the message |
| seen partition offset id | a reader of a topic was sent it |
| got id redelivered partition offset | a consumer of a queue was sent it |
| acking ids, acked ids | an ACK is about to leave; its RECEIPT has come |
| back ids | about to be given back: by NACK, or by going away |
| aborting sends | these belong to a transaction that will be aborted |
| committing number sends acks | a COMMIT is about to leave |
| committed number | its RECEIPT has come |

A message is named by its id, ``<client>.<round>:<number>``; its body follows from that.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = list[Any]


def body_of(ident: str) -> bytes:
    """Mostly some hundred bytes, now and then tens of thousands."""
    seed = zlib.crc32(ident.encode())
    size = seed % 400 if seed % 40 else 4_000 + seed % 40_000
    return b"%b|" % ident.encode() + (b"%08x" % seed * (size // 8 + 1))[:size]


def id_of(body: bytes) -> str:
    """Raises AssertionError if these are not the bytes that were sent."""
    ident = body.partition(b"|")[0].decode("ascii", "replace")
    assert body == body_of(ident), f"not what was sent: {len(body)} bytes, {body[:60]!r}"
    return ident


class Record:
    """The file of one client."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, events: list[Event]) -> None:
        if events:
            os.write(self._fd, b"".join(json.dumps(event).encode() + b"\n" for event in events))

    def close(self) -> None:
        os.close(self._fd)


def events(directory: Path, read: dict[str, int]) -> Iterator[Event]:
    """What is new in all records of the directory; ``read`` remembers how far each was read."""
    for path in sorted(directory.glob("*.record")):
        with path.open("rb") as file:
            file.seek(read.get(path.name, 0))
            for line in file:
                yield json.loads(line)
            read[path.name] = file.tell()
