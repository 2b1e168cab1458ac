# %% [markdown]
# # The archive in DuckDB and polars
#
# An archive is a Delta table, so programs that know nothing of radiator read it: every flight once, as of now or as of
# an earlier version. With `--iceberg` it is an Iceberg table as well. Nothing here starts Spark.
#
#     python examples/notebooks/lakehouse.py

# %% The log, and two runs of the archiver: JFK alone, then all airports
import duckdb
import polars
from deltalake import DeltaTable
from prepare import prepared
from pyiceberg.catalog import load_catalog

from radiator.archive import files
from radiator.cli.main import run
from radiator.spark.charts import bars

data, out = prepared()
there, catalog = f"{data}.lakehouse", f"sqlite:///{data}.lakehouse.db"
assert run(["archive", "--data", data, "--to", there, "--partition", "flights-JFK"]) == 0
assert run(["archive", "--data", data, "--to", there, "--iceberg", catalog]) == 0

# %% polars: which airports are in the archive now, and which were in its first version?
flights = polars.scan_delta(there)
airports = flights.group_by("destination").len().sort("destination").collect()
first = polars.scan_delta(there, version=0).select(polars.col("destination").unique()).collect()
print(f"{airports['len'].sum():,} flights of {airports.height} airports; at first of {first['destination'].to_list()}")

# %% DuckDB: the airlines that are late, from the JSON of the bodies
messages = DeltaTable(there).to_pyarrow_dataset()  # DuckDB finds it by the name of the variable
airlines = duckdb.sql("""
    SELECT decode(body)->>'$.carrier' AS carrier, count(*) AS flights,
           avg((decode(body)->>'$.dep_delay')::INT) AS minutes
    FROM messages GROUP BY carrier HAVING count(*) >= 100 ORDER BY minutes DESC
""").fetchall()
print(f"{airlines[0][0]}: {airlines[0][2]:.0f} minutes late on average, over {airlines[0][1]:,} flights")

# %% As of a record: the first version that has flight 1,000 of JFK
then = duckdb.sql("SELECT count(*) FROM read_parquet($files)", params={"files": files(there, as_of="flights-JFK@1000")})
print(f"{then.fetchall()[0][0]:,} flights in the first version that has number 1,000 of JFK")

# %% Iceberg: the same files in another kind of table
table = load_catalog("radiator", uri=catalog).load_table("radiator.archive")
jfk = table.scan(row_filter="destination = '/topic/flights.JFK'")
assert table.scan().count() == airports["len"].sum()
print(
    f"{jfk.count():,} flights of JFK, in {len(list(jfk.plan_files()))} of {len(list(table.scan().plan_files()))} files"
)

# %% As a picture
bars(
    "lakehouse-airlines",
    "How late airlines leave New York",
    [{"carrier": name, "minutes": round(minutes)} for name, _, minutes in airlines],
    label="carrier",
    value="minutes",
    note="Average delay at departure in minutes, from the archive by DuckDB; airlines with 100 flights or more",
).save(out)
print(f"pictures: {out}/lakehouse-*.png")
