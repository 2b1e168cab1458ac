"""Ordinary frames: whole, with line ends of LF, and with nothing that must be refused.

``take_ordinary`` parses them, many at a time, and stops at the first frame that is not ordinary. The parser
(``parser.py``) parses that one from its first byte on. So nothing is refused here, and the limits only say where to
stop. ``same_head_run`` splits a run of frames of one publisher with the same head.

Both functions have compiled twins (``speed.py``).
"""

from __future__ import annotations

import re

from radiator.errors import ProtocolError
from radiator.speed import accelerated
from radiator.stomp.frames import Frame
from radiator.stomp.heads import HeadReader

_CR, _S = b"\rS"
BETWEEN = re.compile(rb"[\r\n\0]*")  # frames: line ends, and NULs of clients that end a frame twice
_PLAIN_RECEIPT = bytes(set(range(0x21, 0x7F)) - {0x5C})  # nothing to check, to trim or to unescape


@accelerated
def take_ordinary(
    buf: bytes, pos: int, reader: HeadReader, block_bytes_max: int, body_bytes_max: int, frames: list[Frame]
) -> int:
    """Append the ordinary frames of ``buf`` from ``pos`` on to ``frames``.

    Args:
        buf: what came.
        pos: where a frame begins, or what may stand between two frames.
        reader: the reader of heads, for those that its cache does not have.
        block_bytes_max: a frame with a longer header block is not ordinary.
        body_bytes_max: nor is one with a longer body.
        frames: the list that the frames are added to.

    Returns:
        Where the first frame that is not ordinary begins; ``len(buf)`` if there is none.
    """
    find = buf.find
    append = frames.append
    young = reader.cache.young
    size = len(buf)
    while pos < size:
        first = buf[pos]
        if first <= _CR and first in b"\r\n\0":
            pos = BETWEEN.match(buf, pos).end()  # type: ignore[union-attr]
            continue
        blank = find(b"\n\n", pos, pos + block_bytes_max + 2)
        if blank < 0:
            return pos
        receipt_at = find(b"\nreceipt:", pos, blank)
        if receipt_at < 0:
            receipt = None
            block = buf[pos:blank]
        else:
            receipt_end = find(b"\n", receipt_at + 9, blank + 1)
            receipt = buf[receipt_at + 9 : receipt_end]
            if not (receipt.isalnum() or not receipt.translate(None, _PLAIN_RECEIPT)):
                return pos
            block = buf[pos:receipt_at] + buf[receipt_end:blank]
        head = young.get(block) if first == _S else None  # cached blocks have no CR, so no earlier blank line either
        if head is None:
            try:
                head = reader.quick(block)
            except ProtocolError:
                return pos
            if head is None:
                return pos
            young = reader.cache.young
        body_at = blank + 2
        length = head.content_length
        if length >= 0:
            body_end = body_at + length
            if length > body_bytes_max or body_end >= size or buf[body_end]:
                return pos
        else:
            body_end = find(b"\0", body_at)
            if body_end < 0 or body_end - body_at > body_bytes_max:
                return pos
        append(Frame(head, receipt, buf[body_at:body_end]))
        pos = body_end + 1
    return pos


@accelerated
def same_head_run(frames: list[Frame], start: int, count_max: int) -> tuple[list[bytes], list[bytes], int]:
    """Split the frames from ``start`` on that differ in their bodies and receipts only.

    Args:
        frames: The frames.
        start: The first of the run.
        count_max: How long the run may be.

    Returns:
        The bodies of the run; its receipts, one for each frame, or none if its frames have none; the length of the
        bodies together.
    """
    head = frames[start].head
    has_receipts = frames[start].receipt is not None
    bodies: list[bytes] = []
    receipts: list[bytes] = []
    for index in range(start, min(start + count_max, len(frames))):
        frame = frames[index]
        receipt = frame.receipt
        if frame.head is not head or (receipt is not None) is not has_receipts:
            break
        bodies.append(frame.body)
        if receipt is not None:
            receipts.append(receipt)
    return bodies, receipts, sum(map(len, bodies))
