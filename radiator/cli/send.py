"""``radiator send``: send messages from arguments, files or stdin, and wait until they are stored."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

import click

from radiator.cli.common import (
    OK,
    BrokerOptions,
    connection_options,
    header_option,
    json_option,
    progress,
    put_json,
    put_text,
    say,
)
from radiator.cli.hints import warn_of_slips
from radiator.errors import ClientError
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.cli.sources import Chunk
    from radiator.client import Connection, Receipt
    from radiator.client.link import Pending


@click.command(short_help="Send messages and wait until they are stored.")
@click.argument("destination", required=False)
@click.argument("messages", nargs=-1, metavar="[TEXT]...")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Read FILE; - is stdin. May be repeated.")
@click.option("-m", "--message", "texts", multiple=True, metavar="TEXT", help="Send TEXT. May be repeated.")
@click.option(
    "--as", "kind", type=click.Choice(("lines", "json", "csv", "whole", "records")),
    help="Format of the input. Default: by the file's suffix (.json .jsonl .ndjson .csv), else lines.",
)  # fmt: skip
@header_option("Add a header. May be repeated.")
@click.option("--transaction", is_flag=True, help="Send all messages in one transaction: all or nothing.")
@click.option(
    "--window", type=click.IntRange(min=1), default=10_000, show_default=True, metavar="N",
    help="Send at most N messages ahead of their receipts.",
)  # fmt: skip
@click.option(
    "--producer-id", metavar="NAME",
    help="Number the messages 1 2 3... under NAME, so that a repeated command stores only what is missing.",
)  # fmt: skip
@connection_options
@json_option
def send(
    destination: str | None, messages: tuple[str, ...], files: tuple[str, ...], texts: tuple[str, ...],
    kind: str | None, headers: dict[str, str], transaction: bool, window: int, producer_id: str | None,
    broker: BrokerOptions, as_json: bool,
) -> int:  # fmt: skip
    """Send messages to DESTINATION and wait until they are stored.

    Each TEXT is a message, as with --message. Without TEXT, --message and --file, stdin is read. With --as records
    DESTINATION may be omitted, since each record has its own.
    """
    texts = messages + texts
    if texts and (files or kind):
        raise click.UsageError("TEXT and --message cannot be combined with --file or --as")
    if destination is None and kind != "records":
        raise click.UsageError("Missing argument 'DESTINATION'.")
    if destination is not None:
        warn_of_slips([destination])
    chunks = (
        _texts(texts, destination or "", headers) if texts else _read(files or ("-",), kind, destination or "", headers)
    )
    if producer_id is not None:
        chunks = _numbered(chunks, producer_id)
    with broker.connect() as connection:
        sender = Sender(connection, window)
        started = time.monotonic()
        try:
            with progress() as bar:
                task = bar.add_task("sending", total=_size(files), note="")
                sender.run(chunks, transaction, lambda size: bar.update(task, advance=size, note=sender.note()))
        except ClientError:
            if sender.sent:
                stored = 0 if transaction else sender.stored
                say(f"{stored} of {sender.sent} messages were stored for certain before this:")
            raise
        seconds = time.monotonic() - started
    if as_json:
        result = {"sent": sender.stored, "duplicates": sender.duplicates, "seconds": round(seconds, 6)}
        put_json({**result, "partitions": sender.partitions})
    else:
        before = f", {sender.duplicates} of them before" if sender.duplicates else ""
        put_text(f"{counted(sender.stored, 'message')} stored{before}{sender.where()}")
    return OK


def _texts(texts: tuple[str, ...], destination: str, headers: dict[str, str]) -> Iterator[Chunk]:
    from radiator.client.sending import Outgoing

    # an argument that is not UTF-8 is sent as its bytes
    yield [Outgoing(destination, os.fsencode(text), headers) for text in texts], 0


def _read(files: tuple[str, ...], kind: str | None, destination: str, headers: dict[str, str]) -> Iterator[Chunk]:
    from radiator.cli.sources import FORMATS, format_of, open_files

    for file, name in open_files(files):
        yield from FORMATS[kind or format_of(name)](file, name, destination, headers)


def _numbered(chunks: Iterator[Chunk], producer_id: str) -> Iterator[Chunk]:
    numbers = count(1)
    for messages, size in chunks:
        numbered = []
        for each in messages:
            headers = {**(each.headers or {}), "producer-id": producer_id, "sequence": next(numbers)}
            numbered.append(each._replace(headers=headers))
        yield numbered, size


def _size(files: tuple[str, ...]) -> int | None:
    """Return the size of all files together in bytes, or None if it is unknown."""
    if not files or not all(os.path.isfile(name) for name in files):
        return None
    return sum(os.path.getsize(name) for name in files)


class Sender:
    """Send chunks of messages and count receipts.

    Args:
        connection: The connection.
        window: Send at most N messages ahead of their receipts.

    Attributes:
        sent: The number of messages that were sent.
        stored: The number of messages that have a receipt.
        duplicates: How many of those the broker had stored before.
        partitions: Count, first and last offset by partition.
    """

    def __init__(self, connection: Connection, window: int) -> None:
        self.sent = 0
        self.stored = 0
        self.duplicates = 0  # stored before, included in ``stored``
        self.partitions: dict[str, dict[str, int]] = {}
        self._connection = connection
        self._window = window
        self._waiting: deque[Pending] = deque()

    def run(self, chunks: Iterator[Chunk], transaction: bool, on_chunk: Callable[[int], None]) -> None:
        """Send all chunks. ``on_chunk`` is called with the number of bytes read for each."""
        if transaction:
            with self._connection.transaction() as together:
                for messages, size in chunks:
                    together.send_many(messages)
                    self.sent += len(messages)
                    on_chunk(size)
            self.stored = self.sent
            return
        for messages, size in chunks:
            for start in range(0, len(messages), self._window):
                part = messages[start : start + self._window]
                while self._waiting and self.sent - self.stored + len(part) > self._window:
                    self._take(self._waiting.popleft())
                self._waiting.append(self._connection.send_nowait(part))
                self.sent += len(part)
            while self._waiting and not self._waiting[0].left:
                self._take(self._waiting.popleft())
            on_chunk(size)
        while self._waiting:
            self._take(self._waiting.popleft())

    def _take(self, pending: Pending) -> None:
        receipts = pending.wait()
        self.stored += len(receipts)
        for receipt in receipts:
            self._count(receipt)

    def _count(self, receipt: Receipt) -> None:
        self.duplicates += receipt.duplicate
        if receipt.partition is None or receipt.offset is None:
            return
        seen = self.partitions.get(receipt.partition)
        if seen is None:
            seen = self.partitions[receipt.partition] = {"count": 0, "first": receipt.offset, "last": receipt.offset}
        seen["count"] += 1
        seen["last"] = receipt.offset

    def note(self) -> str:
        """Return the note for the progress bar."""
        return f"{self.stored} stored"

    def where(self) -> str:
        """Return where the messages are stored, as a short text."""
        if not self.partitions:
            return ""
        if len(self.partitions) > 3:
            return f" in {len(self.partitions)} partitions"
        ranges = [
            f"{name} offset {seen['first']}" + (f" to {seen['last']}" if seen["last"] != seen["first"] else "")
            for name, seen in self.partitions.items()
        ]
        return f": {', '.join(ranges)}"
