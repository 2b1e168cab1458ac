"""Jobs: functions from a DataFrame over a store to a small DataFrame that answers one question.

Each file is one subject. Every function says in ``JOBS`` which columns it reads, because Spark does not tell a Python
data source what a query needs: ``read(spark, path, columns=JOBS["traffic"].columns)`` reads only those. A job adds no
action of its own: nothing runs before the caller collects, so jobs compose like any DataFrame code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame

from radiator.spark.jobs.integrity import gaps, integrity
from radiator.spark.jobs.json_bodies import json_column, json_columns
from radiator.spark.jobs.latency import latency
from radiator.spark.jobs.tags import top_tags
from radiator.spark.jobs.traffic import totals, traffic

__all__ = [
    "JOBS",
    "Job",
    "gaps",
    "integrity",
    "json_column",
    "json_columns",
    "latency",
    "top_tags",
    "totals",
    "traffic",
]


class Job(NamedTuple):
    run: Callable[..., DataFrame]
    columns: tuple[str, ...]  # what it reads
    question: str


JOBS: dict[str, Job] = {
    "totals": Job(
        totals,
        ("destination", "size", "receive_time", "event_time"),
        "How much is stored per destination, and from when to when?",
    ),
    "traffic": Job(
        traffic, ("destination", "size", "receive_time", "event_time"), "How much came per destination and hour?"
    ),
    "latency": Job(
        latency,
        ("destination", "event_ns", "transmit_ns", "receive_ns"),
        "How long from the event to its transmission to the broker?",
    ),
    "top_tags": Job(top_tags, ("tags",), "Which values of which tags are frequent?"),
    "integrity": Job(integrity, ("partition", "offset"), "Is every offset there, once?"),
    "gaps": Job(gaps, ("partition", "offset"), "Which offsets are missing?"),
}
