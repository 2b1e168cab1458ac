# %% [markdown]
# # How long must a streaming query wait?
#
# Flights are published when they leave, and counted when they were scheduled: a late flight is an event out of order.
# `lateness` goes by the clock, `disorder` by the stream. A watermark follows the stream.
#
#     python examples/notebooks/lateness.py

# %% The log, and a Spark session
from prepare import prepared

from radiator.spark import collect, get_session, read
from radiator.spark.charts import ranges
from radiator.spark.jobs import JOBS, disorder, lateness
from radiator.spark.units import duration

data, out = prepared()
spark = get_session()

# %% By the clock: this is history, so everything is years late, which is no useful figure
(clock,) = collect(lateness(read(spark, data, columns=JOBS["lateness"].columns), by=()))
print(f"half of {clock['messages']:,} messages came more than {duration(clock['p50_ms'])} after the event")

# %% By the stream: events that came after a later event, and their distance
order = read(spark, data, columns=JOBS["disorder"].columns)
airports = collect(disorder(order))
for row in airports:
    most, nearly, every = (duration(row[name]) for name in ("keep_99_ms", "keep_999_ms", "keep_all_ms"))
    print(f"{row['destination']}: {row['share']:.0%} came out of order")
    print(f"  a watermark of {most} keeps 99 %, {nearly} keeps 99.9 %, {every} all")

# %% As a picture
ranges(
    "watermark-flights",
    "Watermark delay",
    [
        {
            "airport": row["destination"],
            "99 %": row["keep_99_ms"],
            "99.9 %": row["keep_999_ms"],
            "all": row["keep_all_ms"],
        }
        for row in airports
    ],
    label="airport",
    points=("99 %", "99.9 %", "all"),
    note="The delay that keeps so many flights, told when they leave and counted where they were scheduled",
).save(out)

print(f"pictures: {out}/watermark-flights.png")
