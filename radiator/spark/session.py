"""Create a SparkSession that is set up for this package, and read a store as a DataFrame.

    spark = get_session()                                 # or any session of your own, with register(spark)
    df = read(spark, "./data", columns=["destination", "size"], destination="/topic/flights.>")

``get_session`` finds a Java, makes the Python workers use this interpreter and this package, binds to loopback, sets
the time zone to UTC and reduces the log output. It changes the environment of this process only while the JVM starts.

Uses pyspark's session. Must not import the log.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

import radiator
from radiator.errors import ConfigError
from radiator.limits import GIB, MIB
from radiator.spark.interrupt import uninterrupted_start
from radiator.spark.java import use_java
from radiator.spark.options import Use, parse
from radiator.spark.spelling import plain
from radiator.spark.struct_columns import selected

FORMAT = "radiator"
PYSPARK_MIN = (4, 2)  # the first version with pyspark.sql.streaming.datasource; setup.py requires the same
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DRIVER_MEMORY = "spark.driver.memory"
DRIVER_BYTES_MIN, DRIVER_BYTES_MAX = GIB, 16 * GIB
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # the default of 200 is for clusters; adaptive execution merges small ones
    "spark.python.unix.domain.socket.enabled": "true",  # measured: 13 to 22 % faster than TCP to the Python workers
    "spark.buffer.size": str(MIB),  # of the pipes to the workers; with 64k wide rows took more CPU (2.3 s to 2.0)
}

_LOG4J = """\
rootLogger.level = {level}
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{{1}}: %m%n%rEx{{filters(org.apache.spark,scala,java,jdk)}}
"""


def get_session(
    app_name: str = "radiator",
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return the running session, or start a new local one, with the format ``radiator`` registered.

    Args:
        app_name: The name of the application.
        master: The master of a new session.
        config: More settings of Spark. They are applied to a running session too. ``spark.driver.memory`` overrides
            the default of ``driver_memory``, and so does the environment variable SPARK_DRIVER_MEMORY.
        log_level: The log level of a new JVM, such as ``ERROR`` or ``OFF``.

    Raises:
        JavaMissing: No usable Java was found.
        ConfigError: The installed pyspark is too old.

    Example:
        ::

            spark = get_session(master="local[2]", config={"spark.driver.memory": "2g"})
    """
    require_pyspark()
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    with _environment():
        builder = SparkSession.builder.appName(app_name).master(master)
        with tempfile.TemporaryDirectory(prefix="radiator-spark-") as scratch:
            log4j = Path(scratch, "log4j2.properties")  # the JVM reads it once, at its start
            log4j.write_text(_LOG4J.format(level=log_level))
            settings = dict(config or {})
            if SparkSession.getActiveSession() is None:
                java_options = settings.get(JAVA_OPTIONS, "")
                ours = f"-Dlog4j2.configurationFile={log4j.as_uri()} {java_options}".strip()
                memory = {} if "SPARK_DRIVER_MEMORY" in os.environ else {DRIVER_MEMORY: driver_memory(_memory_bytes())}
                settings = {**SETTINGS, **memory, **settings, JAVA_OPTIONS: ours}
            for key, value in settings.items():
                builder = builder.config(key, value)
            with uninterrupted_start():
                spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register the format ``radiator`` in a session. May be called again.

    Args:
        spark: The session.

    Raises:
        ConfigError: The installed pyspark is too old.
    """
    require_pyspark()
    from radiator.spark.scan_rule import install
    from radiator.spark.source import RadiatorSource

    spark.dataSource.register(RadiatorSource)
    install(spark)


def require_pyspark() -> None:
    """Check the version of pyspark.

    Raises:
        ConfigError: The installed pyspark is older than ``PYSPARK_MIN``.
    """
    version = pyspark.__version__
    if tuple(map(int, version.split(".")[:2])) < PYSPARK_MIN:
        wanted = ".".join(map(str, PYSPARK_MIN))
        remedy = "pip install 'radiator-broker[spark]'"
        raise ConfigError(f"pyspark: expected version {wanted} or newer, got {version}: {remedy}")


def read(spark: SparkSession, path: str, *, columns: Iterable[str] | None = None, **options: Any) -> DataFrame:
    """Return the store at ``path`` as a DataFrame.

    Args:
        spark: A session with the format registered.
        path: The data directory of the broker, or the URI of a copy.
        columns: The columns to read; None reads all. Other columns are not decoded.
        **options: Options of the source, with underscores (``radiator.spark.options.OPTIONS``, ``docs/spark.md``).

    Raises:
        NoStore: There is no store at ``path``. Spark wraps the error.
        ConfigError: A column or an option is unknown, or an option has a wrong value.

    Example:
        With a store in ``./data``::

            df = read(spark, "./data", columns=["destination", "size"], destination="/topic/flights.>")
            df.groupBy("destination").sum("size").show(truncate=False)
    """
    if any(plain(name) == "pushdown" for name in options):
        spark.conf.set(
            "spark.sql.python.filterPushdown.enabled", "true"
        )  # else Spark refuses a reader with pushFilters
    return _load(spark.read, Use.BATCH, path, columns, options)


def read_stream(spark: SparkSession, path: str, *, columns: Iterable[str] | None = None, **options: Any) -> DataFrame:
    """Return the store at ``path`` as a streaming DataFrame.

    Args:
        spark: A session with the format registered.
        path: The data directory of the broker, or the URI of a copy.
        columns: The columns to read; None reads all.
        **options: Options of the source, with underscores (``radiator.spark.options.OPTIONS``, ``docs/spark.md``).

    Raises:
        NoStore: There is no store at ``path``. Spark wraps the error.
        ConfigError: A column or an option is unknown, or an option has a wrong value.
    """
    return _load(spark.readStream, Use.STREAM, path, columns, options)


def _load(reader: Any, use: Use, path: str, columns: Iterable[str] | None, options: Mapping[str, Any]) -> DataFrame:
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    parse({**given, "path": path}, use)  # here, a wrong option is an error without a traceback of Spark around it
    reader = reader.format(FORMAT).options(**given)
    if columns is not None:
        reader = reader.schema(selected(path, columns, given))
    return reader.load(absolute(path))


def absolute(path: str) -> str:
    """Return a path as an absolute path; URIs stay unchanged.

    The workers resolve a relative path in the directory where the JVM was started, which may be another one.

    Args:
        path: A path or a URI.
    """
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def collect(df: DataFrame) -> list[dict[str, Any]]:
    """Return all rows as dictionaries, with timestamps as datetimes in UTC.

    Spark's own ``collect`` returns naive datetimes in the time zone of the machine, whatever the zone of the session
    is.

    Args:
        df: A DataFrame whose rows fit into memory.
    """
    moments = {each.name for each in df.schema.fields if isinstance(each.dataType, TimestampType)}
    quoted = {name: f"`{name.replace('`', '``')}`" for name in df.columns}
    columns = [F.unix_micros(quoted[name]).alias(name) if name in moments else F.col(quoted[name]) for name in quoted]
    found = [row.asDict() for row in df.select(*columns).collect()]
    for row in found:
        for name in moments:
            if row[name] is not None:
                row[name] = _EPOCH + timedelta(microseconds=row[name])
    return found


def driver_memory(machine_bytes: int) -> str:
    """Return the size of the JVM's heap for a machine: a quarter of its memory, 1 GiB at least and 16 GiB at most.

    With a local master the driver runs the tasks, and a result that is fetched needs about twice its size there.

    Args:
        machine_bytes: The memory of the machine or the container.

    Example:
        >>> driver_memory(24 * 2**30)
        '6144m'
    """
    return f"{min(max(machine_bytes // 4, DRIVER_BYTES_MIN), DRIVER_BYTES_MAX) // MIB}m"


def _memory_bytes() -> int:
    """Return the memory of the machine, or the limit of the container if that is less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such cgroup, or "max"
            found = min(found, int(Path(path).read_text()))
    return found


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment that the JVM and its workers inherit, and restore it afterwards."""
    before = dict(os.environ)
    try:
        use_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        package = str(Path(radiator.__file__).resolve().parent.parent)
        if os.path.basename(package) not in ("site-packages", "dist-packages"):  # a checkout: workers import it too
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, before.get("PYTHONPATH")]))
        yield
    finally:
        for key in os.environ.keys() - before.keys():
            del os.environ[key]
        os.environ.update(before)
