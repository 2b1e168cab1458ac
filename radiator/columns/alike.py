"""Header blocks that are alike: of one length, with the same names at the same places, as machines write them.

Then names and values lie in the columns of one table of bytes, and what is cut out of it need not be looked for line by
line: names are repeated, values are copied by columns. Tags take half to two thirds of the time so.

Knows: the wire form of a block. Must not know: batches, files, Spark.
Invariant: what it finds is what ``headermap`` finds in the same blocks; where it is not sure, it finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from radiator.columns.rows import Bytes, Offsets

BLOCKS_MIN = 64  # fewer are not worth the look


class Line(NamedTuple):
    """Where in each block a name begins, where its colon stands, and where its value ends."""

    start: int
    colon: int
    stop: int


class Alike:
    """``table``: a row of bytes for each block, one behind the other."""

    def __init__(self, table: Bytes, lines: Sequence[Line]) -> None:
        self._table, self._lines = table, lines

    def maps(self, prefix: bytes) -> pa.MapArray | None:
        """Of the lines whose names begin with ``prefix``, which is left out; None if names differ among the blocks."""
        table, chosen, size = self._table, [], len(prefix)
        for line in self._lines:
            wanted = table[0, line.start : line.colon][:size].tobytes() == prefix
            if not _same(table, line.start, line.colon if wanted else min(line.start + size, line.colon)):
                return None
            if wanted:
                chosen.append(line._replace(start=line.start + size))
        count = len(table)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(chosen))
        names = [table[0, line.start : line.colon].tobytes() for line in chosen]
        widths = [line.stop - line.colon - 1 for line in chosen]
        values = np.empty((count, sum(widths)), np.uint8)
        at = 0
        for line, width in zip(chosen, widths, strict=True):
            if width:
                _column(values, at, f"V{width}")[:] = _column(table, line.colon + 1, f"V{width}")
            at += width
        keys = _strings(count, [len(name) for name in names], b"".join(names) * count)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, _strings(count, widths, values))


def alike(data: Bytes, offsets: Offsets) -> Alike | None:
    """The blocks between ``offsets`` of ``data``, if they are alike and plain: ASCII, nothing escaped."""
    count, begin, end = len(offsets) - 1, int(offsets[0]), int(offsets[-1])
    if count < BLOCKS_MIN:
        return None
    length = int(offsets[1]) - begin
    if not length or count * length != end - begin or (np.diff(offsets) != length).any():
        return None
    text = data[begin:end]
    table = text.reshape(count, length)
    lines, at = [], 0
    for raw in table[0].tobytes().split(b"\n"):
        if raw.count(b":") != 1:
            return None
        lines.append(Line(at, at + raw.index(b":"), at + len(raw)))
        at += len(raw) + 1
    feeds, colons = [line.stop for line in lines[:-1]], [line.colon for line in lines]
    if not all(_same(table, place, place + 1) for place in [*feeds, *colons]):
        return None
    for byte, number in (b"\n", len(feeds)), (b":", len(colons)), (b"\\", 0):
        if int(np.count_nonzero(text == ord(byte))) != count * number:
            return None
    return Alike(table, lines) if text.max() < 128 else None


def _column(table: Bytes, start: int, kind: str) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Of each row what stands at ``start``."""
    return np.ndarray((len(table),), kind, table.data, start, (table.shape[1],))


def _same(table: Bytes, start: int, stop: int) -> bool:
    """Whether all rows have the same from ``start`` up to ``stop``; looked at in words, as these are fewer."""
    while start < stop:
        width = next(each for each in (8, 4, 2, 1) if each <= stop - start)
        column = _column(table, start, f"<u{width}")
        if (column != column[0]).any():
            return False
        start += width
    return True


def _strings(count: int, widths: Sequence[int], data: bytes | Bytes) -> pa.StringArray:
    """``count`` times as many strings as there are ``widths``, one behind the other in ``data``."""
    ends = np.cumsum([0, *widths]).astype(np.int32)
    offsets = np.empty(count * len(widths) + 1, np.int32)
    rows = offsets[:-1].reshape(count, len(widths))
    rows[:] = np.arange(count, dtype=np.int32)[:, None] * ends[-1] + ends[:-1]
    offsets[-1] = count * int(ends[-1])
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
