"""Names in an archive.

    _delta_log/<version, 20 digits>.json                 commits, as Delta's protocol defines them
    _delta_log/<version, 20 digits>.checkpoint.parquet   all commits up to that one
    _delta_log/_last_checkpoint                          the version of the latest checkpoint
    _new/                                         of active runs: data files before they are published (of a local
                                                  archive), and lists of files that are not committed yet, or no more
    date=<day>/<partition>@<first>-<next>.<token>.parquet
    date=<day>/~logs@<token>.parquet              of several partitions
    date=<day>/<destination>/...                  of one destination, and
    date=<day>/~many/...                          of several: written by earlier versions

A name is encoded as in a data directory, with ``~`` in the place of ``%`` (tools take a percent sign in a path for an
escape of their own, and some undo it), and a leading ``_`` as ``~5F`` (tools silently skip such names). One that is too
long is cut and ends in ``~~`` and a hash.

This module knows names. It does not open files. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from radiator.storage.layout import percent_encoded

LOG = "_delta_log"
OLD_LOG = "_log"  # of earlier versions: only the conversion reads it
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
NEW = "_new"
MANY = "~many"  # no encoded name begins so
LOGS = "~logs"  # nor so
DATE_PREFIX = "date="
DATA_SUFFIX = ".parquet"
CHECKPOINT_SUFFIX = ".checkpoint.parquet"
COMMIT_SUFFIX = ".json"
INTENT_SUFFIX = ".intent.json"
HALF_SUFFIX = ".new"  # of what gets its name when it is whole, where only one archiver may be at work
PART_BYTES_MAX = 180  # of a name in a file name, which has two offsets, a token and a suffix as well, and 255 bytes


def encode(name: str, bytes_max: int = 255) -> str:
    """Return a name as one component of a path. Different names give different ones.

    A name may be one that a broker would refuse: longer, or empty.
    """
    encoded = percent_encoded(name).replace("%", "~")
    if encoded[:1] == "_":
        encoded = f"~5F{encoded[1:]}"
    if 0 < len(encoded) <= bytes_max:
        return encoded
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{encoded[: bytes_max - len(digest) - 2]}~~{digest}"


def data_path(date: str, spans: Sequence[tuple[Any, ...]], token: str) -> str:
    """Return the path of a new data file with the records of some spans, which are sorted.

    Args:
        date: Their day.
        spans: Of each the partition, the first offset and the one behind the last, at least.
        token: What no other file has.
    """
    (partition, first, *_), (last, _, following, *_) = spans[0], spans[-1]
    name = f"{LOGS}@" if partition != last else f"{encode(partition, PART_BYTES_MAX)}@{first}-{following}."
    return f"{DATE_PREFIX}{date}/{name}{token}{DATA_SUFFIX}"


def is_data_path(path: str) -> bool:
    """Return whether a path may be one of a data file: nothing else is removed because of an intent."""
    return path.startswith(DATE_PREFIX) and path.endswith(DATA_SUFFIX) and ".." not in path.split("/")


def commit_path(version: int) -> str:
    """Return the path of a commit."""
    return f"{LOG}/{version:020d}{COMMIT_SUFFIX}"


def checkpoint_path(version: int) -> str:
    """Return the path of a checkpoint."""
    return f"{LOG}/{version:020d}{CHECKPOINT_SUFFIX}"


def intent_path(token: str) -> str:
    """Return the path of an intent."""
    return f"{NEW}/{token}{INTENT_SUFFIX}"


def upload_path(path: str) -> str:
    """Return where a data file is uploaded before it is moved, if a partial file would be visible."""
    return f"{NEW}/{path.rpartition('/')[2]}"


def version_of(path: str) -> tuple[int, bool] | None:
    """Return the version in the path of a commit or a checkpoint, and whether it is a checkpoint; None for others."""
    folder, _, name = path.rpartition("/")
    for suffix, checkpoint in ((CHECKPOINT_SUFFIX, True), (COMMIT_SUFFIX, False)):
        digits = name.removesuffix(suffix)
        if folder == LOG and digits != name and len(digits) == 20 and digits.isascii() and digits.isdigit():
            return int(digits), checkpoint
    return None
