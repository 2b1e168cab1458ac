"""The package as one file, for machines that do not have it installed: what ``spark-submit --py-files`` takes.

    python -m radiator.spark.package radiator.zip       # for spark-submit
    radiator.spark.ship(spark)                          # for a session that runs, Spark Connect included

Executors need numpy and pyarrow besides, and zstandard where segments are compressed.

Knows: the package's own files. Must not know: sessions, but for their ``addArtifacts``.
Invariant: the same package makes the same bytes, so that shipping it again is nothing new.
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
from zlib import crc32

from pyspark.sql import SparkSession

import radiator

_SUFFIXES = (".py", "py.typed")


def make_package(path: str) -> str:
    """Writes the package, as this process has it, into a zip file; returns its path."""
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources(files(radiator), "radiator")):
            entry = ZipInfo(name)  # of 1980, whenever it was written
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
    """Gives the package to all Python workers of a session, and registers the format. Again does no harm."""
    from radiator.spark.session import register

    spark.addArtifacts(_made(), pyfile=True)
    register(spark)


@cache
def _made() -> str:
    """A file that stays as long as this process: executors fetch it when they come. Its name is of its content."""
    scratch = tempfile.mkdtemp(prefix="radiator-package-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    made = Path(make_package(os.path.join(scratch, "radiator.zip")))
    return str(made.rename(made.with_name(f"radiator-{crc32(made.read_bytes()):08x}.zip")))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".zip"):
        sys.exit("usage: python -m radiator.spark.package radiator.zip")
    print(make_package(sys.argv[1]))
