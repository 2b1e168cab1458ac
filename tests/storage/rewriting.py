"""What rewriting a sealed segment makes of its bytes, for tests of those who read: records removed, batches cut anew,
regions compressed. Bytes in, bytes out; the tests put the file where they want it."""

from __future__ import annotations

from collections.abc import Callable

from radiator import limits
from radiator.storage import layout
from radiator.storage.batch import RecordBatch
from radiator.storage.format import decode, encode_batch
from radiator.storage.header import MISSING
from radiator.storage.merge import merge
from tests.storage.faults import FaultyFileSystem, Node

Keep = Callable[[int], bool]


def everything(offset: int) -> bool:
    return True


def rewritten(
    data: bytes, base: int, keep: Keep = everything, level: int = limits.ZSTD_LEVEL, per_batch: int = 10
) -> bytes:
    """The segment ``data`` with base offset ``base``; its last record stays whatever ``keep`` says."""
    parts, at, salt = [], 0, 0
    while at < len(data):
        header, columns = decode(data, at)
        parts.append(RecordBatch(*columns))
        at, salt = at + header.total_len, header.salt
    batch = merge(parts)
    kept = [index for index, offset in enumerate(batch.offsets) if keep(offset) or index == len(batch) - 1]
    sparse, covered, pieces = len(kept) < len(batch), base, []
    for start in range(0, len(kept), per_batch):
        chosen = kept[start : start + per_batch]
        offsets = [batch.offsets[index] for index in chosen]

        def column(values: object, chosen: list[int] = chosen) -> list[int] | None:
            if values is None or all(values[index] == MISSING for index in chosen):  # type: ignore[index]
                return None
            return [values[index] for index in chosen]  # type: ignore[index]

        pieces += encode_batch(
            covered,
            [batch.receive_ns[index] for index in chosen],
            column(batch.event_ns),
            column(batch.transmit_ns),
            [batch.destination_ids[index] for index in chosen],
            batch.names,
            [batch.blocks[index] for index in chosen],
            [batch.bodies[index] for index in chosen],
            0,
            [offset - covered for offset in offsets] if sparse else None,
            salt,
            level,
        )
        covered = offsets[-1] + 1
    return b"".join(pieces)


def swap(
    fs: FaultyFileSystem,
    directory: str,
    base: int,
    keep: Keep = everything,
    level: int = limits.ZSTD_LEVEL,
    per_batch: int = 10,
    index: bool = False,
) -> None:
    """Puts the rewritten segment in the place of the old one, which open descriptors keep. Without ``index`` the old
    index stays, as it does for a moment, or after a crash."""
    path = layout.segment_path(directory, base)
    node = Node()
    node.cache += rewritten(bytes(fs.nodes[path].cache), base, keep, level, per_batch)
    node.disk += node.cache
    fs.nodes[path] = fs.disk_names[path] = node
    if index:
        fs.nodes.pop(layout.index_path(directory, base), None)
