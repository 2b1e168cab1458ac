"""Names on disk: paths, how a name becomes a directory, and the small ``head`` file.

    <data_dir>/LOCK                                              the broker's pid: see ``FileSystem.lock``
    <data_dir>/salt                                              the key of the salts: see ``salt``
    <data_dir>/journal/<number, 10 digits>.rjl                   what is being stored: see ``journal``
    <data_dir>/transactions                                      of earlier versions: see ``transaction_log``
    <data_dir>/partitions/<encoded name>/<base, 20 digits>.rlog  segments
                                         <base, 20 digits>.idx   sparse index of a segment; a cache
                                         head                    end of what is synced; external readers stop here
                                         names                   destinations stored here; a cache
                                         archived                how far an archive has everything
                                         dedup                   remembered message ids: see ``dedup_file``
    <data_dir>/cursors/snapshot, snapshot.copy, delivered
    <data_dir>/subscriptions                                     durable subscriptions: see ``definitions``
    <data_dir>/last_rules                                        rules of the last run: see ``last_rules``
    <data_dir>/removals                                          partitions that are being removed: see ``removal``
    <data_dir>/removed/                                          their directories, until they are deleted
    <data_dir>/mirror                                            a mirror writes here: see ``copies``
    <data_dir>/quarantine/<encoded name>/<base, 20 digits>@<position>.bin  copies of damaged bytes, by fsck --repair

This module knows names and fixed bytes. It does not open files. All functions are pure: any thread may call them.
Invariants: ``decode_name(encode_name(x)) == x``; an encoded name is one path component that cannot leave its directory,
and is at most DESTINATION_BYTES_MAX long.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from radiator import limits
from radiator.checksum import crc32

LOCK = "LOCK"
SALT = "salt"
JOURNAL = "journal"
JOURNAL_SUFFIX = ".rjl"
TRANSACTIONS = "transactions"
DEDUP = "dedup"
NEW_SUFFIX = ".new"  # of a file that is being written beside its place; left over from a crash: of no use
PARTITIONS = "partitions"
CURSORS = "cursors"
SCHEMAS = "schemas"
SUBSCRIPTIONS = "subscriptions"
SUBSCRIPTIONS_DAMAGED = "subscriptions.damaged"  # one that could not be read, until an operator removes it
LAST_RULES = "last_rules"
REMOVALS = "removals"
REMOVED = "removed"
MANIFEST = "MANIFEST.json"  # of a backup
MIRROR = "mirror"  # see ``copies``
QUARANTINE = "quarantine"
HEAD = "head"
NAMES = "names"
ARCHIVED = "archived"
SEGMENT_SUFFIX = ".rlog"
INDEX_SUFFIX = ".idx"
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

# --- names ------------------------------------------------------------------------------------------------------------


def encode_name(name: str) -> str:
    """Return a name as one path component.

    A-Z a-z 0-9 . _ - are not changed; all else (and a leading dot) is percent-encoded.

    Raises:
        ValueError: The name is empty or too long.
    """
    if not name:
        raise ValueError("a name must not be empty")
    encoded = percent_encoded(name)
    if len(encoded) > limits.DESTINATION_BYTES_MAX:
        raise ValueError(
            f"name of {len(encoded)} bytes when percent-encoded; the limit is {limits.DESTINATION_BYTES_MAX}"
        )
    return encoded


def percent_encoded(name: str) -> str:
    """Return the same for a name of any length, also an empty one."""
    encoded = quote(name, safe="").replace("~", "%7E")
    return "%2E" + encoded[1:] if encoded[:1] == "." else encoded


def decode_name(encoded: str) -> str:
    """Return the name of a component. Raises ValueError if ``encode_name`` cannot have returned it."""
    name = unquote_to_bytes(encoded).decode("utf-8")
    if encode_name(name) != encoded:
        raise ValueError(f"not an encoded name: {encoded!r}")
    return name


def message_id(partition_name: str, offset: int) -> str:
    """Return the address of a record. It needs no escape in any STOMP version."""
    return f"{message_id_prefix(partition_name)}{offset}"


def message_id_prefix(partition_name: str) -> str:
    """Return what the message ids of a partition have before the offset."""
    return f"{encode_name(partition_name)}@"


def parse_message_id(text: str) -> tuple[str, int]:
    """Return (partition name, offset). Raises ValueError."""
    encoded, at, digits = text.rpartition("@")
    if not at or not digits.isascii() or not digits.isdigit() or len(digits) > 20:
        raise ValueError(f"not a message-id: {text!r}, expected <partition>@<offset>")
    return decode_name(encoded), int(digits)


# --- paths ------------------------------------------------------------------------------------------------------------


def lock_path(root: str) -> str:
    """Return the path of the lock file."""
    return f"{root}/{LOCK}"


def salt_path(root: str) -> str:
    """Return the path of the key of the salts."""
    return f"{root}/{SALT}"


def transactions_path(root: str) -> str:
    """Return the path of the redo log of earlier versions."""
    return f"{root}/{TRANSACTIONS}"


def journal_path(root: str) -> str:
    """Return the directory of the journal."""
    return f"{root}/{JOURNAL}"


def journal_file_path(directory: str, number: int) -> str:
    """Return the path of a file of the journal."""
    return f"{directory}/{number:010d}{JOURNAL_SUFFIX}"


def journal_file_number(name: str) -> int | None:
    """Return the number in the name of a file of the journal; None for other names."""
    digits = name.removesuffix(JOURNAL_SUFFIX)
    ours = name.endswith(JOURNAL_SUFFIX) and len(digits) == 10 and digits.isascii() and digits.isdigit()
    return int(digits) if ours else None


def partitions_path(root: str) -> str:
    """Return the directory of all partitions."""
    return f"{root}/{PARTITIONS}"


def cursors_path(root: str) -> str:
    """Return the directory of the cursors."""
    return f"{root}/{CURSORS}"


def schemas_path(root: str) -> str:
    """Return the directory of schemas: ``<name, percent-encoded>@<number>.json`` for each version."""
    return f"{root}/{SCHEMAS}"


def subscriptions_path(root: str) -> str:
    """Return the path of the definitions of durable subscriptions."""
    return f"{root}/{SUBSCRIPTIONS}"


def last_rules_path(root: str) -> str:
    """Return the path of the rules of the last run."""
    return f"{root}/{LAST_RULES}"


def removals_path(root: str) -> str:
    """Return the path of the list of partitions that are being removed."""
    return f"{root}/{REMOVALS}"


def removed_path(root: str) -> str:
    """Return the directory of removed partitions that are not deleted yet."""
    return f"{root}/{REMOVED}"


def mirror_path(root: str) -> str:
    """Return the path of the file that marks the copy of a mirror."""
    return f"{root}/{MIRROR}"


def partition_path(root: str, name: str) -> str:
    """Return the directory of a partition."""
    return f"{root}/{PARTITIONS}/{encode_name(name)}"


def segment_path(directory: str, base_offset: int) -> str:
    """Return the path of a segment."""
    return f"{directory}/{base_offset:020d}{SEGMENT_SUFFIX}"


def index_path(directory: str, base_offset: int) -> str:
    """Return the path of the index of a segment."""
    return f"{directory}/{base_offset:020d}{INDEX_SUFFIX}"


def head_path(directory: str) -> str:
    """Return the path of the head of a partition."""
    return f"{directory}/{HEAD}"


def names_path(directory: str) -> str:
    """Return the path of the list of destinations of a partition."""
    return f"{directory}/{NAMES}"


def quarantine_path(root: str, directory: str, base_offset: int, position: int) -> str:
    """Return the path of a copy of the damage at this place of a segment of the partition in ``directory``."""
    return f"{root}/{QUARANTINE}/{directory.rpartition('/')[2]}/{base_offset:020d}@{position}.bin"


def archived_path(directory: str) -> str:
    """Return the path of the file ``archived`` of a partition."""
    return f"{directory}/{ARCHIVED}"


def dedup_path(directory: str) -> str:
    """Return the path of the remembered ids of a partition."""
    return f"{directory}/{DEDUP}"


def segment_base(file_name: str) -> int | None:
    """Return the base offset in the file name of a segment; None for other names."""
    return _base(file_name, SEGMENT_SUFFIX)


def index_base(file_name: str) -> int | None:
    """Return the base offset in the file name of an index; None for other names."""
    return _base(file_name, INDEX_SUFFIX)


def _base(file_name: str, suffix: str) -> int | None:
    digits = file_name.removesuffix(suffix)
    if digits == file_name or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


# --- the head file ----------------------------------------------------------------------------------------------------

HEAD_MAGIC = b"\x89RDH1\r\n\x1a"
HEAD_FILE_BYTES = 64
_HEAD = Struct("<8sQQQII")  # magic, segment base, position, next offset, crc of the 32 bytes before it, 0
_HEAD_FIELDS = Struct("<8sQQQ")


class Head(NamedTuple):
    """The end of what is synced: records below ``next_offset`` end at ``position`` of the segment ``segment_base``."""

    segment_base: int
    position: int
    next_offset: int


class Listed(NamedTuple):
    """The complete list of destinations: that many bytes of ``names``, and their crc.

    0 bytes: the partition contains only the destination of its own name.
    """

    size_bytes: int
    crc: int


NOT_LISTED = Listed(0, 0)


def encode_head(segment_base: int, position: int, next_offset: int) -> bytes:
    """Return the first bytes of a head file."""
    fields = _HEAD_FIELDS.pack(HEAD_MAGIC, segment_base, position, next_offset)
    return fields + crc32(fields).to_bytes(8, "little")


def decode_head(data: bytes) -> Head | None:
    """Return the head; None if the bytes are torn or damaged.

    The writer does not stop for readers, so a reader should read a torn head again.
    """
    if len(data) < _HEAD.size:
        return None
    magic, segment, position, next_offset, crc, _ = _HEAD.unpack_from(data)
    if magic != HEAD_MAGIC or crc != crc32(data[: _HEAD_FIELDS.size]):
        return None
    return Head(segment, position, next_offset)


LISTED_AT = 40  # in the head file
_LISTED = Struct("<III")  # bytes, crc of them, crc of the 8 bytes before it
LISTED_BYTES = _LISTED.size
SYNC_FAILED_AT = LISTED_AT + LISTED_BYTES  # in the head file
SYNC_FAILED = b"\x01\0\0\0"  # a sync of the active segment has failed, or may have
SYNCED = bytes(len(SYNC_FAILED))
HEAD_BYTES = SYNC_FAILED_AT + len(SYNC_FAILED)


def encode_listed(listed: Listed) -> bytes:
    """Return the bytes of the head file that prove the list of names."""
    fields = _LISTED.pack(*listed, 0)[:8]
    return fields + crc32(fields).to_bytes(4, "little")


def decode_listed(head: bytes) -> Listed | None:
    """Return the proof of the list of names in a head file; None if the list may be incomplete."""
    if len(head) < LISTED_AT + LISTED_BYTES:
        return None
    size_bytes, crc, check = _LISTED.unpack_from(head, LISTED_AT)
    if check != crc32(head[LISTED_AT : LISTED_AT + 8]):
        return None
    return Listed(size_bytes, crc)


def sync_failed(head: bytes) -> bool:
    """Return whether a head file says that the last sync of the active segment has failed.

    The operating system may then treat what that sync should have written as if it were on disk, so that a later sync
    succeeds and writes nothing: the segment must be written once more before a sync of it is reliable.
    """
    return head[SYNC_FAILED_AT:HEAD_BYTES] == SYNC_FAILED


def nothing_committed(head: bytes) -> bool:
    """Return whether these are the bytes of a head file that no end was written to yet. A sync may have failed."""
    return not any(head[:SYNC_FAILED_AT])
