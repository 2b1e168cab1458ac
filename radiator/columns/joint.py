"""Many small batches checked by one crc: what a log of single messages needs, where a Python step for each batch costs
four times as much as the crc itself.

CRC-32 is linear, and its state after a batch is known from the crc that the batch carries. So between two batches,
over the 16 bytes that no crc covers, stand in two words that lead from that state back to the initial one; then the
crc of the whole run is that of its last batch if the run has no error. An error in one batch, whatever it is,
is never missed: it goes through to the end. Errors in several batches of a run could cancel out once in 2**32 times, as
any error within one batch could before. A run that does not hold is left to those who look at each batch by itself.

Knows: prefixes of batches. Must not know: files, what follows from damage.
Invariant: the bytes are afterwards what they were before.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radiator.columns.batches import Bytes, Ints
from radiator.columns.checksum import crc32
from radiator.storage.format import CRC_FROM, HEADER_BYTES, MAGIC

SMALL_BYTES = 4096  # larger batches on average: a step for each costs less than its crc
LOOKED_AT = 4
_POLYNOMIAL, _ONES = 0xEDB88320, 0xFFFFFFFF  # of zlib's crc, and its first state
_MAGIC = int.from_bytes(MAGIC, "little")
_NONE: Ints = np.empty(0, np.int64)

Words: TypeAlias = NDArray[np.uint64]


def _leading_to(state: int) -> int:
    """The four bytes that lead from state 0 to this one."""
    for _ in range(32):
        state = ((state ^ _POLYNOMIAL) << 1 | 1) & _ONES if state >> 31 else state << 1
    return state


_BACK_TO_START = _leading_to(_ONES) << 32


def small_batches(data: Bytes) -> tuple[Ints, int]:
    """Places of the batches that follow one another from the start of ``data`` on and hold, and where they end; none
    if they are large, or if one of them does not hold."""
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
    return (at, end) if _hold(data, words, place, prefixes[:count], end) else (_NONE, 0)


def _large(data: Bytes) -> bool:
    """Whether the first few batches show that a look at all of ``data`` would be for nothing."""
    at = 0
    for _ in range(LOOKED_AT):
        if len(data) - at < HEADER_BYTES:
            return False
        at += max(int.from_bytes(data[at + 8 : at + 12].tobytes(), "little"), HEADER_BYTES)
    return at > LOOKED_AT * 2 * SMALL_BYTES


def _hold(data: Bytes, words: Words, place: Ints, prefixes: Words, end: int) -> bool:
    crcs = prefixes >> np.uint64(32)
    words[place[1:]] = crcs[:-1] ^ np.uint64(_ONES)
    words[place[1:] + 1] = _BACK_TO_START
    found = crc32(data.data[CRC_FROM:end])
    words[place] = _MAGIC
    words[place + 1] = prefixes
    return found == int(crcs[-1])
