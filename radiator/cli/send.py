"""``radiator send``: messages from lines, JSON lines, CSV, whole files or ``tail --json``, each receipted.

Messages are sent without waiting for one another, at most ``--window`` of them without receipt, and the command ends
well only when every receipt has come. If it fails it says how many were stored for certain before that.
"""

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
    connection_options,
    header_option,
    json_option,
    open_connection,
    progress,
    put_json,
    say,
)
from radiator.cli.hints import warn_of_slips
from radiator.errors import ClientError

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
    help="What the input is. Without it the file's suffix decides (.json .jsonl .ndjson .csv), else lines.",
)  # fmt: skip
@header_option("Add a header. May be repeated.")
@click.option("--transaction", is_flag=True, help="Send everything in one transaction: all or nothing.")
@click.option(
    "--window", type=click.IntRange(min=1), default=10_000, show_default=True, metavar="N",
    help="How many messages may be without receipt.",
)  # fmt: skip
@click.option(
    "--producer-id", metavar="NAME",
    help="Number the messages, 1 2 3... under NAME: the same command, run again, stores only what is missing.",
)  # fmt: skip
@connection_options
@json_option
def send(
    destination: str | None, messages: tuple[str, ...], files: tuple[str, ...], texts: tuple[str, ...],
    kind: str | None, headers: dict[str, str], transaction: bool, window: int, producer_id: str | None,
    url: str, login: str | None, passcode: str | None, timeout: float, as_json: bool,
) -> int:  # fmt: skip
    """Send messages to DESTINATION and wait until they are stored.

    Each TEXT is a message, as with --message. Without any and without --file it reads stdin. DESTINATION may be left
    out with --as records, which carries its own.
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
    with open_connection(url, login, passcode, timeout) as connection:
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
        told = {"sent": sender.stored, "duplicates": sender.duplicates, "seconds": round(seconds, 6)}
        put_json({**told, "partitions": sender.partitions})
    else:
        before = f", {sender.duplicates} of them before" if sender.duplicates else ""
        click.echo(f"{sender.stored} message{'s' * (sender.stored != 1)} stored{before}{sender.where()}")
    return OK


def _texts(texts: tuple[str, ...], destination: str, headers: dict[str, str]) -> Iterator[Chunk]:
    from radiator.client.sending import Outgoing

    # what is no UTF-8 on the command line is sent as the bytes that were given
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
    """How many bytes the files hold together; None if that is not known."""
    if not files or not all(os.path.isfile(name) for name in files):
        return None
    return sum(os.path.getsize(name) for name in files)


class Sender:
    """Chunks in, receipts counted. ``partitions`` is what the receipts say: name -> count, first, last offset."""

    def __init__(self, connection: Connection, window: int) -> None:
        self.sent = 0
        self.stored = 0
        self.duplicates = 0  # of those: the broker had them already
        self.partitions: dict[str, dict[str, int]] = {}
        self._connection = connection
        self._window = window
        self._waiting: deque[Pending] = deque()

    def run(self, chunks: Iterator[Chunk], transaction: bool, on_chunk: Callable[[int], None]) -> None:
        """Send everything; ``on_chunk`` is told how many bytes were read."""
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
        """For the progress bar."""
        return f"{self.stored} stored"

    def where(self) -> str:
        """Where it all lies, in a few words."""
        if not self.partitions:
            return ""
        if len(self.partitions) > 3:
            return f" in {len(self.partitions)} partitions"
        ranges = [
            f"{name} offset {seen['first']}" + (f" to {seen['last']}" if seen["last"] != seen["first"] else "")
            for name, seen in self.partitions.items()
        ]
        return f": {', '.join(ranges)}"
