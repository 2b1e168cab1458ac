"""An archive in a remote store: ``Files`` over fsspec and over pyarrow.fs.

Data files are spooled on the local disk and uploaded whole. If an upload is not one step (anything but an object store)
they are uploaded to ``_new/`` first and moved.

This module knows the two libraries; each is imported when a URI needs it. It does not know the contents of files.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from contextlib import AbstractContextManager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from radiator.archive import calls
from radiator.archive.files import Entry, Files
from radiator.archive.paths import HALF_SUFFIX, LOG, upload_path
from radiator.columns.files import shown
from radiator.errors import StorageError
from radiator.limits import MIB

OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory", "gcsfs", "adlfs"))
S3 = ("s3", "s3a")
COPY_BYTES = 8 * MIB
SPOOL_PREFIX = "radiator-archive-"


def remote_files(uri: str, scheme: str) -> Files:
    """Return the files of a remote archive. Raises StorageError."""
    whys = []
    for make in (_by_fsspec, _by_arrow):
        try:
            return make(uri, scheme)
        except (ImportError, ValueError, NotImplementedError) as error:
            whys.append(f"{make.__name__[4:]}: {str(error).replace(uri, shown(uri))}")
        except OSError as error:
            why = str(error).replace(uri, shown(uri))
            raise StorageError(f"{shown(uri)}: cannot be reached: {why}") from error
    raise StorageError(
        f"{shown(uri)}: no library for {scheme}:// works ({'; '.join(whys)}); install the fsspec driver of the "
        "store, such as pip install s3fs, gcsfs or adlfs"
    )


def _by_fsspec(uri: str, scheme: str) -> Files:
    from fsspec.core import url_to_fs

    place, arguments = _s3_arguments(uri) if scheme in S3 else (uri, {})
    fs, path = url_to_fs(place, **arguments)
    return FsspecFiles(fs, path, uri, moves=scheme not in OBJECT_STORES)


def _s3_arguments(uri: str) -> tuple[str, dict[str, Any]]:
    """Return a URI without user and parameters, and the arguments of s3fs that say the same.

    So one URI works with pyarrow, which reads both from it, and with s3fs.

    Raises:
        ValueError: s3fs has no argument for a parameter.
    """
    before, _, query = uri.partition("?")
    scheme, _, rest = before.partition("://")
    user, at, host = rest.partition("/")[0].rpartition("@")
    if not at and not query:
        return uri, {}
    key, _, secret = user.partition(":")
    parameters = dict(parse_qsl(query))
    arguments: dict[str, Any] = {"key": unquote(key), "secret": unquote(secret)} if key else {}
    protocol = parameters.pop("scheme", "https")
    if endpoint := parameters.pop("endpoint_override", ""):
        arguments["endpoint_url"] = endpoint if "://" in endpoint else f"{protocol}://{endpoint}"
    if region := parameters.pop("region", ""):
        arguments["client_kwargs"] = {"region_name": region}
    if parameters:
        raise ValueError(f"s3fs has no parameter {next(iter(parameters))}")
    return f"{scheme}://{host}{unquote(rest[len(user + at + host) :])}", arguments


def _by_arrow(uri: str, scheme: str) -> Files:
    from pyarrow.fs import FileSystem

    fs, path = calls.call(lambda: FileSystem.from_uri(uri), "", calls.SECONDS_MAX)
    return ArrowFiles(fs, path, uri, moves=scheme not in OBJECT_STORES)


Entries: TypeAlias = list[Entry]


class FsspecFiles(Files):
    """Files over fsspec.

    ``moves``: a partial upload is visible, so the file gets its name at the end.
    """

    def __init__(self, fs: Any, root: str, uri: str, moves: bool) -> None:
        self.fs, self.root, self.given, self.uri, self._moves = fs, root.rstrip("/"), uri, shown(uri), moves

    def list(self, directory: str) -> Entries:
        """Return the files below a directory.

        This is the first call of a store, so it reports what is wrong with it: also that there is no bucket, which
        looks like an empty archive to some drivers.
        """

        def ask() -> Entries:
            found = self._list(directory)
            if not found and not self._has_bucket():
                raise FileNotFoundError(f"there is no bucket {self.root.partition('/')[0]!r}")
            return found

        seconds = calls.SECONDS_MAX if directory == LOG else None
        return calls.call(ask, f"{self.uri}: cannot be listed", seconds)

    def _has_bucket(self) -> bool:
        """Return whether the bucket exists, or that is unknown: the rights may cover only a prefix."""
        bucket = self.root.partition("/")[0]
        if self._moves or not bucket or self.uri.startswith("memory:"):
            return True
        try:
            return self._is_there(bucket)
        except Exception:  # of whatever driver
            return True

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        with self._as_os_errors(path, "read"):
            return self._read(path)

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        with self._as_os_errors(path, "read"):
            return self._open(path)

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None."""
        with self._as_os_errors(path, "looked at"):
            return self._size(path)

    def create_new(self, path: str, data: bytes) -> bool:
        """Create a file with these contents."""
        with self._as_os_errors(path, "written"):
            return self._create_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with these contents, or replace it."""
        if self._moves:
            self.remove(path)  # some file systems do not move a file over another one
        with self._as_os_errors(path, "written"):
            self._write(self.place(path), data)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._as_os_errors(path, "removed"), contextlib.suppress(FileNotFoundError):
            self._remove(path)

    def _as_os_errors(self, path: str, what: str) -> AbstractContextManager[None]:
        return calls.as_os_errors(self._failure(path, what))

    def _failure(self, path: str, what: str) -> str:
        return f"{self.named(path)}: cannot be {what}"

    def place(self, path: str) -> str:
        """Return the path in the store."""
        return f"{self.root}/{path}"

    def address(self, path: str) -> str:
        """Return the URI."""
        before, separator, parameters = self.given.partition("?")
        return f"{before}/{path}{separator}{parameters}"

    def spool(self, name: str) -> str:
        """Return a directory below that of temporary files."""
        top, prefix = self.spools()
        directory = f"{top}/{prefix}{name}"
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.lstat(directory).st_uid != os.getuid():
            raise StorageError(f"{directory} belongs to another user; remove it, or set TMPDIR to another directory")
        return directory

    def spools(self) -> tuple[str, str]:
        """Return the directory of temporary files."""
        return tempfile.gettempdir(), SPOOL_PREFIX

    def publish(self, spooled: str, path: str) -> None:
        """Upload a spooled file, and remove it."""
        place = self.place(path)
        first = self.place(upload_path(path)) if self._moves else place
        with self._as_os_errors(path, "written"):
            self._upload(spooled, first)
            if self._moves:
                self._move(first, place)
        os.unlink(spooled)

    def _write(self, place: str, data: bytes) -> None:
        """Write a file: complete, or not under that name."""
        first = f"{place}{HALF_SUFFIX}" if self._moves else place
        self._put(first, data)
        if self._moves:
            self._move(first, place)

    # --- the calls of fsspec ------------------------------------------------------------------------------------------

    def _list(self, directory: str) -> Entries:
        self.fs.invalidate_cache()
        try:
            found = self.fs.find(self.place(directory), detail=True)
        except FileNotFoundError:
            return []
        cut = len(self.fs._strip_protocol(self.root)) + 1
        return sorted(Entry(str(place)[cut:], int(facts["size"] or 0)) for place, facts in found.items())

    def _read(self, path: str) -> bytes:
        data: bytes = self.fs.cat_file(self.place(path))
        return data

    def _open(self, path: str) -> Any:
        return calls.OsErrorFile(self.fs.open(self.place(path), "rb"), self._failure(path, "read"))

    def _size(self, path: str) -> int | None:
        self.fs.invalidate_cache()
        try:
            return int(self.fs.info(self.place(path))["size"])
        except FileNotFoundError:
            return None

    def _create_new(self, path: str, data: bytes) -> bool:
        place = self.place(path)
        self._make_folder(place)
        if not self._moves:
            try:
                with self.fs.open(place, "xb") as file:
                    file.write(data)
                return True
            except FileExistsError:
                self.fs.invalidate_cache()  # with a listing without this file, s3fs says that it does not exist
                return False
            except (NotImplementedError, ValueError):
                pass  # a driver without that mode
        if self._size(path) is not None:
            return False
        self._write(place, data)
        return True

    def _remove(self, path: str) -> None:
        self.fs.rm_file(self.place(path))

    def _upload(self, spooled: str, place: str) -> None:
        self._make_folder(place)
        self.fs.put_file(spooled, place)

    def _move(self, old: str, new: str) -> None:
        self._make_folder(new)
        self.fs.mv(old, new)

    def _put(self, place: str, data: bytes) -> None:
        self.fs.pipe_file(place, data)

    def _is_there(self, place: str) -> bool:
        return bool(self.fs.exists(place))

    def _make_folder(self, place: str) -> None:
        if self._moves:  # an object store has none
            self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)


class ArrowFiles(FsspecFiles):
    """The same over pyarrow.fs, which has other calls."""

    def _list(self, directory: str) -> Entries:
        from pyarrow.fs import FileSelector, FileType

        wanted = FileSelector(self.place(directory), allow_not_found=True, recursive=True)
        found = [each for each in self.fs.get_file_info(wanted) if each.type == FileType.File]
        return sorted(Entry(each.path[len(self.root) + 1 :], each.size or 0) for each in found)

    def _read(self, path: str) -> bytes:
        with self.fs.open_input_stream(self.place(path)) as file:
            data: bytes = file.read()
        return data

    def _open(self, path: str) -> Any:
        return self.fs.open_input_file(self.place(path))

    def _size(self, path: str) -> int | None:
        from pyarrow.fs import FileType

        facts = self.fs.get_file_info(self.place(path))
        return int(facts.size) if facts.type == FileType.File else None

    def _create_new(self, path: str, data: bytes) -> bool:
        if self._size(path) is not None:
            return False
        self._write(self.place(path), data)
        return True

    def _remove(self, path: str) -> None:
        self.fs.delete_file(self.place(path))

    def _upload(self, spooled: str, place: str) -> None:
        self._make_folder(place)
        with open(spooled, "rb") as source, self.fs.open_output_stream(place) as target:
            while data := source.read(COPY_BYTES):
                target.write(data)

    def _move(self, old: str, new: str) -> None:
        self._make_folder(new)
        self.fs.move(old, new)

    def _put(self, place: str, data: bytes) -> None:
        self._make_folder(place)
        with self.fs.open_output_stream(place) as target:
            target.write(data)

    def _is_there(self, place: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self.fs.get_file_info(place).type != FileType.NotFound)

    def _make_folder(self, place: str) -> None:
        if self._moves:  # an object store has none
            self.fs.create_dir(place.rpartition("/")[0], recursive=True)
