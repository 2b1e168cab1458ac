"""What ``radiator send`` can read, each as a stream of messages in chunks.

A chunk is what was there to be read: a line from a pipe is sent when it comes, and a large file in large chunks. Every
format says where a fault is: ``events.json:17: ...``.

    lines     each line is a body, without its line end; an empty line is an empty body
    json      each line is a JSON value, checked, sent as it stands with ``content-type: application/json``
    csv       the first row names the columns; each further row becomes a JSON object of texts
    whole     each file is one body, byte for byte
    records   what ``radiator tail --json`` prints: destination, headers, and body or body_base64
"""

from __future__ import annotations

import base64
import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from radiator.cli.common import USAGE, CommandFailed
from radiator.client.sending import Outgoing
from radiator.stomp.spec import HOP_BY_HOP, RESERVED

READ_BYTES = 256 * 1024
CHUNK_ROWS = 500
JSON_TYPE = "application/json"
SUFFIXES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
NOT_RESENT = HOP_BY_HOP | RESERVED | {"transmit-time", "message-id"}

Chunk = tuple[list[Outgoing], int]  # messages, and the bytes read for them
Read = Callable[[BinaryIO, str, str, Mapping[str, str]], Iterator[Chunk]]


def format_of(name: str) -> str:
    """Return the input format for the suffix of a file name."""
    return SUFFIXES.get(os.path.splitext(name)[1].lower(), "lines")


def _line_chunks(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the complete lines of each read, without their ends."""
    rest: list[bytes] = []
    descriptor = file.fileno()
    while data := os.read(descriptor, READ_BYTES):
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            rest.append(data)
            continue
        lines = (b"".join(rest) + head).split(b"\n")
        rest = [tail]
        yield [line.removesuffix(b"\r") for line in lines]
    last = b"".join(rest)
    if last:
        yield [last]


def read_lines(file: BinaryIO, name: str, destination: str, headers: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield messages: each line is a body."""
    for lines in _line_chunks(file):
        yield [Outgoing(destination, line, headers) for line in lines], sum(map(len, lines)) + len(lines)


def read_json(file: BinaryIO, name: str, destination: str, headers: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield messages: each line is a JSON value."""
    extra = {"content-type": JSON_TYPE, **headers}
    number = 0
    for lines in _line_chunks(file):
        messages = []
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CommandFailed(USAGE, f"{name}:{number}: expected a JSON value on each line: {error}") from None
            messages.append(Outgoing(destination, line, extra))
        yield messages, sum(map(len, lines)) + len(lines)


def read_csv(file: BinaryIO, name: str, destination: str, headers: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield messages: each row is a JSON object."""
    extra = {"content-type": JSON_TYPE, **headers}
    counted = [0]
    rows = csv.reader(_text_lines(file, name, counted), strict=True)
    messages: list[Outgoing] = []
    before = 0
    try:
        columns = next(rows, None)
        if columns is None:
            return
        if len(set(columns)) != len(columns):
            raise CommandFailed(USAGE, f"{name}:1: expected different names of columns, got {', '.join(columns)}")
        for row in rows:
            if len(row) != len(columns):
                if not row:
                    continue
                raise CommandFailed(USAGE, f"{name}:{rows.line_num}: expected {len(columns)} fields, got {len(row)}")
            body = msgspec.json.encode(dict(zip(columns, row, strict=True)))
            messages.append(Outgoing(destination, body, extra))
            if len(messages) >= CHUNK_ROWS:
                yield messages, counted[0] - before
                before, messages = counted[0], []
    except csv.Error as error:
        raise CommandFailed(USAGE, f"{name}:{rows.line_num}: {error}") from None
    yield messages, counted[0] - before


def _text_lines(file: BinaryIO, name: str, counted: list[int]) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        counted[0] += len(line)
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CommandFailed(USAGE, f"{name}:{number}: expected UTF-8: {error}") from None


def read_whole(file: BinaryIO, name: str, destination: str, headers: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield one message: the file is the body."""
    body = file.read()
    yield [Outgoing(destination, body, headers)], len(body)


def read_records(file: BinaryIO, name: str, destination: str, headers: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield messages from lines that ``tail --json`` prints. ``destination``, if given, replaces theirs."""
    number = 0
    for lines in _line_chunks(file):
        messages = []
        for line in lines:
            number += 1
            if line.strip():
                messages.append(_record(line, f"{name}:{number}", destination, headers))
        yield messages, sum(map(len, lines)) + len(lines)


def _record(line: bytes, where: str, destination: str, headers: Mapping[str, str]) -> Outgoing:
    expected = "expected an object with destination, headers, and body or body_base64"
    try:
        record: Any = msgspec.json.decode(line)
        body = base64.b64decode(record["body_base64"]) if "body_base64" in record else record["body"].encode()
        found = {name: str(value) for name, value in record.get("headers", {}).items() if name not in NOT_RESENT}
        target = destination or record["destination"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(USAGE, f"{where}: {expected}: {error!r}") from None
    return Outgoing(target, body, {**found, **headers})


FORMATS: Mapping[str, Read] = {
    "lines": read_lines,
    "json": read_json,
    "csv": read_csv,
    "whole": read_whole,
    "records": read_records,
}


def open_files(names: Iterable[str]) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the open files and their names in order; ``-`` is stdin."""
    for name in names:
        if name == "-":
            with open(0, "rb", closefd=False) as file:
                yield file, "stdin"
        else:
            try:
                file = open(name, "rb")  # noqa: SIM115 - the fault of opening is ours to explain, later ones are not
            except OSError as error:
                raise CommandFailed(USAGE, f"{name}: cannot be read: {error.strerror}") from None
            with file:
                yield file, name
