"""A streaming query in a process of its own, which ``query_killing`` kills: STORE CHECKPOINT SINK.

It says ``ready`` when Spark runs, begins with the line that it then reads, says ``batch N`` when one begins, and if
that line was ``now`` ends when it has read what there is. The sink is a file per batch with a line per record, put in
its place at once: a batch that is done again replaces its file, and if it was not the same batch, a file
``different-N`` says so.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

OFFSETS_PER_TRIGGER = {"go": 150, "now": 5_000}
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
}


def main(store: str, checkpoint: str, sink: str) -> None:
    from radiator.spark import get_session, read_stream

    def note(what: str, number: int) -> None:
        with Path(sink, what).open("a") as file:
            file.write(f"{number}\n")

    def put(df: Any, number: int) -> None:
        note("begun", number)
        print("batch", number, flush=True)
        rows = sorted([row.partition, row.offset, bytes(row.body).decode()] for row in df.collect())
        path = Path(sink, f"batch-{number}")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if path.exists() and path.read_text("utf-8") != text:
            Path(sink, f"different-{number}").write_text(text)
        new = path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, path)
        note("done", number)

    spark = get_session("killed", "local[2]", QUICK, log_level="OFF")
    print("ready", flush=True)
    mode = sys.stdin.readline().strip()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": OFFSETS_PER_TRIGGER[mode]}
    stream = read_stream(spark, store, columns=["partition", "offset", "body"], **options).writeStream.foreachBatch(put)
    stream = stream.option("checkpointLocation", checkpoint)
    if mode == "now":
        stream = stream.trigger(availableNow=True)
    stream.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
