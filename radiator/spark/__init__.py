"""Read, write and analyse the log with Spark: the data source ``radiator``, jobs, charts and the report.

Example:
    With a store in ``./data``::

        from radiator.spark import get_session, read

        spark = get_session()
        read(spark, "./data", destination="/topic/flights.>").groupBy("destination").count().show(truncate=False)

``get_session`` returns a SparkSession that is set up, ``register`` adds the format to a session of your own. ``read``
and ``read_stream`` return a DataFrame of the log, ``table`` one of archive and log, ``cursors`` one of the progress of
consumers. Only this package imports pyspark.
Its modules are imported at first use, so tasks that only decode do not load the rest. ``docs/spark.md`` is the guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radiator.columns.planning import snapshot
    from radiator.spark.cursor_table import cursors
    from radiator.spark.package import ship
    from radiator.spark.session import collect, get_session, read, read_stream, register
    from radiator.spark.tables import table

__all__ = ["collect", "cursors", "get_session", "read", "read_stream", "register", "ship", "snapshot", "table"]

_HOMES = {
    "collect": "radiator.spark.session",
    "cursors": "radiator.spark.cursor_table",
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
