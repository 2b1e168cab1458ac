"""How fast Spark reads a store, beside zstd Parquet of the very same records: in one process, taking turns.

    python -m tests.bench.spark_read [--records N] [--per-commit 1000|1] [--repeats K] [--rolled] [--unmerged]
        [--compress] [--ready] [--json]

Writes a store (``tests.bench.records``), has Spark write all 14 columns of it as zstd Parquet, with a file per 128 MiB
of log and at least one per core, and reads both K times in turn, so that whatever else the machine does falls on both
alike. The ratio is the time of Parquet by that of the way: 1 is as fast, 0.5 half as fast; of the shortest times, of
the medians, and of CPU time, which says more where others use the machine too. The log is as the broker leaves it:
small commits of sealed segments are merged, unless ``--unmerged`` (``merge_commits: false``), and the last segment of
each log is open, unless ``--rolled`` (after ``roll_at``). ``--compress`` rewrites the sealed segments as the broker
does with ``compress: zstd``; Parquet always is compressed. ``--ready`` adds the upper limit of a Python data source
(``tests.bench.ready``); "python" is planning, crc and decoding in this process, without Spark, on one core. Every read
goes to the format ``noop``, which takes all rows and does nothing. Removes what it made.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read as read_ranges
from radiator.columns.schema import BY_NAME, arrow_schema
from radiator.limits import MIB
from radiator.spark import get_session, read
from radiator.spark.options import parse
from radiator.spark.schema import select
from tests.bench.ready import ReadySource, make_ready
from tests.bench.records import compress_sealed, merge_sealed, write_store
from tests.bench.spent import Spent, spent

QUERIES: dict[str, tuple[str, ...]] = {
    "all columns": tuple(BY_NAME),
    "destination, receive_time, size": ("destination", "receive_time", "size"),
    "destination, offset, receive_time, body": ("destination", "offset", "receive_time", "body"),
    "body": ("body",),
    "tags": ("tags",),
    "count": (),
}
PARQUET_FILE_BYTES = 128 * MIB  # of log
WARM_UPS = 2


def tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_parquet(spark: SparkSession, store: Path, target: Path) -> None:
    files = max(os.cpu_count() or 1, -(-tree_bytes(store) // PARQUET_FILE_BYTES))
    rows = read(spark, str(store)).repartitionByRange(files, "partition", "offset")
    rows.sortWithinPartitions("partition", "offset").write.option("compression", "zstd").parquet(str(target))


def drain(rows: DataFrame, columns: tuple[str, ...]) -> None:
    if columns:
        rows.write.format("noop").mode("overwrite").save()
    else:
        rows.count()


def alone(store: Path, columns: tuple[str, ...]) -> None:
    """What the Python workers do for it, without Spark."""
    options, schema = parse({"path": str(store)}), arrow_schema(columns or ("offset",))
    for ranges in plan(options):
        for _ in read_ranges(ranges, options, schema, Counters()):
            pass


def measure(spark: SparkSession, folder: Path, repeats: int, ready: bool) -> list[dict[str, Any]]:
    found = []
    for name, columns in QUERIES.items():
        ways = ways_of(spark, folder, columns, ready)
        clock: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[Spent]] = {way: [] for way in ways}
        for turn in range(repeats + WARM_UPS):
            for way, action in ways.items():
                before, begun = spent(), time.perf_counter()
                action()
                if turn >= WARM_UPS:
                    clock[way].append(time.perf_counter() - begun)
                    cpu[way].append(spent().since(before))
        shutil.rmtree(folder / "ready", ignore_errors=True)
        found.append({"query": name, "ways": {way: result(clock[way], cpu[way]) for way in ways}})
    return found


def ways_of(spark: SparkSession, folder: Path, columns: tuple[str, ...], ready: bool) -> dict[str, Callable[[], None]]:
    store, parquet, limit, wanted = folder / "data", folder / "parquet", folder / "ready", columns or ("offset",)
    ways: dict[str, Callable[[], None]] = {
        "radiator": lambda: drain(read(spark, str(store), columns=wanted), columns),
        "parquet": lambda: drain(spark.read.parquet(str(parquet)).select(*columns), columns),
        "python": lambda: alone(store, columns),
    }
    if ready:
        make_ready(spark, str(store), limit, wanted)
        ready_rows = spark.read.format("ready").schema(select(wanted))
        ways["ready"] = lambda: drain(ready_rows.load(str(limit)), columns)
    return ways


def result(clock: list[float], cpu: list[Spent]) -> dict[str, float]:
    """The shortest and the median time; CPU time likewise, and who spent it (the least of each)."""
    sums = [sum(each) for each in cpu]
    least = Spent(*map(min, zip(*cpu, strict=True)))
    times = {"min_s": min(clock), "median_s": statistics.median(clock)}
    return {**times, "cpu_min_s": min(sums), "cpu_median_s": statistics.median(sums), **least._asdict()}


def table(rows: list[dict[str, Any]]) -> str:
    head = ("min s", "median s", "CPU s", "Spark tasks", "rest of JVM", "Python", "ratio min", "median", "CPU")
    lines = ["".ljust(16) + "".join(text.rjust(13) for text in head)]
    for row in rows:
        lines.append(row["query"])
        base = row["ways"]["parquet"]
        for way, got in row["ways"].items():
            figures = [got["min_s"], got["median_s"], got["cpu_min_s"], got["tasks"], got["jvm"]]
            figures += [got["python"] + got["own"]]
            figures += [base[kind] / got[kind] for kind in ("min_s", "median_s", "cpu_min_s")]
            lines.append(f"  {way:14}" + "".join(f"{figure:13.2f}" for figure in figures))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.spark_read")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--per-commit", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rolled", action="store_true", help="no segment is open")
    parser.add_argument("--unmerged", action="store_true", help="small commits stay as they are")
    parser.add_argument("--compress", action="store_true", help="the log's sealed segments, with zstd")
    parser.add_argument("--ready", action="store_true", help="with the upper limit of a Python data source")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", help="where to write; must have room for about 1 KB a record")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as made:
        folder = Path(made)
        write_store(
            str(folder / "data"), asked.records, asked.per_commit, asked.rolled, asked.compress or not asked.unmerged
        )
        if asked.compress:
            compress_sealed(str(folder / "data"))
        elif not asked.unmerged:
            merge_sealed(str(folder / "data"))
        spark = get_session("radiator reading")
        try:
            spark.dataSource.register(ReadySource)
            write_parquet(spark, folder / "data", folder / "parquet")
            sizes = {"log_mib": tree_bytes(folder / "data") / MIB, "parquet_mib": tree_bytes(folder / "parquet") / MIB}
            rows = measure(spark, folder, asked.repeats, asked.ready)
        finally:
            spark.stop()
    about = {"records": asked.records, "per_commit": asked.per_commit, "rolled": asked.rolled}
    about |= {"unmerged": asked.unmerged, "compress": asked.compress, **sizes}
    if asked.json:
        print(json.dumps({**about, "queries": rows}))
    else:
        print(", ".join(f"{key} {value:.0f}" for key, value in about.items()))
        print(table(rows))


if __name__ == "__main__":
    main()
