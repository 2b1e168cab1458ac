"""Open an archive by its path or URI: a local directory, or object storage through fsspec or pyarrow."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from radiator.archive.files import LOCAL_SCHEMES, Files, LocalFiles
from radiator.archive.remote import remote_files
from radiator.errors import StorageError


def open_files(archive: str | os.PathLike[str] | Files) -> Files:
    """Return the files of an archive. Nothing is opened or created.

    Args:
        archive: a path or a URI; files are returned as they are.

    Raises:
        StorageError: The URI names no archive, or no installed library has a driver for its scheme.
    """
    if isinstance(archive, Files):
        return archive
    uri = os.fspath(archive)
    parts = urlsplit(uri)
    if parts.scheme not in LOCAL_SCHEMES or (parts.netloc not in ("", "localhost") and "://" in uri):
        return remote_files(uri.rstrip("/"), parts.scheme)
    path = uri
    if "://" in uri or parts.scheme:  # urlsplit would take # and ? for the end of the path
        path = unquote(uri.partition(":")[2].removeprefix(f"//{parts.netloc}" if "://" in uri else ""))
    if not path or ("://" in uri and not path.startswith("/")):
        raise StorageError(f"{uri!r} names no archive: expected a directory, or a URI such as s3://bucket/archive")
    return LocalFiles(path)
