"""Pack the package into one file, for machines where it is not installed.

    python -m radiator.spark.package radiator.zip       # for spark-submit --py-files
    radiator.spark.ship(spark)                          # for a running session, Spark Connect included

Executors need numpy and pyarrow too, and zstandard if segments are compressed.

Invariant: the same package gives the same bytes, so that shipping it again changes nothing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark.sql import SparkSession

import radiator
from radiator.checksum import crc32

_SUFFIXES = (".py", "py.typed", ".html", ".css", ".java")


def make_package(path: str) -> str:
    """Write the package of this process into a zip file.

    Args:
        path: The path of the zip file.

    Returns:
        The path.

    Raises:
        OSError: The file cannot be written.
    """
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources(files(radiator), "radiator")):
            entry = ZipInfo(name)  # a constant time stamp, so that equal packages have equal bytes
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, source.read_bytes())
    return path


def _sources(directory: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for entry in directory.iterdir():
        below = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, below)
        elif entry.name.endswith(_SUFFIXES):
            yield below, entry


def ship(spark: SparkSession) -> None:
    """Send the package to all Python workers of a session, and register the format. May be called again.

    Args:
        spark: A session, also of Spark Connect.

    Raises:
        ConfigError: The installed pyspark is too old.
    """
    from radiator.spark.session import register

    spark.addArtifacts(_made(), pyfile=True)
    register(spark)


@cache
def _made() -> str:
    """Return a zip file that exists as long as this process, because executors fetch it when they start.

    Its name contains a checksum of its content.
    """
    scratch = tempfile.mkdtemp(prefix="radiator-package-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    made = Path(make_package(os.path.join(scratch, "radiator.zip")))
    return str(made.rename(made.with_name(f"radiator-{crc32(made.read_bytes()):08x}.zip")))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".zip"):
        sys.exit("usage: python -m radiator.spark.package radiator.zip")
    print(make_package(sys.argv[1]))
