"""Spark over the log: the data source ``radiator``, jobs, pictures and the report. The only code that knows pyspark.

Start with ``get_session`` (a SparkSession that works), ``register`` (make the format known to one of your own), and
``read``, ``read_stream`` (a DataFrame of the log) or ``table`` (of archive and log). Nothing is imported before it is
asked for: tasks that only decode pay for what they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radiator.columns.planning import snapshot
    from radiator.spark.package import ship
    from radiator.spark.session import collect, get_session, read, read_stream, register
    from radiator.spark.tables import table

__all__ = ["collect", "get_session", "read", "read_stream", "register", "ship", "snapshot", "table"]

_HOMES = {
    "collect": "radiator.spark.session",
    "get_session": "radiator.spark.session",
    "read": "radiator.spark.session",
    "read_stream": "radiator.spark.session",
    "register": "radiator.spark.session",
    "ship": "radiator.spark.package",
    "snapshot": "radiator.columns.planning",
    "table": "radiator.spark.tables",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
