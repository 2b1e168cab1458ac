"""Stores for the archiver, and the judge of archives: what their files hold, against what the log held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from radiator.archive.files import Files
from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.paths import DATA_SUFFIX, DATE_PREFIX, MANY, data_path, encode, version_of
from radiator.columns.decode import Counters
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from tests.spark.stores import START_NS, Message, Writer, numbered

SEGMENT_BYTES = 64 * 1024
DAY_NS = 86_400 * 10**9

Row = Mapping[str, Any]
START_ROW: Row = {
    **dict.fromkeys(("event_time", "transmit_time", "event_ns", "transmit_ns")),
    "partition": "p", "message_id": "p@0", "receive_time": START_NS // 1000, "receive_ns": START_NS, "tags": [],
    "headers": [("content-type", "text/plain")],
}  # fmt: skip
Rows = dict[tuple[str, int], Row]


def old_path(date: str, destination: str | None, partition: str, first: int, following: int, token: str) -> str:
    """The path that earlier versions gave a file; ``destination`` None: it has several."""
    folder = MANY if destination is None else encode(destination)
    name = data_path(date, [(partition, first, following)], token).rpartition("/")[2]
    return f"{DATE_PREFIX}{date}/{folder}/{name}"


def log_rows(root: object) -> Rows:
    """Everything that a store holds, by partition and offset."""
    options = ReadOptions(str(root), Selection())
    found: Rows = {}
    for ranges in plan(options):
        for batch in read(ranges, options, arrow_schema(), Counters()):
            for row in batch.to_pylist():
                found[row["partition"], row["offset"]] = row
    return found


def sealed_ends(root: object) -> dict[str, int]:
    return {each.name: each.segments[-1].base_offset for each in partitions(open_store(str(root))) if each.segments}


def archive_rows(archive: object) -> Rows:
    """Everything that the commits name; each offset must be there once, in a file whose commit and footer say so."""
    files = archive if isinstance(archive, Files) else open_files(str(archive))
    found: Rows = {}
    for each in load(files).files.values():
        with files.open(each.path) as file:
            table = pq.read_table(file)
        assert table.num_rows == each.records
        for row in table.to_pylist():
            key = row["partition"], row["offset"]
            assert key not in found, f"{key} is in {each.path} and in another file"
            (span,) = (
                span for span in each.spans_of(row["partition"]) if span.first <= row["offset"] < span.next_offset
            )
            names = each.destinations_of(span)
            assert names is None or row["destination"] in names
            assert each.date == f"{row['receive_time']:%Y-%m-%d}"
            assert each.min_receive_ns <= row["receive_ns"] <= each.max_receive_ns
            assert each.destinations is None or row["destination"] in each.destinations
            found[key] = row
    return found


def find_uncommitted(archive: object) -> list[str]:
    """Files that lie there and that no commit names."""
    files = archive if isinstance(archive, Files) else open_files(str(archive))
    state = load(files)
    named = state.files.keys() | state.removed.keys()
    return [
        path
        for each in files.list("")
        if DATA_SUFFIX in each.path and (path := each.path.removeprefix("./")) not in named and version_of(path) is None
    ]


def check_exact(archive: object, root: object) -> Rows:
    """The archive has exactly the sealed records of the store."""
    ends = sealed_ends(root)
    expected = {key: row for key, row in log_rows(root).items() if key[1] < ends[key[0]]}
    found = archive_rows(archive)
    assert found.keys() == expected.keys()
    assert found == expected
    return found


def fill(root: Path, partition: str = "flights", count: int = 2000, destinations: int = 3, days: int = 2) -> Writer:
    """An open store of a partition with several segments, destinations and days."""
    writer = Writer(root, SEGMENT_BYTES)
    more(writer, partition, count, destinations, days)
    return writer


def more(
    writer: Writer, partition: str = "flights", count: int = 2000, destinations: int = 3, days: int = 2, first: int = 0
) -> None:
    step_ns = days * DAY_NS // max(count, 1)
    made = numbered("/topic/x", count, first, step_ns, city="Newark")
    writer.write(
        partition,
        [
            each._replace(destination=f"/topic/{partition}.{i * i % destinations}", body=each.body * 8)
            for i, each in enumerate(made)
        ],
        per_batch=20,
    )


def name_of(number: int) -> str:
    return f"/topic/device{number:04d}"


def write_logs(writer: Writer, logs: Iterable[int], count: int, first: int = 0, day: int = 0) -> None:
    """Write records to logs of one destination each, but every fifth has two. Each log gets a sealed segment more."""
    chosen = list(logs)
    for start in range(0, count, 10):
        for number in chosen:
            own = name_of(number)
            names = [own] if number % 5 else [own, f"{own}.x"]
            writer.append(own, [
                Message(
                    names[offset % len(names)], b"%d of %d " % (offset, number) * 40, b"n:%d" % offset,
                    START_NS + day * DAY_NS + (first + offset) * 10**6,
                )
                for offset in range(start, min(start + 10, count))
            ])  # fmt: skip
        writer.commit()
