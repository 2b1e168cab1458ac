"""The Spark jobs of the demo. They read the broker's own files while it runs, without an export.

    python -m examples.flights.analysis --store demo-out/data --receipts demo-out/receipts --answers answers.json

Each function takes DataFrames and returns a small one that answers a question, like those in ``radiator.spark.jobs``,
which it uses. A job that counts flights removes repeats first (``once``).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.columns.deliveries import read_deliveries
from radiator.columns.delivery_records import FINAL
from radiator.spark import collect, get_session, read
from radiator.spark.delivery_totals import DeliveryTotals
from radiator.spark.jobs import integrity, json_columns, latency, traffic

Rows = list[dict[str, Any]]

EVERYTHING = "/topic/flights.>,/topic/weather.>,/queue/delays"
NEW_YORK = "America/New_York"
FLIGHT = "id LONG, carrier STRING, origin STRING, dest STRING, dep_delay INT"
WEATHER = "id LONG, origin STRING, wind_mph DOUBLE, precip_in DOUBLE, visibility_mi DOUBLE"
RECEIPT = (
    "destination STRING, id LONG, partition STRING, offset LONG, sends INT, at LONG, event_ns LONG, transmit_ns LONG, "
    "crc32 LONG"
)
ANSWERS = (
    "counts", "promises", "copies", "integrity", "outcomes", "returned", "traffic", "hours", "sky",
    "carriers", "latency", "timeline", "consumers",
)  # fmt: skip
BUCKET_SECONDS = 0.1
SMALL = {  # a month is little data for Spark: a quick start matters more than throughput
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
FAIR = "fair"


def stored(spark: SparkSession, path: str) -> DataFrame:
    """Return the stored records of the demo's destinations, with the id and the checksum of each body."""
    times = ("event_time", "event_ns", "transmit_ns", "receive_ns")
    columns = ("destination", "partition", "offset", *times, "size", "body")
    text = F.col("body").cast("string")
    return (
        read(spark, path, columns=columns, destination=EVERYTHING)
        .withColumn("id", F.get_json_object(text, "$.id").cast("long"))
        .withColumn("crc32", F.crc32("body"))
    )


def once(messages: DataFrame) -> DataFrame:
    """Remove second copies, if there are any."""
    return messages.dropDuplicates(["destination", "id"])


# --- is everything stored? --------------------------------------------------------------------------------------------


def counts(messages: DataFrame) -> DataFrame:
    """Return per destination the number of records and of different messages."""
    different = F.count_distinct("id").alias("different")
    return messages.groupBy("destination").agg(F.count("*").alias("records"), different).orderBy("destination")


def promises(messages: DataFrame, receipts: DataFrame, killed_ns: int) -> DataFrame:
    """Return one row: the receipts, and those whose record equals the sent message; also of the receipts that came
    before the kill."""
    facts = ("destination", "id", "event_ns", "transmit_ns", "crc32")
    place = ["partition", "offset"]
    found = messages.select(*place, F.struct(*facts).alias("found"))
    same = F.struct(*facts).eqNullSafe(F.col("found"))
    before = F.col("at") < killed_ns
    return receipts.join(found, place, "left").select(
        F.count("*").alias("receipts"),
        F.count_if(same).alias("kept"),
        F.count_if(before).alias("before"),
        F.count_if(same & before).alias("kept_before"),
    )


def copies(messages: DataFrame, receipts: DataFrame) -> DataFrame:
    """Return one row: the records without a receipt, which would be repeats."""
    return messages.join(receipts, ["partition", "offset"], "left_anti").select(F.count("*").alias("extra"))


# --- who did the work? ------------------------------------------------------------------------------------------------


def outcomes(deliveries: DataFrame) -> DataFrame:
    """Return one row: the messages with a final outcome, those with several of them, and the acknowledged ones."""
    final = deliveries.where(F.col("outcome").isin(*FINAL)).groupBy("partition", "offset")
    counted = final.agg(F.count("*").alias("times"), F.count_if(F.col("outcome") == "acked").alias("acked"))
    return counted.agg(
        F.count("*").alias("messages"), F.count_if(F.col("times") > 1).alias("repeated"), F.sum("acked").alias("acked")
    )


def returned(deliveries: DataFrame) -> DataFrame:
    """Return the deliveries that were taken from a consumer which was gone, and who acknowledged these messages."""
    back = deliveries.where("outcome = 'requeued'").select("partition", "offset", F.col("consumer").alias("had"))
    done = deliveries.where("outcome = 'acked'").select("partition", "offset", "consumer", "delivery")
    found = back.join(done, ["partition", "offset"], "left").groupBy("had", "consumer")
    return found.agg(F.count("*").alias("messages"), F.max("delivery").alias("deliveries")).orderBy("had", "consumer")


# --- what happened? ---------------------------------------------------------------------------------------------------


def hours(flights: DataFrame) -> DataFrame:
    """Return flights per destination and hour of the day in New York, for an average day."""
    local = F.from_utc_timestamp("event_time", NEW_YORK)
    days = flights.select(F.count_distinct(F.to_date(local))).first()[0] or 1
    return (
        flights.groupBy("destination", F.hour(local).alias("hour"))
        .agg((F.count("*") / days).alias("flights"))
        .orderBy("hour", "destination")
    )


