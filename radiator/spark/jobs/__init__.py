"""Define jobs: functions from a DataFrame of the log to a small DataFrame that answers one question.

Each module is one subject. ``JOBS`` names the columns that each function reads, because Spark does not pass the columns
of a query to a Python data source. A job runs nothing before the caller collects, so jobs combine with other DataFrame
code.

Example:
    With a session and a store in ``./data``::

        job = JOBS["traffic"]
        job.run(read(spark, "./data", columns=job.columns), every="1 day").show()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame

from radiator.spark.jobs.compare import compare
from radiator.spark.jobs.damage import absent
from radiator.spark.jobs.dead_letters import (
    dead_letter_words,
    dead_letters,
    dead_letters_over_time,
    deliveries_of_dead_letters,
    letters,
)
from radiator.spark.jobs.frequent import key_columns, key_skew, partition_balance, senders, top_keys, top_tags
from radiator.spark.jobs.integrity import gaps, integrity, repeats
from radiator.spark.jobs.json_bodies import json_column, json_columns
from radiator.spark.jobs.lag import lag, lag_over_time
from radiator.spark.jobs.latency import latency
from radiator.spark.jobs.lateness import disorder, lateness
from radiator.spark.jobs.left_out import left_out
from radiator.spark.jobs.sessions import each_session, session_lengths, sessions
from radiator.spark.jobs.traffic import totals, traffic

__all__ = [
    "JOBS",
    "Job",
    "absent",
    "compare",
    "dead_letter_words",
    "dead_letters",
    "dead_letters_over_time",
    "deliveries_of_dead_letters",
    "disorder",
    "each_session",
    "gaps",
    "integrity",
    "json_column",
    "json_columns",
    "key_columns",
    "key_skew",
    "lag",
    "lag_over_time",
    "latency",
    "lateness",
    "left_out",
    "letters",
    "partition_balance",
    "repeats",
    "senders",
    "session_lengths",
    "sessions",
    "top_keys",
    "top_tags",
    "totals",
    "traffic",
]


class Job(NamedTuple):
    """A job.

    Attributes:
        run: The function.
        columns: The columns that it reads.
    """

    run: Callable[..., DataFrame]
    columns: tuple[str, ...]


_LETTERS = ("destination", "partition", "offset", "headers", "event_ns", "transmit_ns", "receive_ns", "size")
_SESSIONS = ("headers", "event_time", "receive_time")

JOBS: dict[str, Job] = {
    "totals": Job(totals, ("destination", "size", "receive_time", "event_time")),
    "traffic": Job(traffic, ("destination", "size", "receive_time", "event_time")),
    "latency": Job(latency, ("destination", "event_ns", "transmit_ns", "receive_ns")),
    "top_tags": Job(top_tags, ("tags",)),
    "integrity": Job(integrity, ("partition", "offset")),
    "gaps": Job(gaps, ("partition", "offset")),
    "repeats": Job(repeats, ("destination", "headers", "offset", "receive_time")),
    "lateness": Job(lateness, ("destination", "receive_time", "receive_ns", "event_ns")),
    "disorder": Job(disorder, ("destination", "partition", "offset", "receive_ns", "event_ns")),
    "top_keys": Job(top_keys, ("headers", "partition", "size", "receive_time")),
    "key_skew": Job(key_skew, ("headers",)),
    "partition_balance": Job(partition_balance, ("destination", "partition", "size")),
    "senders": Job(senders, ("headers", "destination", "size", "receive_time")),
    "sessions": Job(sessions, _SESSIONS),
    "session_lengths": Job(session_lengths, _SESSIONS),
    "dead_letters": Job(dead_letters, _LETTERS),
    "dead_letters_over_time": Job(dead_letters_over_time, _LETTERS),
    "deliveries_of_dead_letters": Job(deliveries_of_dead_letters, _LETTERS),
    "dead_letter_words": Job(dead_letter_words, ("headers",)),
    "left_out": Job(left_out, ("destination", "headers")),
    "lag": Job(lag, ("body",)),
    "lag_over_time": Job(lag_over_time, ("body",)),
    "compare": Job(compare, ("destination", "headers", "size", "event_ns", "transmit_ns", "receive_ns")),
}
