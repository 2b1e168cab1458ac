"""zstd for a region of a batch (header blocks or bodies): one frame, which contains its unpacked length.

Only rewritten segments have such regions, so ``zstandard`` is imported when the first one is read or written.

This module knows bytes. It does not know batches or files. All functions are pure: any thread may call them.
Invariants: ``decompress`` returns exactly the length that the caller expects, or raises DamagedBatch; it allocates at
most ``limits.BATCH_BYTES_MAX``, whatever the frame claims.
"""

from __future__ import annotations

from typing import Any

from radiator import limits
from radiator.errors import StorageError
from radiator.storage.header import DamagedBatch


def compress(region: bytes, level: int) -> bytes | None:
    """Return the region as one frame; None if that is not smaller, or if no reader would unpack it."""
    if not region or len(region) > limits.BATCH_BYTES_MAX:
        return None
    frame: bytes = _zstandard().ZstdCompressor(level=level).compress(region)
    return frame if len(frame) < len(region) else None


def decompress(frame: bytes, length: int) -> bytes:
    """Return the ``length`` bytes that are packed in ``frame``.

    Raises:
        DamagedBatch: The frame is damaged or has another length.
        StorageError: ``zstandard`` is not installed.
    """
    if not 0 < length <= limits.BATCH_BYTES_MAX:
        raise DamagedBatch(f"compressed region: expected 1 to {limits.BATCH_BYTES_MAX} bytes unpacked, got {length}")
    zstandard = _zstandard()
    try:
        claimed = zstandard.get_frame_parameters(frame).content_size
        if claimed != length:
            raise DamagedBatch(f"compressed region: expected {length} bytes unpacked, its frame says {claimed}")
        region: bytes = zstandard.ZstdDecompressor().decompress(frame, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DamagedBatch(f"compressed region: {error}") from None
    if len(region) != length:
        raise DamagedBatch(f"compressed region: expected {length} bytes unpacked, got {len(region)}")
    return region


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise StorageError(
            "a compressed segment: the Python package zstandard is missing here; pip install zstandard"
        ) from error
    return zstandard
