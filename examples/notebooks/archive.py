# %% [markdown]
# # Archive and log as one table
#
# A log is stored for a while, an archive for good. `radiator archive` writes sealed segments as Parquet, the log has
# the rest, and `table` reads both: each flight once, its JSON as typed columns. Which airlines are late, and which data
# is in the archive?
#
#     python examples/notebooks/archive.py

# %% The log, a Spark session, and a run of the archiver (on a command line: radiator archive --data ... --to ...)
import pyarrow.dataset as ds
from prepare import FLIGHT, prepared
from pyspark.sql import functions as F

from radiator.archive import files
from radiator.cli.main import run
from radiator.spark import collect, get_session, read, table
from radiator.spark.charts import bars

data, out = prepared()
there = f"{data}.archive"
spark = get_session()
assert run(["archive", "--data", data, "--to", there]) == 0  # again: only what is new

# %% One table over both, and one view of SQL
flights = table(spark, data, there, destination="/topic/flights.*", schema=FLIGHT, view="flights")
airlines = collect(
    spark.sql("""SELECT carrier, count(*) AS flights, avg(dep_delay) AS minutes
                 FROM flights GROUP BY carrier HAVING count(*) >= 100 ORDER BY minutes DESC""")
)
for row in (airlines[0], airlines[-1]):
    print(f"{row['carrier']}: {row['minutes']:.0f} minutes late on average, over {row['flights']:,} flights")

# %% Archive or log: the archive has whole sealed segments, the log the rest
(archived,) = collect(table(spark, None, there, columns=["size"]).agg(F.count("*").alias("flights")))
total, logged = flights.count(), read(spark, data, columns=["offset"]).count()
print(f"{total:,} flights in the table, {archived['flights']:,} of them archived; the log has {logged:,} by itself")

# %% The archive is Parquet, so Spark is not needed: the commits name the files, and any Parquet reader reads them
named = files(there, destination="/topic/flights.JFK")
rows = ds.dataset(named).count_rows(filter=ds.field("destination") == "/topic/flights.JFK")
print(f"JFK, by pyarrow alone: {rows:,} flights, in {len(named)} file(s)")

# %% As a picture
bars(
    "archive-airlines",
    "How late airlines leave New York",
    [{**row, "minutes": round(row["minutes"])} for row in airlines],
    label="carrier",
    value="minutes",
    note="Average delay at departure in minutes, 1 to 14 July 2013; airlines with 100 flights or more",
).save(out)
print(f"pictures: {out}/archive-*.png")
