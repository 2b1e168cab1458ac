"""Add the optimizer rule of the data source to a session: scans read only the columns and records of a query.

``ScanRule.java`` is compiled in the JVM of the driver by Janino, which Spark uses for its generated code, so no jar is
needed. Without the rule every query has the same result and reads all columns: a session of Spark Connect has no JVM
within reach, and a version of Spark with other internal classes does not compile the rule.

Uses py4j. Must not import files.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from radiator.spark.schema import SCHEMA

RULE = "radiator.ScanRule"
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
        rule.install(session.experimental())
    except Exception as error:
        return _line(error)
    return None


def _compiled(jvm: Any) -> Any:
    source = files("radiator.spark").joinpath("ScanRule.java").read_text(encoding="utf-8")
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(source)
        constructor = compiler.getClassLoader().loadClass(RULE).getDeclaredConstructors()[0]
        return constructor.newInstance(jvm.PythonUtils.toArray([SCHEMA.json()]))
    except Exception as error:
        return _line(error)


def _line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    return next(iter(text.splitlines()), type(error).__name__)
