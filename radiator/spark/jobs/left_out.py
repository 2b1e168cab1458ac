"""What is in the log and says nothing about the traffic that people ask for.

Messages that watch the others are *operations*: samples of cursors, live windows. A message that is stored a second
time keeps the times of the sender, so its way and its lateness are those of the story behind it: *replayed* ones say so
(``replayed-from``), and so do *dead letters* (``dlq-reason``).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OPERATIONS, REPLAYED, DEAD_LETTER = "operations", "replayed", "dead letter"
AGAIN = {REPLAYED: "replayed-from", DEAD_LETTER: "dlq-reason"}  # the header that tells it
SENDER_TIMES = ("event_time", "transmit_time", "event_ns", "transmit_ns")


def stored_again() -> Column:
    """Whether the record was in the log before, under another number. Needs headers."""
    told = [F.col("headers").getItem(header).isNotNull() for header in AGAIN.values()]
    return F.coalesce(told[0] | told[1], F.lit(False))


def without_old_times(df: DataFrame) -> DataFrame:
    """The same records, where those that were stored again have no times of the sender. Needs headers."""
    names = [name for name in SENDER_TIMES if name in df.columns]
    return df.withColumns({name: F.when(~stored_again(), F.col(name)) for name in names})


def left_out(df: DataFrame, *, operations: Iterable[str] = ()) -> DataFrame:
    """Per destination and reason: destination, why (``operations``, ``replayed``, ``dead letter``), messages.

    ``operations`` are names of destinations. A message is counted once, for the first reason that it has. Needs
    destination and headers.
    """
    why = F.when(F.col("destination").isin(list(operations)), OPERATIONS)
    for name, header in AGAIN.items():
        why = why.when(F.col("headers").getItem(header).isNotNull(), name)
    found = df.select("destination", why.alias("why")).where("why is not null")
    return found.groupBy("destination", "why").agg(F.count("*").alias("messages")).orderBy("why", "destination")
