"""What a read is asked for, as values: who parses words into them stands above.

Knows: nothing but these values. Instances are immutable and can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiator.columns.selection import Selection
from radiator.limits import MIB

ROWS_PER_BATCH = 16_384  # measured: fewer costs calls, more costs cache misses
SPLIT_BYTES_MAX = 512 * MIB  # two seconds of work for one task, if all columns are wanted
SPLIT_BYTES_MIN = 8 * MIB  # an empty task takes 35 ms of CPU: about as much as this much log


EARLIEST, LATEST = -2, -1  # as an offset: what is still there; what comes next


@dataclass(frozen=True)
class Positions:
    """Where partitions begin. ``offset`` of all but those in ``offsets``; EARLIEST and LATEST are offsets too. None: as
    is usual. ``time_ns``: of all, the first record received then or later; ``times_ns``: of some, by name."""

    offset: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    time_ns: int | None = None
    times_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    """``path``: a directory, or a URI whose file system takes the arguments ``storage``. ``archive``: where that may be
    which the log does not have any more. ``selection``: what is wanted, apart from where a stream begins: that is
    ``begins``. ``start_times_ns`` and ``end_times_ns``: by partition, looked up when the read is planned.
    ``split_bytes``: how much of the log one task reads, about; None: by size and CPUs. ``tasks_min``: at least so many
    tasks, as far as the index can cut. ``warn_once``: a directory by which reads know what was told already."""

    path: str
    selection: Selection
    fail_on_data_loss: bool = True
    pushdown: bool = False
    rows_per_batch: int = ROWS_PER_BATCH
    split_bytes: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    archive: str | None = None
    tasks_min: int = 1
    begins: Positions = Positions()
    start_times_ns: Mapping[str, int] = field(default_factory=dict)
    end_times_ns: Mapping[str, int] = field(default_factory=dict)
    offsets_per_trigger_max: int | None = None
    warn_once: str | None = None
