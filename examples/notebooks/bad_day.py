# %% [markdown]
# # A bad day at JFK
#
# A broker's log has two weeks of flights, as JSON. Which day was the worst at JFK, when did it go wrong, and whom
# did it hit?
#
#     python examples/notebooks/bad_day.py

# %% The log, and a Spark session
import pandas as pd
from matplotlib.figure import Figure
from prepare import FLIGHT, prepared
from pyspark.sql import functions as F

from radiator.spark import collect, get_session, read
from radiator.spark.charts import Chart, Theme, lines, ranges
from radiator.spark.jobs import json_columns

data, out = prepared()
spark = get_session()

# %% Bodies become typed columns; only the named columns are read
log = read(spark, data, columns=["destination", "event_time", "body"], destination="/topic/flights.JFK")
flights = json_columns(log, FLIGHT).cache()  # it is small, and used four times
flights.printSchema()

# %% Each day: how many flights, how late, how many never left
local = F.from_utc_timestamp("event_time", "America/New_York")
days = collect(
    flights.groupBy(F.to_date(local).alias("day"))
    .agg(
        F.count("*").alias("flights"),
        F.avg("dep_delay").alias("minutes"),
        F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
    )
    .orderBy("day")
)
worst = max(days, key=lambda row: row["minutes"])
print(f"worst day: {worst['day']}, {worst['minutes']:.0f} minutes late on average, {worst['cancelled']} cancelled")

# %% When it went wrong: hour by hour, the worst day beside all others
by_hour = collect(
    flights.withColumn(
        "which", F.when(F.to_date(local) == F.lit(worst["day"]), str(worst["day"])).otherwise("other days")
    )
    .groupBy("which", F.hour(local).alias("hour"))
    .agg(F.percentile("dep_delay", 0.5).alias("minutes"))
)
lines(
    "bad-day-hours",
    "When it went wrong",
    by_hour,
    x="hour",
    y="minutes",
    series="which",
    label="median delay, minutes",
    x_label="hour of the scheduled departure, New York",
    note="JFK, July 2013",
).save(out)

# %% For whom: percentiles per airline on that day
carriers = collect(
    flights.where(F.to_date(local) == F.lit(worst["day"]))
    .groupBy("carrier")
    .agg(F.count("dep_delay").alias("flights"), F.percentile("dep_delay", [0.5, 0.75, 0.95]).alias("q"))
    .where("flights >= 5")
    .select(
        "carrier", "flights", *[F.greatest(F.col("q")[i], F.lit(0)).alias(f"p{n}") for i, n in enumerate((50, 75, 95))]
    )
    .orderBy(F.desc("p50"))
)
ranges(
    "bad-day-carriers",
    f"Minutes late on {worst['day']}",
    carriers,
    label="carrier",
    points=("p50", "p75", "p95"),
    unit="count",
    log=False,
    note="Departures from JFK by airline; half of them were no later than p50",
).save(out)

# %% The same as a heat map: days by hours
field = collect(
    flights.groupBy(F.date_format(local, "MM-dd").alias("day"), F.hour(local).alias("hour")).agg(
        F.avg("dep_delay").alias("minutes")
    )
)
cells = pd.DataFrame(field).pivot(index="day", columns="hour", values="minutes")


def draw(figure: Figure, theme: Theme) -> None:
    axes = figure.subplots()
    mesh = axes.imshow(cells.to_numpy(float), aspect="auto", cmap="cividis")
    axes.set_xticks(range(len(cells.columns)), cells.columns)
    axes.set_yticks(range(len(cells.index)), cells.index)
    axes.set_xlabel("hour of the scheduled departure, New York")
    figure.colorbar(mesh, ax=axes)


Chart("bad-day-field", "Delays at JFK", "Average delay in minutes, July 2013", draw, height=9.0).save(out)
print(f"pictures: {out}/bad-day-*.png")
