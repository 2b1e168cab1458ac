"""How fast Spark answers queries as a user writes them: ``spark.read.format("radiator").load(path)`` and no more.

    python -m tests.bench.as_written [--records N] [--repeats K] [--no-rule] [--archive] [--directory DIR]

Writes a store with 20 topics of records of 200 B, has Spark write the same records as zstd Parquet, and runs each query
over both in turn, each on a new DataFrame. A ratio is the time over the log divided by that over Parquet: 1 is as
fast, 2 takes twice as long. ``--no-rule`` leaves out the optimizer rule. ``--archive`` archives the store first, and
measures ``radiator.spark.table`` over the archive alone too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from radiator.archive import open_files
from radiator.archive.run import run
from radiator.spark import get_session, table
from tests.bench.records import records
from tests.bench.spent import spent
from tests.spark.stores import Message, Writer

TOPICS = [f"/topic/sensors.{number:02}" for number in range(20)]
PER_COMMIT = 1000
WARM_UPS = 2


def drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "sum(length(body))": lambda rows: rows.selectExpr("sum(length(body))").collect(),
    "sum(crc32(body))": lambda rows: rows.selectExpr("sum(crc32(body))").collect(),
    "where destination = ..., rows": lambda rows: drain(rows.where(f"destination = '{TOPICS[3]}'")),
    "where destination = ..., count": lambda rows: rows.where(f"destination = '{TOPICS[3]}'").count(),
    "count(*)": lambda rows: rows.count(),
    "group by tags.carrier": lambda rows: rows.groupBy("tags.carrier").count().collect(),
    "group by message_id": lambda rows: rows.groupBy("message_id").count().groupBy().count().collect(),
    "group by destination": lambda rows: rows.groupBy("destination").count().collect(),
    "full rows": drain,
    "three narrow columns": lambda rows: drain(rows.select("destination", "receive_time", "size")),
    "tags": lambda rows: drain(rows.select("tags")),
    "headers": lambda rows: drain(rows.select("headers")),
}


def write_log(root: Path, count: int, sealed: bool = False) -> None:
    """Write the records. ``sealed``: end the last segment of each log, so that an archiver takes all records."""
    writer = Writer(root)
    streams = [(topic, records([topic], count // len(TOPICS), seed)) for seed, topic in enumerate(TOPICS)]
    while streams:
        for topic, stream in list(streams):
            batch = [
                Message(
                    topic,
                    each.body,
                    each.block.split(b"\n", 2)[2],
                    each.receive_ns,
                    each.receive_ns - 5_000_000,
                    each.receive_ns - 1_000_000,
                )
                for each in _first(stream, PER_COMMIT)
            ]
            if not batch:
                streams.remove((topic, stream))
                continue
            writer.append(topic, batch)
        writer.commit()
    if sealed:
        for topic in TOPICS:
            writer.store.partition(topic, writer.options).request_file()
        writer.commit()
    writer.close()


def _first(stream: object, count: int) -> list:
    found = []
    for each in stream:  # type: ignore[attr-defined]
        found.append(each)
        if len(found) == count:
            break
    return found


def measured(
    ways: dict[str, Callable[[], DataFrame]], query: Callable[[DataFrame], object], repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the median of wall time and the least CPU time of each way, in seconds."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(repeats + WARM_UPS):
        for name, frame in ways.items():
            before, begun = spent(), time.perf_counter()
            query(frame())
            if turn >= WARM_UPS:
                took[name].append((time.perf_counter() - begun, sum(spent().since(before))))
    return {
        name: (statistics.median(wall for wall, _ in each), min(cpu for _, cpu in each)) for name, each in took.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.as_written")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-rule", action="store_true")
    parser.add_argument("--archive", action="store_true")
    parser.add_argument("--directory")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(asked.directory or made)
        log, parquet, archive = folder / "data", folder / "parquet", folder / "archive"
        if not log.exists():
            write_log(log, asked.records, sealed=asked.archive)
        if asked.archive and not archive.exists():
            run(str(log), open_files(archive))
        spark: SparkSession = get_session("as written")
        if not parquet.exists():
            rows = (
                spark.read.format("radiator")
                .load(str(log))
                .repartitionByRange(os.cpu_count() or 1, "partition", "offset")
            )
            rows.sortWithinPartitions("partition", "offset").write.option("compression", "zstd").parquet(str(parquet))
        if asked.no_rule:
            jvm, methods = spark._jvm, spark._jsparkSession.experimental()  # type: ignore[attr-defined]
            getattr(methods, "extraOptimizations_$eq")(jvm.PythonUtils.toSeq([]))
        ways: dict[str, Callable[[], DataFrame]] = {
            "parquet": lambda: spark.read.parquet(str(parquet)),
            "log": lambda: spark.read.format("radiator").load(str(log)),
        }
        if asked.archive:
            ways["table"] = lambda: table(spark, None, str(archive))
        print("".ljust(32) + "".join(f"{name + ' s, CPU':>18}" for name in ways) + "  ratios of wall and CPU time")
        for name, query in QUERIES.items():
            if asked.only not in name:
                continue
            took = measured(ways, query, asked.repeats)
            base = took["parquet"]
            print(
                name.ljust(32)
                + "".join(f"{wall:12.2f}{cpu:6.2f}" for wall, cpu in took.values())
                + "".join(f"{wall / base[0]:8.2f}{cpu / base[1]:6.2f}" for wall, cpu in list(took.values())[1:]),
                flush=True,
            )
        spark.stop()


if __name__ == "__main__":
    main()
