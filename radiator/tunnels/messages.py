"""Read and write runs of WebSocket data messages: the hot path of ``websocket``.

A *plain* message is one frame without an extension: FIN and an opcode, then the length, then the payload. Nearly all
traffic consists of plain messages, many in each read, so whole runs are converted by one call. Both functions have a
compiled twin (``radiator/speed.py``). The protocol machine of the library ``websockets`` reads all other frames.

Source: RFC 6455, section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from radiator.speed import accelerated

FIN = 0x80
CONTINUATION, TEXT, BINARY = 0x0, 0x1, 0x2
FIRST_CONTROL = 0x8  # opcodes from here on are those of control frames
LENGTH_MAX = (1 << 63) - 1
CONTENT_LENGTH = b"\ncontent-length:"


class FrameHead(NamedTuple):
    """The head of a WebSocket frame.

    Attributes:
        first: The first byte: FIN, three reserved bits, and the opcode.
        mask: The masking key; empty if the frame is not masked.
        size: The bytes of the head itself.
        length: The bytes of the payload.
    """

    first: int
    mask: bytes
    size: int
    length: int


def read_head(data: bytes, start: int) -> FrameHead | None:
    """Return the head of the frame at ``start``; None if it is not complete."""
    if len(data) < start + 2:
        return None
    first, second = data[start], data[start + 1]
    length, at = second & 0x7F, start + 2
    if length >= 126:
        width = 2 if length == 126 else 8
        length = int.from_bytes(data[at : at + width])
        at += width
    end = at + 4 if second & 0x80 else at
    return FrameHead(first, data[at:end], end - start, length) if len(data) >= end else None


def unmask(data: bytes, key: bytes) -> bytes:
    """Return the payload of a masked frame, or the other way round. The key has four bytes."""
    size = len(data)
    keys = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data) ^ int.from_bytes(keys)).to_bytes(size)


@accelerated
def take_messages(data: bytes, start: int, most: int, masked: bool) -> tuple[bytes, int, int, int]:
    """Take whole plain messages from received bytes. A compiled twin exists (``radiator/speed.py``).

    It ends before a frame that is not whole, not plain, or text that is not UTF-8.

    Args:
        data: The received bytes.
        start: The index of the first frame.
        most: The maximum number of messages.
        masked: True if the frames must be masked, those of a client.

    Returns:
        The joined payloads, the index of the first byte that was not taken, the number of messages, and the opcode
        of the last message (0 without one).
    """
    at, end, count, opcode = start, len(data), 0, 0
    pieces: list[bytes] = []
    while count < most:
        head = read_head(data, at)
        if head is None or head.first not in (FIN | TEXT, FIN | BINARY) or bool(head.mask) is not masked:
            break
        stop = at + head.size + head.length
        if stop > end:
            break
        piece = data[at + head.size : stop]
        if masked:
            piece = unmask(piece, head.mask)
        if head.first == FIN | TEXT and not is_text(piece):
            break
        pieces.append(piece)
        opcode = head.first & 0x0F
        at = stop
        count += 1
    return b"".join(pieces), at, count, opcode


@accelerated
def as_messages(data: bytes, opcode: int) -> bytes:
    """Return each STOMP frame as a plain message that is not masked. A compiled twin exists (``radiator/speed.py``).

    Args:
        data: Whole STOMP frames and heart-beats.
        opcode: ``TEXT`` or ``BINARY``.
    """
    pieces: list[bytes] = []
    for frame in split_frames(data):
        pieces += (message_head(opcode, len(frame)), frame)
    return b"".join(pieces)


def message_head(opcode: int, length: int) -> bytes:
    """Return the head of a plain message that is not masked."""
    if length < 126:
        return bytes((FIN | opcode, length))
    if length < 1 << 16:
        return bytes((FIN | opcode, 126)) + length.to_bytes(2)
    return bytes((FIN | opcode, 127)) + length.to_bytes(8)


def split_frames(data: bytes) -> Iterator[bytes]:
    """Yield STOMP frames and heart-beats one by one; other bytes stay in one piece."""
    start, end = 0, len(data)
    while start < end:
        if data[start] == 0x0A:
            yield b"\n"
            start += 1
            continue
        stop = data.find(b"\n\n", start)
        if stop < 0:
            yield data[start:]
            return
        length = data.find(CONTENT_LENGTH, start, stop)
        if length < 0:
            stop = data.find(b"\0", stop) + 1
        else:
            begin = length + len(CONTENT_LENGTH)
            stop += 3 + int(data[begin : data.index(b"\n", begin)])
        if not start < stop <= end:
            stop = end
        if data[stop : stop + 1] == b"\n":
            stop += 1
        yield data[start:stop]
        start = stop


def is_text(data: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
