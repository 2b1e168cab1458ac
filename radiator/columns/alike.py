"""Header blocks that are alike: the same names in the same order, as machines write them, whatever their values.

Then the k-th LF of every block ends the same line, and the places of all lines are the places of all LFs: no colon is
looked for, names are compared once and repeated, and only values are cut out of the bytes, by one ``take``. A read of
tags takes 0.6 of the CPU time so.

Knows: the wire form of a block. Must not know: batches, files, Spark.
Invariant: what it finds is what ``headermap`` finds in the same blocks; where it is not sure, it finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from radiator.columns.batches import Bytes, Ints, Offsets
from radiator.limits import MIB

BLOCKS_MIN = 64  # fewer are not worth the look
KEPT_BYTES_MAX = 8 * MIB  # of repeated names, each
_LF, _COLON, _BACKSLASH = b"\n:\\"


class Line(NamedTuple):
    """The k-th line of all blocks: its name with the colon, as in the first block, and where each begins and ends."""

    name: bytes
    starts: Ints
    stops: Ints


class Alike:
    """The blocks of ``data``, by lines. Of names only those of the first block are known."""

    def __init__(self, data: Bytes, lines: Sequence[Line]) -> None:
        self._data, self._lines = data, lines

    def maps(self, prefix: bytes) -> pa.MapArray | None:
        """Of the lines whose names begin with ``prefix``, which is left out; None if names differ among the blocks, or
        a value is not plain."""
        chosen = [line for line in self._lines if line.name.startswith(prefix)]
        names = [line.name[len(prefix) : -1] for line in chosen]
        if len(set(names)) < len(names):
            return None
        for line in self._lines:
            if not self._begins(line, line.name if line.name.startswith(prefix) else line.name[: len(prefix)]):
                return None
        count, width = len(self._lines[0].starts), len(chosen)
        values = self._values(chosen)
        if not _plain(values):
            return None
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
        return pa.MapArray.from_arrays(pa.array(offsets), _repeated(names, count), values)

    def _begins(self, line: Line, word: bytes) -> bool:
        """Whether the line begins with this in all blocks."""
        if not word:
            return True
        if int((line.stops - line.starts).min()) < len(word):
            return False
        kind = f"V{len(word)}"  # what is as long as the word, from each byte on
        words = np.ndarray((len(self._data) - len(word) + 1,), kind, self._data.data, strides=(1,))
        return np.array_equal(words[line.starts].view(np.uint8), np.frombuffer(word * len(line.starts), np.uint8))

    def _values(self, chosen: Sequence[Line]) -> pa.StringArray:
        """Block by block. The values and what lies between them are one Arrow array over the data as it lies, and
        every second string is taken from it."""
        count = len(self._lines[0].starts) * len(chosen)
        if not count:
            return pa.array([], pa.string())
        bounds = np.empty(2 * count + 1, np.int32)
        of_lines = bounds[:-1].reshape(-1, len(chosen), 2)
        for number, line in enumerate(chosen):
            np.add(line.starts, len(line.name), out=of_lines[:, number, 0], casting="unsafe")
            of_lines[:, number, 1] = line.stops
        bounds[-1] = bounds[-2]
        tokens = pa.StringArray.from_buffers(2 * count, pa.py_buffer(bounds), pa.py_buffer(self._data))
        return tokens.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def alike(data: Bytes, offsets: Offsets) -> Alike | None:
    """The blocks between ``offsets`` of ``data``, if each has as many lines as the first one."""
    count, begin, end = len(offsets) - 1, int(offsets[0]), int(offsets[-1])
    if count < BLOCKS_MIN:
        return None
    first = data[begin : int(offsets[1])].tobytes()
    names = [line[: line.find(b":") + 1] for line in first.split(b"\n")]
    if not all(names) or not first.isascii() or b"\\" in first:
        return None
    feeds = np.flatnonzero(data[begin:end] == _LF)
    if len(feeds) != count * (len(names) - 1):
        return None
    starts, stops = np.empty((2, len(names), count), np.int64)
    starts[0], stops[-1] = offsets[:-1], offsets[1:]
    np.add(feeds.reshape(count, -1).T, begin, out=stops[:-1])
    np.add(stops[:-1], 1, out=starts[1:])
    if (stops[0] < starts[0]).any() or (starts[-1] > stops[-1]).any():
        return None  # as many LFs, but not in each
    return Alike(data, list(map(Line, names, starts, stops)))


def _plain(values: pa.StringArray) -> bool:
    """Whether they are ASCII, with nothing escaped, nor to be."""
    _, offsets, data = values.buffers()
    if data is None:
        return True
    text = np.frombuffer(data, np.uint8)[: int(np.frombuffer(offsets, np.int32)[len(values)])]
    return not len(text) or bool(text.max() < 128 and not (text == _COLON).any() and not (text == _BACKSLASH).any())


def _repeated(names: Sequence[bytes], count: int) -> pa.StringArray:
    """All names, ``count`` times: of chunk after chunk the same, so they are kept if they are short."""
    enough = 1 << (count - 1).bit_length()
    if enough * (sum(map(len, names)) + 4 * len(names)) > KEPT_BYTES_MAX:
        return _repeat(names, count)
    return _kept(tuple(names), enough).slice(0, count * len(names))


@lru_cache(maxsize=8)
def _kept(names: tuple[bytes, ...], count: int) -> pa.StringArray:
    return _repeat(names, count)


def _repeat(names: Sequence[bytes], count: int) -> pa.StringArray:
    ends = np.cumsum([0, *map(len, names)]).astype(np.int32)
    offsets = np.empty(count * len(names) + 1, np.int32)
    offsets[:-1].reshape(count, len(names))[:] = np.arange(count, dtype=np.int32)[:, None] * ends[-1] + ends[:-1]
    offsets[-1] = count * int(ends[-1])
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(b"".join(names) * count))
