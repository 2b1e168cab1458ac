"""Define the options of a read as values. The Spark source parses texts into them.

Instances are immutable and can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiator.columns.selection import DeliveryFilter, Selection
from radiator.limits import MIB

ROWS_PER_BATCH = 16_384  # measured: fewer costs calls, more costs cache misses
SPLIT_BYTES_MAX = 512 * MIB  # two seconds of work for one task, if all columns are wanted
SPLIT_BYTES_MIN = 8 * MIB  # an empty task takes 35 ms of CPU: about as much as this much log


EARLIEST, LATEST = -2, -1  # as offsets: the first retained record; the end of the log


@dataclass(frozen=True)
class Positions:
    """The offsets at which partitions start.

    Attributes:
        offset: The start of all partitions that ``offsets`` does not name; EARLIEST and LATEST are allowed. None is the
            default of the reader.
        offsets: The start of single partitions, by name.
        time_ns: Start all partitions at the first record received at or after this time, in nanoseconds since the
            epoch.
        times_ns: The same for single partitions, by name.
    """

    offset: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    time_ns: int | None = None
    times_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        path: The path or the URI of the store.
        selection: The records to return. The start of a stream is in ``begins``.
        fail_on_data_loss: Raise when records cannot be read; else report them on stderr and continue.
        pushdown: Use Spark's filters to skip files and batches.
        rows_per_batch: The maximum number of rows per RecordBatch.
        split_bytes: The approximate number of bytes of the log per task; None chooses by size and CPUs.
        storage: The arguments of the file system of a URI.
        archive: The path or the URI of the archive that may have what the log has lost, or None.
        tasks_min: The minimum number of tasks, as far as the index allows.
        begins: The start of a stream.
        start_times_ns: The start time of partitions, by name; resolved to offsets when the read is planned.
        end_times_ns: The end time of partitions, by name; resolved to offsets when the read is planned.
        offsets_per_trigger_max: The maximum number of offsets per batch of a stream, or None.
        typed: Return the struct columns of rules with a schema too, if no columns are named.
        warn_once: A directory that lets several reads print each warning once, or None.
        deliveries: The deliveries to return, if the read is of the table of deliveries; None reads messages.
        as_of_cursor: Only the messages that this queue or durable subscription had acknowledged, or None.
        only_keys: The only key of a map column that the caller needs, by column. The maps may omit the others.
        as_of_ns: The moment of ``as_of_cursor``, in nanoseconds since the epoch; None is now.
    """

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
    typed: bool = True
    warn_once: str | None = None
    deliveries: DeliveryFilter | None = None
    as_of_cursor: str | None = None
    only_keys: Mapping[str, str] = field(default_factory=dict)
    as_of_ns: int | None = None
