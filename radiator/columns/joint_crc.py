"""Check many small batches by one crc.

In a log of single messages, one Python step per batch costs four times as much as its crc.

CRC-32 is linear, and its state after a batch is known from the crc that the batch contains. So the 16 bytes between two
batches that no crc covers are replaced by two words that lead from that state back to the initial state. Then the crc
of the whole run is that of its last batch if the run has no error. An error in one batch is never missed, because it
changes every later state. Errors in several batches of a run cancel out with a probability of 2**-32, as errors within
one batch do. A run with a wrong crc is checked batch by batch by the caller.

Uses the prefixes of batches. Must not import files.
Invariant: the bytes are the same before and after.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from radiator.checksum import crc32
from radiator.columns.batches import Bytes, Ints
from radiator.storage.header import CRC_FROM, HEADER_BYTES, MAGIC

SMALL_BYTES = 4096  # larger batches on average: a step for each costs less than its crc
LOOKED_AT = 4  # batches whose sizes are checked first
_POLYNOMIAL, _ONES = 0xEDB88320, 0xFFFFFFFF  # the polynomial of zlib's crc, and its initial state
_MAGIC = int.from_bytes(MAGIC, "little")
_NONE: Ints = np.empty(0, np.int64)

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]


def _leading_to(state: int) -> int:
    """Return the four bytes that lead from state 0 to ``state``."""
    for _ in range(32):
        state = ((state ^ _POLYNOMIAL) << 1 | 1) & _ONES if state >> 31 else state << 1
    return state


_BACK_TO_START = _leading_to(_ONES) << 32


def small_batches(data: Bytes) -> tuple[Ints, int]:
    """Return the valid batches at the start of ``data``, if they are small.

    Args:
        data: The bytes of a segment, from the start of a batch on. They are changed during the call and restored.

    Returns:
        The positions of consecutive batches, and the position after the last one. Nothing and 0 if the batches are
        large, or if one of them is not valid.
    """
    words = data[: len(data) & ~7].view("<u8")
    if _large(data):
        return _NONE, 0
    place = np.flatnonzero(words[: len(words) - HEADER_BYTES // 8 + 1] == _MAGIC)
    if not data.flags.writeable or len(place) * SMALL_BYTES < len(data) or place[0] != 0:
        return _NONE, 0
    prefixes = words[place + 1]  # length and crc
    lengths = (prefixes & np.uint64(_ONES)).astype(np.int64)
    at = place << 3
    ends = at + lengths
    whole = (lengths >= HEADER_BYTES) & (ends <= len(data))
    whole[1:] &= at[1:] == ends[:-1]
    count = len(whole) if whole.all() else int(np.argmin(whole))
    if not count:
        return _NONE, 0
    at, place, end = at[:count], place[:count], int(ends[count - 1])
    return (at, end) if _valid(data, words, place, prefixes[:count], end) else (_NONE, 0)


def _large(data: Bytes) -> bool:
    """Return True if the first few batches are so large that a scan of ``data`` would find nothing."""
    at = 0
    for _ in range(LOOKED_AT):
        if len(data) - at < HEADER_BYTES:
            return False
        at += max(int.from_bytes(data[at + 8 : at + 12].tobytes(), "little"), HEADER_BYTES)
    return at > LOOKED_AT * 2 * SMALL_BYTES


def _valid(data: Bytes, words: Words, place: Ints, prefixes: Words, end: int) -> bool:
    crcs = prefixes >> np.uint64(32)
    words[place[1:]] = crcs[:-1] ^ np.uint64(_ONES)
    words[place[1:] + 1] = _BACK_TO_START
    found = crc32(data.data[CRC_FROM:end])
    words[place] = _MAGIC
    words[place + 1] = prefixes
    return found == int(crcs[-1])
