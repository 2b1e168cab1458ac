"""The CRC-32 of batches, by the fastest routine that is installed.

Every byte that is read passes through it. CPython's zlib takes in 4 GB/s a core; zlib-ng, which uses what processors
have for it, 15 to 25. It is optional: without it everything is read and checked just the same, only slower.

Knows: who can do it. Must not know: batches.
Invariant: the numbers are those of ``zlib.crc32``.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import TypeAlias

Routine: TypeAlias = Callable[[bytes | memoryview], int]


def _fastest() -> Routine:
    try:
        found: Routine = importlib.import_module("zlib_ng.zlib_ng").crc32
    except ImportError:  # not installed, or not for this machine
        return zlib.crc32
    return found


crc32 = _fastest()
