"""What a user would submit: reads, writes and streams a store, and tells where that was done. No test itself.

Besides, the table of archive and log, since it reads in another way.

cluster_job.py STORE ARCHIVE BROKER CHECKPOINT NAME [ship] [stream]
"""

import json
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from radiator.spark import collect, read, register, ship, table
from radiator.spark.jobs import JOBS, totals
from radiator.spark.report import reason

store, archive, broker, checkpoint, name, *asked = sys.argv[1:]


def where(batches):
    import radiator

    place = [radiator.__file__, os.getcwd()]
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"package": place[0], "directory": place[1]} for _ in range(batch.num_rows)])


spark = SparkSession.builder.getOrCreate()
if "ship" in asked:
    ship(spark)
else:
    register(spark)

found = collect(totals(read(spark, store, columns=JOBS["totals"].columns)))
places = spark.range(0, 40, 1, 4).mapInArrow(where, "package string, directory string").distinct().collect()
told = {
    "session": type(spark).__module__,
    "totals": {row["destination"]: row["messages"] for row in found},
    "table": table(spark, store, archive, columns=["offset"]).count(),
    "places": [row.asDict() for row in places],
}

to = {"url": f"stomp://{broker}", "destination": f"/topic/copied.{name}"}
read(spark, store, columns=["body"], split_bytes=2000).write.format("radiator").options(**to).mode("append").save()

if "stream" in asked:
    stream = spark.readStream.format("radiator").option("startingOffsets", "earliest").load(store).select("body")
    options = {**to, "destination": f"/topic/streamed.{name}", "checkpointLocation": checkpoint}
    query = stream.writeStream.format("radiator").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()

    beats = spark.readStream.format("radiator").options(startingOffsets="earliest", maxOffsetsPerTrigger=300)
    beats = beats.load(store).selectExpr("'beat' AS body")

    def each(batch, epoch):
        said = {**to, "destination": f"/topic/each.{name}", "query": "each", "epoch": epoch}
        batch.write.format("radiator").options(**said).mode("append").save()

    query = beats.writeStream.foreachBatch(each).option("checkpointLocation", f"{checkpoint}-each")
    query.trigger(availableNow=True).start().awaitTermination()
    try:
        named = {**to, "destination": f"/topic/named.{name}", "query": "named"}
        read(spark, store, columns=["body"]).write.format("radiator").options(**named).mode("append").save()
    except Exception as error:
        told["refused"] = reason(error)

print("told:" + json.dumps(told))
spark.stop()
