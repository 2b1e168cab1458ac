"""The archive: sealed segments as zstd Parquet, by date and destination, and a log of commits that says what is in it.

    files       where it lies: a directory, or whatever pyarrow or fsspec reach by URI
    manifest    the commits: what the archive holds is what they say, in order
    paths       names of its files

``files(uri)`` is for plain readers: the paths of what the commits name, and of nothing else. docs/pipeline.md has the
format and the guarantees.

Knows: pyarrow, the files of a store. Must not know: pyspark, brokers, rules.
"""

from radiator.archive.files import Files, NoArchive
from radiator.archive.listing import files
from radiator.archive.manifest import Conflict, DataFile, Lost, State, commit, load
from radiator.archive.opening import open_files

__all__ = ["Conflict", "DataFile", "Files", "Lost", "NoArchive", "State", "commit", "files", "load", "open_files"]
