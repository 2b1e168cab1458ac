"""What a read is asked for, as values: who parses words into them stands above.

Knows: nothing but these values. Instances are immutable and can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiator.columns.selection import Selection
from radiator.limits import MIB

ROWS_PER_BATCH = 16_384  # measured: fewer costs calls, more costs cache misses
SPLIT_BYTES_MAX = 64 * MIB  # about a second of work for one task
SPLIT_BYTES_MIN = 2 * MIB  # below, a task costs more than its data


@dataclass(frozen=True)
class ReadOptions:
    """``path``: a directory, or a URI whose file system takes the arguments ``storage``. ``split_bytes``: how much of
    the log one task reads, about; None: by size and CPUs."""

    path: str
    selection: Selection
    fail_on_data_loss: bool = True
    pushdown: bool = False
    rows_per_batch: int = ROWS_PER_BATCH
    split_bytes: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
