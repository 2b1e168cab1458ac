# %% [markdown]
# # Who received what, when, how often
#
# Three desks follow the flights from New York: billing, the board, and the crew. The broker records each delivery. The
# crew's desk is killed three times with flights in hand, and it returns each cancelled flight once. Which flights were
# these, who got them then, and what had the crew seen when its desk died for the first time?
#
#     python examples/notebooks/deliveries.py

# %% The log with its deliveries (made at the first run), and a Spark session
from pathlib import Path

from desks import staffed
from prepare import FLIGHT, folders
from pyspark.sql import functions as F

from radiator.columns.deliveries import read_deliveries
from radiator.spark import collect, get_session, read, table
from radiator.spark.charts import ranges, stacked
from radiator.spark.delivery_totals import DeliveryTotals

data, out = folders("desks")
if not Path(data).exists():
    staffed(Path(data))
spark = get_session()
deliveries = read(spark, data, table="deliveries").cache()
flights = table(spark, data, destination="/topic/flights.*", schema=FLIGHT)

# %% Who received what: each flight has one final outcome for each desk
final = deliveries.where("outcome = 'acked'").groupBy("subscription", "partition", "offset").count()
(once,) = collect(final.agg(F.count("*").alias("rows"), F.max("count").alias("most")))
print(f"{flights.count():,} flights, {once['rows']:,} acknowledgements of three desks, at most {once['most']} of each")
totals = DeliveryTotals()  # one pass over the log, without Spark
for batch in read_deliveries(data, DeliveryTotals.COLUMNS):
    totals.add(batch)
desks = totals.answers()["consumers"]
for row in desks:
    print(
        f"{row['consumer']}: {row['acked']:,} acknowledged, {row['nacked']:,} returned, {row['requeued']:,} taken back"
    )

# %% How often: the flights that the crew had in hand when its desk was killed, and when they came again
back = deliveries.where("outcome = 'requeued'").select("partition", "offset", F.col("settled_at").alias("killed_at"))
again = deliveries.where("subscription = 'crew' AND outcome = 'acked'").join(back, ["partition", "offset"])
rows = again.join(flights.select("partition", "offset", "flight", "dest"), ["partition", "offset"])
rows.orderBy("killed_at", "delivered_at").select("killed_at", "flight", "dest", "delivery", "delivered_at").show(
    5, truncate=False
)

# %% When: what had the crew acknowledged at the moment of the first kill? A join with the messages is exact
(first,) = collect(back.agg(F.min("killed_at").alias("at")))
seen = read(spark, data, columns=["partition", "offset"], as_of_cursor="crew", as_of=first["at"].isoformat())
counted = deliveries.where((F.col("subscription") == "crew") & (F.col("outcome") == "acked"))
same = seen.join(counted.where(F.col("settled_at") <= F.lit(first["at"])), ["partition", "offset"]).count()
print(f"the crew had seen {seen.count():,} flights when its desk died, {same:,} by the table of deliveries")

# %% As of yesterday 14:05, and as of now: a moment may be relative to now, and days are those of UTC
for moment in ("yesterday 14:05", "now"):
    seen = read(spark, data, columns=["offset"], as_of_cursor="crew", as_of=moment)
    print(f"as of {moment}: the crew had seen {seen.count():,} flights")

# %% As pictures: flights per desk and second, and how long the desks had a flight
ended = deliveries.where("outcome = 'acked'").groupBy(
    F.window("settled_at", "1 second").start.alias("start"), "subscription"
)
stacked(
    "deliveries-throughput",
    "Flights per desk",
    collect(ended.agg(F.count("*").alias("flights")).orderBy("start")),
    x="start",
    series="subscription",
    value="flights",
    width_seconds=1,
    label="flights per second",
    note="Acknowledged flights per second, UTC; the crew's desk is killed three times",
).save(out)
ranges(
    "deliveries-hand",
    "How long a desk had a flight",
    [{**row, "p50": row["hand_p50_ms"], "p95": row["hand_p95_ms"], "p99": row["hand_p99_ms"]} for row in desks],
    label="consumer",
    points=("p50", "p95", "p99"),
    note="From the delivery to the acknowledgement",
).save(out)
print(f"pictures: {out}/deliveries-*.png")
