"""glibc's memory allocator: what it keeps of freed memory. Other C libraries are left as they are.

Knows: ``ctypes``. Must not know: who frees what.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

_M_TRIM_THRESHOLD: Final = -1  # of malloc.h
_M_MMAP_THRESHOLD: Final = -3


def keep_freed(size: int) -> bool:
    """Keep up to ``size`` bytes of freed memory for the next use, and take blocks below half of that from it.

    Returns:
        True if the allocator has taken it over; False on a C library that cannot.
    """
    mallopt = _function("mallopt")
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, size // 2) & mallopt(_M_TRIM_THRESHOLD, size))


def trim() -> bool:
    """Return all freed memory to the system, also pages between blocks that are in use.

    This takes about 0.4 ms for each MiB; threads that allocate meanwhile wait for a part of that.

    Returns:
        True if memory was returned; False if there was none, or on a C library that cannot.
    """
    malloc_trim = _function("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
