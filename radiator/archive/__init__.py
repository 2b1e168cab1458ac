"""The archive: sealed segments as zstd Parquet by date, sorted by destination, and a log of commits with its contents.

    files       where it is: a directory, or any store that pyarrow or fsspec reach by URI
    manifest    the commits, which define the contents of the archive, in order
    paths       names of its files

``files(uri)`` is for plain readers: the paths of the files in the commits, and of no others. docs/pipeline.md has the
format and the guarantees.

This package knows pyarrow and the files of a store. It does not know pyspark, brokers or rules.
"""

from radiator.archive.files import Files, NoArchive, NoVersion
from radiator.archive.listing import files
from radiator.archive.manifest import Changes, Conflict, DataFile, Lost, State, commit, load
from radiator.archive.opening import open_files

__all__ = [
    "Changes",
    "Conflict",
    "DataFile",
    "Files",
    "Lost",
    "NoArchive",
    "NoVersion",
    "State",
    "commit",
    "files",
    "load",
    "open_files",
]
