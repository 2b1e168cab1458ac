"""Counts, hashes and aggregates a store, and tells how much memory the Python workers had. No test itself.

memory_job.py STORE
"""

import json
import os
import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from radiator.spark import read, register


def workers_below(top: int) -> dict[int, int]:
    """The peaks in bytes of Spark's Python workers among the descendants of a process."""
    parents, peaks = {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (directory / "status").read_text(), (directory / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[int(directory.name)] = int(re.search(r"PPid:\s*(\d+)", status)[1])
        if b"pyspark" in command and (peak := re.search(r"VmHWM:\s*(\d+) kB", status)):
            peaks[int(directory.name)] = int(peak[1]) * 1024

    def is_below(pid: int) -> bool:
        while pid and pid != top:
            pid = parents.get(pid, 0)
        return pid == top

    return {pid: peak for pid, peak in peaks.items() if is_below(pid) and pid != os.getpid()}


spark = SparkSession.builder.getOrCreate()
register(spark)
df = read(spark, sys.argv[1], columns=["destination", "body", "size", "tags", "headers"])
(row,) = (
    df.groupBy("destination")
    .agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum(F.crc32("body")).alias("hash"),
        F.count(F.col("tags")["city"]).alias("tagged"),
        F.sum(F.size("headers")).alias("headers"),
    )
    .collect()
)
print("told:" + json.dumps({**row.asDict(), "peaks": list(workers_below(os.getppid()).values())}))
spark.stop()
