"""Compute CRC-32 with the fastest routine that is installed.

Every byte that is stored or read is checked. zlib-ng, which uses vector instructions, is four to eight times as fast as
CPython's zlib, whose routine would take nearly half of the time that a message of 64 KiB takes. The executors of a
Spark cluster may lack it: without it everything is slower, and the same.

Invariant: the results are those of ``zlib.crc32``.
"""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # not installed, or not for this machine
    from zlib import crc32

__all__ = ["crc32"]
