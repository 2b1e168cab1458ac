"""Names in an archive, and what can be told by them.

    _log/<version, 20 digits>.json                commits
    _log/<version, 20 digits>.checkpoint.json     all commits up to that one
    _new/                                         what a run is at: data files before they are published (of a local
                                                  archive), and lists of files that no commit names yet, or any more
    date=<day>/<destination>/<partition>@<first>-<next>.<token>.parquet
    date=<day>/~many/...                          several destinations in a file

A name is encoded as in a data directory, with ``~`` in the place of ``%`` (tools take a percent sign in a path for an
escape of their own, and some undo it), and a leading ``_`` as ``~5F`` (tools leave out what begins so, without a word).
One that is too long is cut and ends in ``~~`` and a hash.

Knows: names. Must not know: how to open anything. Pure functions.
"""

from __future__ import annotations

from hashlib import blake2b

from radiator.storage.layout import percent_encoded

LOG = "_log"
NEW = "_new"
MANY = "~many"  # no encoded name begins so
DATE_PREFIX = "date="
DATA_SUFFIX = ".parquet"
CHECKPOINT_SUFFIX = ".checkpoint.json"
COMMIT_SUFFIX = ".json"
INTENT_SUFFIX = ".intent.json"
HALF_SUFFIX = ".new"  # of what gets its name when it is whole, where only one archiver may be at work
PART_BYTES_MAX = 180  # of a name in a file name, which has two offsets, a token and a suffix as well, and 255 bytes


def encode(name: str, bytes_max: int = 255) -> str:
    """One component of a path. Different names give different ones. A name may be what no broker takes: longer, or
    none at all."""
    encoded = percent_encoded(name).replace("%", "~")
    if encoded[:1] == "_":
        encoded = f"~5F{encoded[1:]}"
    if 0 < len(encoded) <= bytes_max:
        return encoded
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{encoded[: bytes_max - len(digest) - 2]}~~{digest}"


def data_path(date: str, destination: str | None, partition: str, first: int, following: int, token: str) -> str:
    """``destination`` None: several."""
    folder = MANY if destination is None else encode(destination)
    return f"{DATE_PREFIX}{date}/{folder}/{encode(partition, PART_BYTES_MAX)}@{first}-{following}.{token}{DATA_SUFFIX}"


def is_data_path(path: str) -> bool:
    """Whether it may be one: nothing else is removed by what an intent says."""
    return path.startswith(DATE_PREFIX) and path.endswith(DATA_SUFFIX) and ".." not in path.split("/")


def commit_path(version: int) -> str:
    return f"{LOG}/{version:020d}{COMMIT_SUFFIX}"


def checkpoint_path(version: int) -> str:
    return f"{LOG}/{version:020d}{CHECKPOINT_SUFFIX}"


def intent_path(token: str) -> str:
    return f"{NEW}/{token}{INTENT_SUFFIX}"


def upload_path(path: str) -> str:
    """Where a data file is uploaded to, where that can be seen, before it is moved to its place."""
    return f"{NEW}/{path.rpartition('/')[2]}"


def version_of(name: str) -> tuple[int, bool] | None:
    """The version that a name in ``_log`` stands for, and whether it is a checkpoint; None: neither."""
    for suffix, checkpoint in ((CHECKPOINT_SUFFIX, True), (COMMIT_SUFFIX, False)):
        digits = name.removesuffix(suffix)
        if digits != name and len(digits) == 20 and digits.isascii() and digits.isdigit():
            return int(digits), checkpoint
    return None
