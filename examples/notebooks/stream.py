# %% [markdown]
# # Flights per hour, as a stream
#
# `readStream` follows the log of a running broker. Here it reads the existing records (`availableNow`), in several
# micro-batches, and counts flights per scheduled hour. Flights come in the order in which they left, so an hour is
# complete only when no flight that was scheduled in it can still come. `disorder` says how long that takes.
#
#     python examples/notebooks/stream.py

# %% The log, and a Spark session
from prepare import prepared
from pyspark.sql import functions as F

from radiator.spark import collect, get_session, read
from radiator.spark.charts import lines
from radiator.spark.jobs import JOBS, disorder
from radiator.spark.schema import select

AIRPORT = "/topic/flights.LGA"
data, out = prepared()
spark = get_session(config={"spark.sql.shuffle.partitions": "2"})

# %% How long a watermark has to wait
(order,) = collect(disorder(read(spark, data, columns=JOBS["disorder"].columns, destination=AIRPORT)))
delay = f"{int(order['keep_all_ms'] / 60_000) + 1} minutes"
print(f"a watermark of {delay} keeps all of {order['messages']:,} flights")

# %% Flights per hour, counted by a streaming query. Spark moves the watermark between micro-batches
flights = (
    spark.readStream.format("radiator")
    .schema(select(["event_time"]))
    .option("destination", AIRPORT)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 1500)
    .load(data)
)
per_hour = flights.withWatermark("event_time", delay).groupBy(F.window("event_time", "1 hour")).count()
query = (
    per_hour.select(F.col("window.start").alias("hour"), "count")
    .writeStream.format("memory")
    .queryName("flights_per_hour")
    .outputMode("append")  # an hour is output once, when it is complete
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
streamed = {row["hour"]: row["count"] for row in collect(spark.table("flights_per_hour"))}

# %% The same question, answered from the files
hour = F.window("event_time", "1 hour").start.alias("hour")
batch = read(spark, data, columns=["event_time"], destination=AIRPORT).groupBy(hour).count()
truth = {row["hour"]: row["count"] for row in collect(batch)}
same = sum(truth[at] == count for at, count in streamed.items())
print(f"{len(streamed)} of {len(truth)} hours are complete, {same} of them as in the files; the others wait for more")

# %% As a picture
rows = [{"hour": at, "flights": count, "counted": "complete"} for at, count in streamed.items()]
rows += [{"hour": at, "flights": count, "counted": "waiting"} for at, count in truth.items() if at not in streamed]
lines(
    "stream-hours",
    "Flights per hour, and the hours that wait",
    rows,
    x="hour",
    y="flights",
    series="counted",
    label="flights per hour",
    note="La Guardia, by scheduled hour, UTC",
).save(out)
print(f"pictures: {out}/stream-hours.png")
