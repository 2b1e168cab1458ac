"""A program of its own, to be killed: a stream of text files into a broker, each line once.

    python -m tests.spark.sink_program MASTER URL LINES CHECKPOINT FLAG

Where FLAG is a name, the first attempt of the first task that has come half way fails, and the file is made: then Spark
runs the task again. "-" for none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa

from radiator.spark import get_session


def main(master: str, url: str, lines: str, checkpoint: str, flag: str) -> None:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            for row in range(batch.num_rows):
                if flag != "-" and done == 150 and not os.path.exists(flag):
                    open(flag, "w").close()
                    raise RuntimeError("the end of this attempt")
                yield batch.slice(row, 1)
                done += 1

    spark = get_session("sink", master, {"spark.sql.shuffle.partitions": "2"}, log_level="OFF")
    df = spark.readStream.option("maxFilesPerTrigger", 1).text(lines).mapInArrow(rows, "value string")
    writer = df.writeStream.format("radiator").option("url", url).option("destination", "/topic/lines")
    writer = writer.option("messages_per_receipt", 10).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
