"""``radiator dump``: print the contents of any store file, segments record by record, others line by line.

The directory of a partition is read up to its ``head``, as by any reader, a single segment file to its end. The CRC of
every batch is checked. Damage is reported on stderr (with ``--json`` also among the lines), the rest is still read, and
the exit code reports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from radiator.cli.common import (
    DAMAGED,
    FAILED,
    NOT_FOUND,
    OK,
    USAGE,
    CommandFailed,
    check_readable,
    json_option,
    parsed,
    progress,
    say,
)
from radiator.cli.formats import Show, compile_format, for_people
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.client.message import Message
    from radiator.storage.batch import RecordBatch
    from radiator.storage.header import BatchHeader


class Piece(NamedTuple):
    """A segment file to read up to ``end``, of the partition ``name`` ("" if the path does not show it)."""

    path: str
    end: int
    name: str


FLAGS = {  # bits of a batch's flags, in words
    1 << 2: "headers-zstd", 1 << 4: "bodies-zstd", 1 << 6: "no-event-time", 1 << 7: "no-transmit-time",
    1 << 8: "transaction", 1 << 9: "sparse", 1 << 10: "partial-crcs",
}  # fmt: skip
HEX_BYTES = 256  # of each damaged range


@click.command(short_help="Print the contents of any store file.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--batches", is_flag=True, help="Print only the batches, not their records.")
@click.option("--hex", "as_hex", is_flag=True, help="Show the first bytes of damaged parts.")
@click.option(
    "-f",
    "--format",
    "show",
    metavar="FORMAT",
    callback=parsed(compile_format),
    help="Print this for each record, as `tail --format`.",
)
@json_option
def dump(paths: tuple[str, ...], batches: bool, as_hex: bool, show: Show | None, as_json: bool) -> int:
    """Print the contents of each PATH: a segment file (.rlog), the directory of a partition, or any other store file.

    Other store files are index, head, names, salt, LOCK, transactions and the files of cursors. Needs no broker; a
    running broker is not disturbed.
    """
    if (batches or as_json) and show is not None:
        raise click.UsageError("--format cannot be combined with --batches or --json")
    try:
        return _dump(paths, batches, as_json, as_hex, show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandFailed(FAILED, f"{error.filename or paths[0]}: cannot be read: {error.strerror}") from None


def _dump(paths: tuple[str, ...], batches: bool, as_json: bool, as_hex: bool, show: Show | None) -> int:
    pieces = [piece for path in paths for piece in _pieces(path)]
    plain = for_people(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    printer = Printer(batches, as_json, as_hex, show or plain)
    with progress() as bar:
        bar.disable = bar.disable or sys.stdout.isatty()  # a bar would mix with lines on the terminal
        task = bar.add_task("reading", total=sum(piece.end for piece in pieces), note="")
        for piece in pieces:
            (printer.segment if _is_segment(piece.path) else printer.other)(piece)
            bar.update(task, advance=piece.end)
    sys.stdout.buffer.flush()
    return DAMAGED if printer.damaged else OK


def _pieces(path: str) -> Iterator[Piece]:
    """Return the segment files that a path denotes."""
    from radiator.storage import layout
    from radiator.upkeep.show import reader_of

    whole = os.path.abspath(path)
    check_readable(whole)
    check_readable(os.path.dirname(whole))
    if os.path.isdir(whole):
        known = _committed(whole)
        bases = sorted(base for base in map(layout.segment_base, os.listdir(whole)) if base is not None)
        if not bases:
            raise CommandFailed(
                USAGE,
                f"{path}: expected the directory of a partition, but it contains no segments; "
                f"`radiator ls --data DIR` lists the partitions of a data directory",
            )
        for base in bases:
            file = layout.segment_path(whole, base)
            if file in known or not known:
                yield known.get(file) or Piece(file, os.path.getsize(file), _name(whole))
    elif os.path.isfile(whole):
        if not _is_segment(whole) and reader_of(os.path.basename(whole)) is None:
            raise CommandFailed(
                USAGE,
                f"{path}: expected a segment file, <20 digits>.rlog, another file of a data directory with its "
                f"original name, or a partition's directory",
            )
        directory = os.path.dirname(whole)
        yield _committed(directory).get(whole) or Piece(whole, os.path.getsize(whole), _name(directory))
    else:
        raise CommandFailed(NOT_FOUND, f"{path}: no such file or directory")


def _is_segment(path: str) -> bool:
    from radiator.storage.layout import segment_base

    return segment_base(os.path.basename(path).removesuffix(".new")) is not None


def _committed(directory: str) -> dict[str, Piece]:
    """Return the segments of a partition in a store, each with its committed end; empty if it is not in a store."""
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
    """Print batches and records to stdout, and damage to stderr."""

    def __init__(self, only_batches: bool, as_json: bool, as_hex: bool, show: Show) -> None:
        self.damaged = False
        self._only_batches = only_batches
        self._as_json = as_json
        self._as_hex = as_hex
        self._show = show
        self._write = sys.stdout.buffer.write

    def segment(self, piece: Piece) -> None:
        """Print the contents of a segment file."""
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
            say(f"{piece.path}: removed meanwhile by retention")

    def other(self, piece: Piece) -> None:
        """Print the contents of a file that is not a segment."""
        import msgspec

        from radiator.cli.formats import visible
        from radiator.upkeep.show import read_bytes, reader_of

        reader = reader_of(os.path.basename(piece.path)) or read_bytes
        try:
            with open(piece.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            say(f"{piece.path}: removed meanwhile")
            return
        for line in reader(data):
            if line.damage:
                self._damage(piece, line.start, line.end, line.damage)
            elif self._as_json:
                fields = {"file": piece.path, "start": line.start, "end": line.end, "what": line.what, **line.values}
                self._write(msgspec.json.encode(fields) + b"\n")
            elif "hex" in line.values:
                self._write(hexdump(data, 0).encode())
            else:
                values = " ".join(f"{name}={_shown(value)}" for name, value in line.values.items())
                self._write(visible(f"{line.start}: {line.what} {values}".rstrip()).encode() + b"\n")

    def _damage(self, piece: Piece, position: int, end: int, reason: str) -> None:
        import msgspec

        self.damaged = True
        sys.stdout.buffer.flush()
        say(f"{piece.path}: damage at bytes {position} to {end}: {reason}")
        if self._as_hex:
            with open(piece.path, "rb") as file:
                file.seek(position)
                sys.stderr.write(hexdump(file.read(min(HEX_BYTES, end - position)), position))
        if self._as_json:
            found = {"segment": piece.path, "position": position, "end": end, "reason": reason}
            self._write(msgspec.json.encode({"damage": found}) + b"\n")

    def _batch(self, piece: Piece, position: int, header: BatchHeader, following: int) -> None:
        import msgspec

        from radiator.clock import rfc3339
        from radiator.storage.header import COMPRESSED

        packed = bool(header.flags & COMPRESSED)
        words = [word for bit, word in FLAGS.items() if header.flags & bit]
        if self._as_json:
            fields = {
                "segment": piece.path, "partition": piece.name, "position": position, "bytes": header.total_len,
                "base_offset": header.base_offset, "next_offset": following, "records": header.records,
                "flags": header.flags, "flag_words": words, "compressed": packed,
                "crc": f"{header.crc:08x}", "salt": f"{header.salt:08x}", "destinations": header.destination_count,
                "names_bytes": header.names_len, "headers_bytes": header.headers_len, "bodies_bytes": header.bodies_len,
                "min_receive_time": header.min_receive_ns, "max_receive_time": header.max_receive_ns,
            }  # fmt: skip
            self._write(msgspec.json.encode(fields) + b"\n")
        else:
            text = (
                f"{position}: offsets {header.base_offset} to {following - 1}, {counted(header.records, 'record')}, "
                f"{header.total_len} bytes{' (zstd)' if packed else ''}, received {rfc3339(header.min_receive_ns)} to "
                f"{rfc3339(header.max_receive_ns)}, crc {header.crc:08x}, salt {header.salt:08x}, "
                f"flags {','.join(words) or 'none'}\n"
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


def _shown(value: Any) -> str:
    if isinstance(value, list):  # pairs: intervals, or offsets with delivery counts
        return ",".join(f"{first}:{second}" for first, second in value)
    return str(value)


def hexdump(data: bytes, start: int) -> str:
    """Return lines of 16 bytes as in ``docs/storage-format.md``; ``start`` is the position of the first byte."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start + at:08x}  {left:<23}  {right:<23}  |{text}|\n")
    return "".join(lines)


def record(partition: str, batch: RecordBatch, index: int) -> Message:
    """Return a stored record as the message that a subscriber would receive."""
    from radiator.broker.logs.wire import RECORD_HEADERS, StoredRecord
    from radiator.client.message import Message
    from radiator.stomp.headers import split_block
    from radiator.storage.layout import message_id_prefix

    stored = StoredRecord(batch, index, partition, message_id_prefix(partition) if partition else "")
    headers = {name: value_of(stored) for name, value_of in RECORD_HEADERS.items()}
    for name, value in split_block(batch.blocks[index]):
        headers.setdefault(name, value)
    return Message(headers, batch.bodies[index], None)  # type: ignore[arg-type] # it belongs to no subscription
