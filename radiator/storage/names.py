"""The ``names`` file of a partition: the destinations stored here, unless that is only the partition's own name.

The file has entries end to end: length u32, crc u32 of the name, the name in UTF-8. It shows a restarted broker which
queues and topics share a partition, without reading the log. It is a cache: it is rebuilt from the log if it is gone.
The ``head`` file proves that the list is complete (``layout.Listed``).

This module knows entries. A ``NameList`` belongs to the thread that has its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from radiator.checksum import crc32
from radiator.storage.files import FileSystem, opened, write_all
from radiator.storage.layout import LISTED_BYTES, NOT_LISTED, Listed, encode_listed

_ENTRY = Struct("<II")


def encode_entry(name: str) -> bytes:
    """Return the entry of a name."""
    encoded = name.encode()
    return _ENTRY.pack(len(encoded), crc32(encoded)) + encoded


def write(fs: FileSystem, path: str, names: Iterable[str], at: Listed, sync: bool) -> Listed:
    """Add entries behind the listed ones, where the file then ends.

    Returns:
        The size and crc of the new list.

    Raises:
        OSError: The file cannot be written.
    """
    data = b"".join(map(encode_entry, sorted(names)))
    with opened(fs, fs.open(path, create=True)) as fd:
        position = at.size_bytes + write_all(fs, fd, [data], at.size_bytes)
        if fs.size(fd) > position:
            fs.truncate(fd, position)
        if sync:
            fs.fdatasync(fd)
    return Listed(position, crc32(data, at.crc))


def vouched(data: bytes, listed: Listed | None) -> bool:
    """Return whether ``data`` begins with the complete list that the head describes."""
    return listed is not None and len(data) >= listed.size_bytes and crc32(data[: listed.size_bytes]) == listed.crc


def torn(data: bytes) -> bool:
    """Return whether an interrupted write may have left ``data`` behind the last valid entry."""
    if not data.strip(b"\0"):
        return True
    return len(data) < _ENTRY.size or _ENTRY.size + int(_ENTRY.unpack_from(data)[0]) > len(data)


def decode(data: bytes) -> tuple[list[str], int]:
    """Return the names up to the first damaged entry, and the position of that entry."""
    names, at = [], 0
    while at + _ENTRY.size <= len(data):
        length, crc = _ENTRY.unpack_from(data, at)
        encoded = data[at + _ENTRY.size : at + _ENTRY.size + length]
        if not length or len(encoded) != length or crc32(encoded) != crc:
            break
        names.append(encoded.decode("utf-8", "replace"))
        at += _ENTRY.size + length
    return names, at


class NameList:
    """The destinations of one log, and how many of them the file has."""

    __slots__ = ("known", "listed", "own_name", "vouched", "whole")

    def __init__(self, own_name: str) -> None:
        self.own_name = own_name
        self.known: set[str] = set()
        self.listed = NOT_LISTED  # in the file, up to there
        self.whole = True  # no batch is in the log with a name that is not known
        self.vouched = encode_listed(NOT_LISTED)  # the list's size and crc in the head

    def set_stored(self, known: set[str], listed: Listed) -> None:
        """Set what a start has read from the file."""
        self.known, self.listed = known, listed

    def not_whole(self) -> None:
        """Note that the log may have messages of unknown destinations."""
        self.whole = False
        self.vouch()

    def complete(self, destinations: set[str]) -> None:
        """Set all destinations of the log."""
        self.known, self.whole = set(destinations), True
        self.vouch()

    def rewrite(self, fs: FileSystem, path: str, destinations: set[str]) -> None:
        """Rewrite the whole file, and sync it. Raises OSError."""
        self.listed = NOT_LISTED
        self.listed = write(fs, path, destinations, NOT_LISTED, True)

    def vouch(self) -> None:
        """Let the head prove that the list is complete, if that is certain."""
        sure = self.whole and (self.listed.size_bytes or self.known <= {self.own_name})
        self.vouched = encode_listed(self.listed) if sure else bytes(LISTED_BYTES)

    def add(self, fs: FileSystem, path: str, new: set[str]) -> None:
        """Add new destinations. The usual log, which has only the destination of its own name, has no file.

        Raises:
            OSError: The file cannot be written. The next attempt writes all names.
        """
        begins = not self.listed.size_bytes and new != {self.own_name}
        if self.listed.size_bytes or begins:
            wanted = new | self.known if begins else new
            at, self.listed = self.listed, NOT_LISTED
            self.listed = write(fs, path, wanted, at, False)
        self.known |= new
        self.vouch()
