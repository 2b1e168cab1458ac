"""``radiator dump``: the records of segment files, one by one, and whatever is damaged between them.

A partition's directory is read up to its ``head``, as any reader does; a lone segment file to its end. Every batch is
checked by its crc. Damage is told on stderr (in JSON also among the lines), what follows it is read on, and the command
ends with its own exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from radiator.cli.common import DAMAGED, NOT_FOUND, OK, USAGE, CommandFailed, json_option, progress, say

if TYPE_CHECKING:
    from radiator.cli.formats import Show
    from radiator.client.message import Message
    from radiator.storage.batch import RecordBatch
    from radiator.storage.format import BatchHeader


class Piece(NamedTuple):
    """A segment file to be read up to ``end``, of the partition ``name`` ("" if the path does not tell)."""

    path: str
    end: int
    name: str


@click.command(short_help="Print the records of segment files.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--batches", is_flag=True, help="Print only the batches, not their records.")
@click.option("-f", "--format", "pattern", metavar="FORMAT", help="Print this for each record, as `tail --format`.")
@json_option
def dump(paths: tuple[str, ...], batches: bool, pattern: str | None, as_json: bool) -> int:
    """Print the records of each PATH: a segment file (.rlog) or the directory of a partition.

    Needs no broker, and does not mind one.
    """
    if (batches or as_json) and pattern is not None:
        raise click.UsageError("--format goes with neither --batches nor --json")
    pieces = [piece for path in paths for piece in _pieces(path)]
    printer = Printer(batches, as_json, _show(pattern))
    with progress() as bar:
        bar.disable = bar.disable or sys.stdout.isatty()  # lines and a bar would fight for the terminal
        task = bar.add_task("reading", total=sum(piece.end for piece in pieces), note="")
        for piece in pieces:
            printer.segment(piece)
            bar.update(task, advance=piece.end)
    sys.stdout.buffer.flush()
    return DAMAGED if printer.damaged else OK


def _show(pattern: str | None) -> Show:
    from radiator.cli.formats import compile_format, for_people

    if pattern is None:
        return for_people(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    try:
        return compile_format(pattern)
    except ValueError as error:
        raise click.BadParameter(f"--format: {error}") from None


def _pieces(path: str) -> Iterator[Piece]:
    """What a path stands for."""
    from radiator.storage import layout

    whole = os.path.abspath(path)
    if os.path.isdir(whole):
        known = _committed(whole)
        bases = sorted(base for base in map(layout.segment_base, os.listdir(whole)) if base is not None)
        if not bases:
            raise CommandFailed(USAGE, f"{path}: expected the directory of a partition, but it holds no segments")
        for base in bases:
            file = layout.segment_path(whole, base)
            if file in known or not known:
                yield known.get(file) or Piece(file, os.path.getsize(file), _name(whole))
    elif os.path.isfile(whole):
        if layout.segment_base(os.path.basename(whole)) is None:
            raise CommandFailed(USAGE, f"{path}: expected a segment file, <20 digits>.rlog, or a partition's directory")
        directory = os.path.dirname(whole)
        yield _committed(directory).get(whole) or Piece(whole, os.path.getsize(whole), _name(directory))
    else:
        raise CommandFailed(NOT_FOUND, f"{path}: no such file or directory")


def _committed(directory: str) -> dict[str, Piece]:
    """The segments of a partition that lies in a store, each with its committed end; empty if it does not."""
    from radiator.errors import StorageError
    from radiator.storage.reader import list_partitions

    try:
        partitions = list_partitions(os.path.dirname(os.path.dirname(directory)))
    except (StorageError, OSError):
        return {}
    for partition in partitions:
        if os.path.abspath(partition.directory) == directory:
            pieces = [Piece(os.path.abspath(s.path), s.size_bytes, partition.name) for s in partition.segments]
            return {piece.path: piece for piece in pieces}
    return {}


def _name(directory: str) -> str:
    from radiator.storage.layout import decode_name

    try:
        return decode_name(os.path.basename(directory))
    except ValueError:
        return ""


class Printer:
    """Writes batches and records to stdout, damage to stderr."""

    def __init__(self, only_batches: bool, as_json: bool, show: Show) -> None:
        self.damaged = False
        self._only_batches = only_batches
        self._as_json = as_json
        self._show = show
        self._write = sys.stdout.buffer.write

    def segment(self, piece: Piece) -> None:
        """Everything in one segment file."""
        from radiator.storage.reader import Damage, segment_records, segment_spans

        try:
            if self._only_batches:
                for position, header, following in segment_spans(piece.path, end=piece.end):
                    if isinstance(header, Damage):
                        self._damage(piece, header.position, header.end, header.reason)
                    else:
                        self._batch(piece, position, header, following)
                return
            for position, found in segment_records(piece.path, end=piece.end):
                if isinstance(found, Damage):
                    self._damage(piece, found.position, found.end, found.reason)
                else:
                    self._records(piece, position, found)
        except FileNotFoundError:
            say(f"{piece.path}: gone meanwhile, taken by retention")

    def _damage(self, piece: Piece, position: int, end: int, reason: str) -> None:
        import msgspec

        self.damaged = True
        sys.stdout.buffer.flush()
        say(f"{piece.path}: damage at bytes {position} to {end}: {reason}")
        if self._as_json:
            found = {"segment": piece.path, "position": position, "end": end, "reason": reason}
            self._write(msgspec.json.encode({"damage": found}) + b"\n")

    def _batch(self, piece: Piece, position: int, header: BatchHeader, following: int) -> None:
        import msgspec

        from radiator.cli.formats import rfc3339
        from radiator.storage.format import COMPRESSED

        packed = bool(header.flags & COMPRESSED)
        if self._as_json:
            fields = {
                "segment": piece.path, "partition": piece.name, "position": position, "bytes": header.total_len,
                "base_offset": header.base_offset, "next_offset": following, "records": header.records,
                "flags": header.flags, "compressed": packed,
                "min_receive_time": header.min_receive_ns, "max_receive_time": header.max_receive_ns,
            }  # fmt: skip
            self._write(msgspec.json.encode(fields) + b"\n")
        else:
            text = (
                f"{position}: offsets {header.base_offset} to {following - 1}, {header.records} records, "
                f"{header.total_len} bytes{' (zstd)' if packed else ''}, received {rfc3339(header.min_receive_ns)} to "
                f"{rfc3339(header.max_receive_ns)}\n"
            )
            self._write(text.encode())

    def _records(self, piece: Piece, position: int, batch: RecordBatch) -> None:
        import msgspec

        from radiator.cli.formats import json_record

        for index in range(len(batch)):
            message = record(piece.name, batch, index)
            if self._as_json:
                line = {**json_record(message), "segment": piece.path, "position": position}
                self._write(msgspec.json.encode(line) + b"\n")
            else:
                self._write(self._show(message))


def record(partition: str, batch: RecordBatch, index: int) -> Message:
    """A stored record as the message that a subscriber would get."""
    from radiator.client.message import Message
    from radiator.stomp.headers import split_block
    from radiator.storage.layout import message_id

    offset = batch.offsets[index]
    headers = {
        "destination": batch.names[batch.destination_ids[index]],
        "message-id": message_id(partition, offset) if partition else "",
        "partition": partition,
        "offset": str(offset),
        "receive-time": str(batch.receive_ns[index]),
    }
    for name, value in split_block(batch.blocks[index]):
        headers.setdefault(name, value)
    return Message(headers, batch.bodies[index], None)  # type: ignore[arg-type] # it belongs to no subscription
