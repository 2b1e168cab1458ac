"""Add the optimizer rule of the data source to a session: scans read only the columns and records of a query.

``ScanRule.java`` and ``ColumnarReaderFactory.java`` are compiled in the JVM of the driver by Janino, which Spark uses
for its generated code. Executors get the second one as a jar, as they get the jars of ``spark.jars``. Without the rule
every query has the same result, and reads all columns as rows: a session of Spark Connect has no JVM within reach, and
a version of Spark with other internal classes does not compile them.

Uses py4j.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary
from zipfile import ZipFile

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from radiator.spark.schema import DELIVERIES, SCHEMA
from radiator.storage.typed_rules import REJECTED

RULE = "radiator.ScanRule"
_KNOWN = StructType([*SCHEMA.fields, StructField(REJECTED, StringType())])  # all columns but the structs of schemas
_made: WeakKeyDictionary[Any, Any] = (
    WeakKeyDictionary()
)  # gateway to a JVM -> the rule, or the reason why there is none


def install(spark: SparkSession) -> str | None:
    """Add the rule to a session. May be called again.

    Args:
        spark: The session.

    Returns:
        None, or the reason why the session has no rule.
    """
    try:
        session = spark._jsparkSession
        gateway = spark.sparkContext._gateway
    except Exception:  # pyspark raises errors of several types
        return "a session of Spark Connect has no JVM in this process"
    if gateway not in _made:
        _made[gateway] = _compiled(gateway.jvm)
    rule = _made[gateway]
    if isinstance(rule, str):
        return rule
    try:
        rule.install(session)
    except Exception as error:
        return _line(error)
    return None


def _compiled(jvm: Any) -> Any:
    """Return the rule, or the reason why there is none."""
    try:
        readers = _compiler(jvm, jvm.java.lang.Thread.currentThread().getContextClassLoader(), "ColumnarReaderFactory")
        rule = _compiler(jvm, readers.getClassLoader(), "ScanRule")
        temporary = jvm.java.lang.System.getProperty("java.io.tmpdir")
        jar = Path(
            jvm.org.apache.spark.util.Utils.createTempDir(temporary, "radiator").getPath(),
            "radiator-columnar-reader.jar",
        )
        with ZipFile(jar, "w") as made:
            for name, code in readers.getBytecodes().items():
                made.writestr(name.replace(".", "/") + ".class", bytes(code))
        constructor = rule.getClassLoader().loadClass(RULE).getDeclaredConstructors()[0]
        return constructor.newInstance(jvm.PythonUtils.toArray([_KNOWN.json(), DELIVERIES.json(), str(jar)]))
    except Exception as error:
        return _line(error)


def _compiler(jvm: Any, parent: Any, name: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(files("radiator.spark").joinpath(f"{name}.java").read_text(encoding="utf-8"))
    return compiler


def _line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    return next(iter(text.splitlines()), type(error).__name__)