def sky() -> Column:
    """Return the weather in a word: the first that fits."""
    return (
        F.when(F.col("visibility_mi").isNull(), "not known")
        .when(F.col("visibility_mi") < 3, "low visibility")
        .when(F.col("precip_in") > 0, "rain or snow")
        .when(F.col("wind_mph") >= 20, "strong wind")
        .otherwise(FAIR)
    )


def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Join flights with the weather at their airport in their hour."""
    there = weather.select("origin", "event_ns", "wind_mph", "precip_in", "visibility_mi")
    return flights.join(there, ["origin", "event_ns"], "left").withColumn("sky", sky())


def delays(flights: DataFrame, *by: str | Column) -> DataFrame:
    """Return percentiles of the departure delay in minutes, over the flights that left, and shares over all flights."""
    quantiles = F.percentile("dep_delay", [0.5, 0.75, 0.9, 0.99])
    found = flights.groupBy(*by).agg(
        F.count("*").alias("flights"),
        quantiles.alias("q"),
        (F.count_if(F.col("dep_delay") > 60) / F.count("*")).alias("late"),
        (F.count_if(F.col("dep_delay").isNull()) / F.count("*")).alias("cancelled"),
    )
    named = [
        F.round(F.col("q")[place]).cast("int").alias(name) for place, name in enumerate(("p50", "p75", "p90", "p99"))
    ]
    return found.select("*", *named).drop("q").orderBy(F.desc("flights"))


def timeline(messages: DataFrame) -> DataFrame:
    """Return the demo's traffic per tenth of a second: messages, and their time from publisher to broker."""
    start = messages.agg(F.min("receive_ns")).first()[0]
    step = F.floor((F.col("receive_ns") - start) / (BUCKET_SECONDS * 1e9))
    ms = (F.col("receive_ns") - F.col("transmit_ns")) / 1e6
    quantiles = F.percentile(ms, [0.5, 0.99])
    kind = F.regexp_extract("destination", "^/[a-z]+/([a-z]+)", 1)
    return (
        messages.groupBy(F.round(step * BUCKET_SECONDS, 3).alias("second"), kind.alias("kind"))
        .agg(F.count("*").alias("messages"), quantiles.alias("q"))
        .select("second", "kind", "messages", F.col("q")[0].alias("p50_ms"), F.col("q")[1].alias("p99_ms"))
        .orderBy("second", "kind")
    )


# --- all of it --------------------------------------------------------------------------------------------------------


def answers(spark: SparkSession, store: Path, receipts_folder: Path, killed_ns: int) -> Iterator[tuple[str, Rows]]:
    """Run all jobs that the checks and the report need."""
    messages = stored(spark, str(store)).cache()
    receipts = spark.read.schema(RECEIPT).json(str(receipts_folder)).cache()
    different = once(messages)
    flights = json_columns(_of(different, "flights"), FLIGHT).cache()
    weather = json_columns(_of(different, "weather"), WEATHER)
    joined = with_weather(flights, weather).cache()
    known = joined.where("sky <> 'not known'")
    deliveries = read(spark, str(store), table="deliveries").cache()
    jobs: dict[str, Callable[[], DataFrame]] = {
        "counts": lambda: counts(messages),
        "promises": lambda: promises(messages, receipts, killed_ns),
        "copies": lambda: copies(messages, receipts),
        "integrity": lambda: integrity(messages),
        "outcomes": lambda: outcomes(deliveries),
        "returned": lambda: returned(deliveries),
        "traffic": lambda: traffic(different, time="event_time", every="1 hour"),
        "hours": lambda: hours(flights),
        "sky": lambda: delays(joined, "sky"),
        "carriers": lambda: delays(known, "carrier", (F.col("sky") == FAIR).alias("fair")),
        "latency": lambda: latency(messages),
        "timeline": lambda: timeline(messages),
    }
    assert (*jobs, "consumers") == ANSWERS
    for name, job in jobs.items():
        yield name, collect(job())
    totals = DeliveryTotals()
    for batch in read_deliveries(str(store), DeliveryTotals.COLUMNS):
        totals.add(batch)
    yield "consumers", totals.answers()["consumers"]


def _of(messages: DataFrame, kind: str) -> DataFrame:
    """Return the messages of the topics of a kind, with the columns that the jobs need beside those in the body."""
    columns = ("destination", "event_time", "event_ns", "body")
    return messages.where(F.col("destination").startswith(f"/topic/{kind}.")).select(*columns)


def load(path: Path) -> dict[str, Rows]:
    """Read the answers that ``main`` wrote, with times as datetime."""
    found: dict[str, Rows] = json.loads(path.read_text())
    for name, moments in {"traffic": ("start",), "consumers": ("first", "last")}.items():
        for row in found[name]:
            row.update({each: datetime.fromisoformat(row[each]) for each in moments})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--receipts", type=Path, required=True, help="folder of what the publishers wrote")
    parser.add_argument("--killed", type=int, default=0, help="when the broker was killed, in nanoseconds")
    parser.add_argument("--answers", type=Path, required=True, help="the JSON file to write")
    options = parser.parse_args()
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of Spark and its Java goes to the log

    def say(**values: object) -> None:
        print(json.dumps(values), file=told, flush=True)

    say(done=0)
    spark = get_session("radiator flights demo", config=SMALL)
    found: dict[str, Rows] = {}
    try:
        for name, rows in answers(spark, options.store, options.receipts, options.killed):
            found[name] = rows
            say(done=len(found), last=name)
    finally:
        spark.stop()
    options.answers.write_text(json.dumps(found, default=datetime.isoformat))
    say(finished=True)


if __name__ == "__main__":
    main()
