# %% [markdown]
# # The working days of an aircraft
#
# A tail number is a key; its departures from New York belong together until it is not seen for eight hours. Which
# aircraft come back most often, and how is the traffic spread over them?
#
#     python examples/notebooks/aircraft.py

# %% The log, and a Spark session
from prepare import prepared

from radiator.spark import collect, get_session, read
from radiator.spark.charts import bars
from radiator.spark.jobs import key_columns, key_skew, session_lengths, sessions, top_keys
from radiator.spark.units import duration

data, out = prepared()
spark = get_session()
KEY = "$.tailnum"  # a field of the JSON body, or the name of a header

# %% Heavy hitters: which aircraft leave most often
log = read(spark, data, columns=key_columns(KEY, "partition", "size", "receive_time", "event_time"))
for row in collect(top_keys(log, key=KEY, limit=5)):
    print(f"{row['value']}: {row['messages']} departures, from {row['partitions']} of the airports")

# %% Skew: how many of them make up half of the traffic
(skew,) = collect(key_skew(log, key=KEY))
half, most = skew["values_50"], skew["values_90"]
print(f"{skew['values']:,} aircraft; {half:,} of them make half of the departures, {most:,} make 90 %")

# %% Sessions: departures with less than eight hours between them
busiest = collect(sessions(log, key=KEY, gap="8 hours", limit=10))
for row in busiest[:5]:
    print(f"{row['key']}: {row['sessions']} working days, {row['per_session']:.1f} departures each, "
          f"the longest {duration(row['longest_ms'])}")  # fmt: skip

# %% How long they are, over all aircraft
lengths = collect(session_lengths(log, key=KEY, gap="8 hours"))
bars(
    "aircraft-sessions",
    "How long an aircraft is seen in New York",
    lengths,
    label="length",
    value="sessions",
    note="From the first to the last departure with less than 8 hours between two; July 2013",
).save(out)
bars(
    "aircraft-busiest",
    "Aircraft that leave most often",
    busiest,
    label="key",
    value="messages",
    note="Departures from New York's three airports, 1 to 14 July 2013",
).save(out)
print(f"pictures: {out}/aircraft-*.png")
