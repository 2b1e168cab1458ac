"""Convert header blocks to Arrow maps, vectorised.

A stored block is lines of the STOMP 1.2 wire form: ``name:value``, separated by LF. A colon inside a name or a value is
escaped, so each line has exactly one colon. The positions of all LFs and colons in the joined blocks are therefore the
positions of all names and values. They become one Arrow string array over the bytes without a copy, with four tokens
per line (name, colon, value, rest); names and values are two ``take``s of it. Only tokens with a backslash are decoded
in Python, by the header codec.

Blocks with the same names use ``uniform`` instead. Blocks that do not have this form, or are not UTF-8 (another program
wrote them), are decoded one by one; bytes that are not UTF-8 become U+FFFD.

Uses stored header blocks. Must not import batches, files or Spark.
Source: STOMP 1.2, "Value Encoding".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.columns.batches import Bytes, Ints, Offsets
from radiator.columns.uniform import uniform_blocks
from radiator.errors import ProtocolError
from radiator.stomp.headers import split_block, unescape

TAG_PREFIX = "tag-"
_TAG = int.from_bytes(TAG_PREFIX.encode(), "little")
_LF, _COLON = 10, 58
_MAP_TYPE = pa.map_(pa.string(), pa.string())


class HeaderMaps:
    """The two map columns of joined header blocks.

    Args:
        data: The bytes that contain the blocks.
        offsets: The boundaries: block ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
    """

    def __init__(self, data: Bytes, offsets: Offsets) -> None:
        self._data, self._offsets = data, offsets
        self._uniform = uniform_blocks(data, offsets)
        self._looked = False

    def _look(self) -> None:
        """Find all lines, at the first call."""
        if self._looked:
            return
        self._looked = True
        data, offsets = self._data, self._offsets
        begin, end = int(offsets[0]), int(offsets[-1])
        text = data[begin:end]
        feeds = (np.flatnonzero(text == _LF) + begin).astype(np.int32)
        colons = (np.flatnonzero(text == _COLON) + begin).astype(np.int32)
        self._colons = colons
        # The index of the first line of each block, if every line has one colon; that is checked below.
        self._lines = np.searchsorted(colons, offsets).astype(np.int32)
        filled = offsets[1:] > offsets[:-1]  # an empty block has no line
        last = np.zeros(len(colons), np.bool_)
        if len(colons):
            last[self._lines[1:][filled] - 1] = True
        self._regular = (
            len(colons) == len(feeds) + int(np.count_nonzero(filled)) == len(feeds) + int(np.count_nonzero(last))
        )
        if self._regular:
            stops = np.empty(len(colons), np.int32)
            stops[last] = offsets[1:][filled]
            stops[~last] = feeds
            starts = np.empty(len(colons), np.int32)
            starts[:1] = begin
            np.add(stops[:-1], ~last[:-1], out=starts[1:])
            self._starts, self._stops = starts, stops
            self._regular = bool(((starts <= colons) & (colons < stops)).all())
        if self._regular and len(text) and text.max() > 127:
            self._regular = _valid(text, offsets[:-1][filled] - begin)
        self._escaped = self._regular and bool((text == ord("\\")).any())

    def headers(self, key: str | None = None) -> pa.MapArray:
        """Return all headers, one map per block.

        Args:
            key: The only key that the caller needs. The maps may omit the others.
        """
        if key is not None and (maps := self._only(key, 0)) is not None:
            return maps
        if self._uniform is not None and (maps := self._uniform.maps(b"")) is not None:
            return maps
        self._look()
        if not self._regular:
            return self._slowly("")
        return self._maps(self._lines, None, 0)

    def tags(self, key: str | None = None) -> pa.MapArray:
        """Return the headers whose names begin with ``tag-``, without that prefix, one map per block.

        Args:
            key: The only key that the caller needs. The maps may omit the others.
        """
        if key is not None and (maps := self._only(TAG_PREFIX + key, len(TAG_PREFIX))) is not None:
            return maps
        if self._uniform is not None and (maps := self._uniform.maps(TAG_PREFIX.encode())) is not None:
            return maps
        self._look()
        if not self._regular:
            return self._slowly(TAG_PREFIX)
        starts, data = self._starts, self._data
        chosen = np.flatnonzero(self._colons - starts >= len(TAG_PREFIX))
        fours = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,))  # four bytes at each position
        chosen = chosen[fours[starts[chosen]] == _TAG]
        before = np.zeros(len(starts) + 1, np.int32)  # the number of chosen lines before each line
        is_chosen = np.zeros(len(starts), np.bool_)
        is_chosen[chosen] = True
        np.cumsum(is_chosen, out=before[1:])
        return self._maps(before[self._lines], chosen, len(TAG_PREFIX))

    def _only(self, name: str, cut: int) -> pa.MapArray | None:
        """Return the maps of the lines with one name, or None if that is not simple."""
        if self._uniform is None or not (name.isascii() and name.isprintable()) or ":" in name or "\\" in name:
            return None
        return self._uniform.maps_of(f"{name}:".encode(), cut)

    def _maps(self, line_offsets: Offsets, lines: Ints | None, cut: int) -> pa.MapArray:
        """Return the maps of the given lines, or of all lines; ``cut`` bytes are removed from each name."""
        starts, colons, stops = self._starts, self._colons, self._stops
        if lines is not None:
            starts, colons, stops = starts[lines], colons[lines], stops[lines]
        count = len(starts)
        tokens = np.empty(4 * count + 1, np.int32)
        np.add(starts, cut, out=tokens[0:-1:4])
        tokens[1::4] = colons
        np.add(colons, 1, out=tokens[2::4])
        tokens[3::4] = stops
        tokens[-1] = self._offsets[-1]
        text = pa.StringArray.from_buffers(4 * count, pa.py_buffer(tokens), pa.py_buffer(self._data))
        first = np.arange(0, 4 * count, 4, dtype=np.int32)
        names, values = text.take(pa.array(first)), text.take(pa.array(first + 2))
        if self._escaped:
            names, values = _unescaped(names), _unescaped(values)
        return pa.MapArray.from_arrays(pa.array(line_offsets), names, values)

    def _slowly(self, prefix: str) -> pa.MapArray:
        view, maps = self._data.data, []
        for start, stop in zip(self._offsets[:-1].tolist(), self._offsets[1:].tolist(), strict=True):
            block = bytes(view[start:stop])
            try:
                pairs = split_block(block)
            except (ProtocolError, UnicodeDecodeError):
                lines = [line.partition(":") for line in block.decode("utf-8", "replace").split("\n")]
                pairs = [(_meaning(name), _meaning(value)) for name, _, value in lines]
            first_wins: dict[str, str] = {}
            for name, value in pairs:
                if name.startswith(prefix):
                    first_wins.setdefault(name[len(prefix) :], value)
            maps.append(list(first_wins.items()))
        return pa.array(maps, _MAP_TYPE)


def _valid(text: Bytes, starts: Offsets) -> bool:
    """Return True if each block is UTF-8.

    If all blocks joined are UTF-8, only a block that begins inside a character is not.
    """
    try:
        str(text.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return not ((text[starts] & 0xC0) == 0x80).any()


def _unescaped(tokens: pa.StringArray) -> pa.StringArray:
    escaped = pc.match_substring(tokens, "\\")
    if not pc.any(escaped).as_py():
        return tokens
    decoded = [_meaning(text) for text in tokens.filter(escaped).to_pylist()]
    return pc.replace_with_mask(tokens, escaped, pa.array(decoded, pa.string()))


def _meaning(text: str) -> str:
    try:
        return unescape(text, "1.2")
    except ProtocolError:
        return text  # an escape that STOMP does not define stays as it was received
