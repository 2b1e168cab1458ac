"""``docs/storage-format.md`` says what the code does: its tables against the codec, its example decoded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from radiator import limits
from radiator.storage import cursor_records, dedup_file, index, layout, salt, transaction_log
from radiator.storage import format as codec
from radiator.storage.header import HEADER, MISSING
from radiator.storage.journal import format as journal_format
from radiator.storage.log import OpenLogs

TEXT = (Path(__file__).parents[2] / "docs" / "storage-format.md").read_text("utf-8")
PROSE = " ".join(TEXT.split())


def example(name: str) -> bytes:
    """The bytes of a hex dump in the document."""
    dump = TEXT.split(f"<!-- example: {name} -->")[1].split("```")[1]
    lines = [re.fullmatch(r"([0-9a-f]{4})  ([0-9a-f ]+?) *\|.*\|", line) for line in dump.strip().splitlines()]
    data = b""
    for line in lines:
        assert line is not None and int(line[1], 16) == len(data)
        data += bytes.fromhex(line[2])
    return data


def test_the_worked_example_decodes_to_what_is_said_of_it() -> None:
    header, columns = codec.decode(example("batch"))
    assert (header.total_len, header.crc, header.base_offset, header.records) == (216, 0xF8F7078F, 41, 2)
    assert (header.flags, header.names_len, header.headers_len, header.bodies_len) == (0x0080, 44, 15, 12)
    assert header.salt == 0x9F3C17E2
    assert columns.offsets == range(41, 43)
    assert list(columns.receive_ns) == [1_700_000_000_000_000_000, 1_700_000_000_000_000_500]
    assert columns.event_ns is not None and list(columns.event_ns) == [1_699_999_999_000_000_000, MISSING]
    assert columns.transmit_ns is None
    assert [columns.names[number] for number in columns.destination_ids] == ["/topic/weather.EWR", "/topic/weather.JFK"]
    assert columns.blocks == [b"tag-city:Newark", b""]
    assert columns.bodies == [b'{"temp":39}', b"?"]


def test_the_worked_example_is_what_encode_writes() -> None:
    header, columns = codec.decode(example("batch"))
    pieces = codec.encode_batch(
        header.base_offset,
        columns.receive_ns,
        columns.event_ns,
        columns.transmit_ns,
        columns.destination_ids,
        columns.names,
        columns.blocks,
        columns.bodies,
        salt=header.salt,
    )
    assert b"".join(pieces) == example("batch")


def test_the_sparse_and_compressed_example_decodes_to_what_is_said_of_it() -> None:
    header, columns = codec.decode(example("sparse"))
    assert (header.total_len, header.crc, header.base_offset, header.records) == (280, 0x98204B6E, 100, 3)
    assert header.flags == codec.SPARSE | codec.EVENT_ABSENT | codec.TRANSMIT_ABSENT | codec.HEADERS_ZSTD == 0x02C4
    assert (header.names_len, header.headers_len, header.bodies_len, header.salt) == (22, 79, 23, 0x9F3C17E2)
    assert list(columns.offsets) == [103, 104, 110] and columns.base_offset == 100
    assert list(columns.receive_ns) == [1_700_000_000_000_000_000 + more for more in (0, 500, 900)]
    assert columns.names == ["/topic/weather.EWR"]
    assert columns.blocks == [b"content-type:application/json\ntag-city:Newark\ntag-state:New Jersey"] * 3
    assert columns.bodies == [b'{"temp":39}', b'{"temp":40}', b"?"]
    assert columns.size_bytes == 198 + 23


def test_the_head_of_the_example_decodes() -> None:
    assert layout.decode_head(example("head")) == layout.Head(41, 216, 43)
    assert len(example("head")) == layout.HEAD_FILE_BYTES


def test_the_file_of_the_journal_of_the_example_decodes() -> None:
    data = memoryview(example("journal"))
    header = journal_format.decode_file_header(bytes(data))
    assert header == journal_format.FileHeader(3, 41, 1, 0x1122334455667788)
    entry = journal_format.decode_entry(data, journal_format.FILE_HEADER_BYTES, header.salt)
    assert entry is not None and (entry.number, entry.epoch, entry.end) == (41, 1, len(data))
    assert (int.from_bytes(data[72:76], "little"), int.from_bytes(data[76:80], "little")) == (212, 0x046D939E)
    (part,) = entry.parts
    assert (part.partition, part.header.base_offset, len(part.data)) == ("/queue/out", 7, 120)
    assert part.position + len(part.data) == 0xE9 and codec.decode(bytes(part.data))[1].bodies == [b"paid"]
    states: dict[int, cursor_records.CursorState] = {}
    cursor_records.apply(entry.cursors, states)
    assert len(entry.cursors) == 70 and states[2].changes == [(5, 6)]
    assert (states[2].name, states[2].partition, states[2].floor) == ("queue:/queue/in", "/queue/in", 5)


def test_the_table_of_a_file_of_the_journal_is_the_struct() -> None:
    table = TEXT.split("## The journal")[1].split("Entries follow")[0]
    rows = re.findall(r"^\| (\d+) \| (\w+)[^|]*? ?(u32|u64|8 bytes)? \|", table, re.M)
    assert [(int(place), name) for place, name, _ in rows] == [
        (0, "magic"), (8, "number"), (16, "first_entry"), (24, "epoch"), (32, "salt"), (40, "crc"),
        (44, "zero"),
    ]  # fmt: skip


def test_the_block_of_ids_of_the_example_decodes() -> None:
    decoded = dedup_file.decode(example("dedup"))
    assert (decoded.covered, decoded.end) == (44, len(example("dedup")))
    assert dedup_file.encode_block(40, 44, decoded.rows) == example("dedup")
    first, second, offsets, receive_ns = dedup_file.columns_of(decoded.rows)
    assert list(offsets) == [41, 43]
    assert list(receive_ns) == [1_700_000_000_000_000_000, 1_700_000_000_000_000_500]
    for number, name in enumerate((b"order-7", b"order-8")):
        digest = hashlib.blake2b(b"d\0/queue/orders\0" + name, digest_size=16).digest()
        assert first[number].to_bytes(8, "little") + second[number].to_bytes(8, "little") == digest
    assert "1,024 ids have come or 1 MiB" in PROSE and "after 8 MiB of log" in PROSE and "at most 64 MiB of it" in PROSE
    assert (dedup_file.BLOCK_IDS, dedup_file.BLOCK_LOG_BYTES) == (1_024, 1 << 20)
    assert (dedup_file.SYNC_LOG_BYTES, limits.DEDUP_SCAN_BYTES_MAX) == (8 << 20, 64 << 20)


@pytest.mark.parametrize(
    "magic",
    [
        codec.MAGIC,
        layout.HEAD_MAGIC,
        dedup_file.MAGIC,
        index.MAGIC,
        cursor_records.BLOCK_MAGIC,
        cursor_records.SNAPSHOT_MAGIC,
        salt.KEY_MAGIC,
        journal_format.FILE_MAGIC,
        transaction_log.MAGIC,
    ],
)
def test_every_magic_is_in_the_document(magic: bytes) -> None:
    assert magic[:1] == b"\x89" and magic[5:] == b"\r\n\x1a"
    assert magic[1:5].decode() in TEXT


def test_the_table_of_the_header_is_the_struct() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+)[^|]*? (u16|u32|u64|i64|8 bytes) \|", TEXT.split("## Head")[0], re.M)
    sizes = {"u16": "H", "u32": "I", "u64": "Q", "i64": "q", "8 bytes": "8s"}
    assert "<" + "".join(sizes[kind] for _, _, kind in rows) == HEADER.format
    widths = {"u16": 2, "u32": 4, "u64": 8, "i64": 8, "8 bytes": 8}
    at = 0
    for place, name, kind in rows:
        assert int(place) == at, name
        at += widths[kind]
    assert at == codec.HEADER_BYTES


def test_the_flags_are_those_of_the_code() -> None:
    assert codec.HEADERS_ZSTD == 1 << 2 and "\n| 2–3 | compression of the header blocks: 0 = none, 1 = zstd |" in TEXT
    assert codec.BODIES_ZSTD == 1 << 4 and "\n| 4–5 | compression of the bodies: 0 = none, 1 = zstd |" in TEXT
    for bit, flag in ((6, codec.EVENT_ABSENT), (7, codec.TRANSMIT_ABSENT), (8, codec.TRANSACTION), (9, codec.SPARSE)):
        assert flag == 1 << bit and f"\n| {bit} | " in TEXT


def test_the_limits_are_those_of_the_code() -> None:
    assert f"{limits.DESTINATION_BYTES_MAX} B" in TEXT
    assert f"{limits.BATCH_RECORDS_MAX:,}" in TEXT
    assert f"| destinations in a batch | {limits.BATCH_NAMES_MAX:,} |" in TEXT
    assert f"file in one group commit | {limits.NEW_FILES_TOGETHER_MAX} |" in TEXT
    assert f"{limits.BATCH_BYTES_MAX // limits.MIB} MiB" in TEXT
    assert f"{limits.SEGMENT_BYTES_MIN // limits.KIB} KiB and up, {limits.SEGMENT_BYTES // limits.MIB} MiB" in TEXT
    assert f"cursors | {limits.CURSORS_MAX:,}" in TEXT and f"an array of {limits.CURSORS_MAX:,} u64" in TEXT
    file_bytes, batches = f"{limits.JOURNAL_FILE_BYTES // limits.MIB} MiB", f"{limits.JOURNAL_FILE_BATCHES:,} batches"
    assert f"| file of the journal | {file_bytes} and {batches}, or one entry |" in TEXT
    most = f"{limits.JOURNAL_FILES_MAX} × {file_bytes}", f"{limits.JOURNAL_FILES_MAX} × {batches}"
    assert f"| files of the journal | {most[0]} and {most[1]} |" in TEXT
    assert f"have more than {most[0]}, or more than {most[1]}, clients" in PROSE
    assert f"| threads that sync segments in a checkpoint | {limits.CHECKPOINT_THREADS} |" in TEXT
    assert f"by {limits.CHECKPOINT_THREADS} threads" in PROSE
    assert f"Fewer than {limits.SYNC_ALL_LOGS_MIN} are synced one by one" in PROSE
    assert f"the journal by from | {limits.JOURNAL_PASSED_BYTES_MIN // limits.MIB} MiB |" in TEXT
    assert f"in one group commit, all together | {limits.NEW_FILES_MAX} |" in TEXT
    assert f"| segment files open for writing | {OpenLogs().limit} |" in TEXT
    assert f"{limits.INDEX_INTERVAL_BYTES // limits.KIB} KiB or more after the last batch" in PROSE


def test_the_salt_of_a_partition_is_made_as_the_document_says() -> None:
    key = bytes(range(16))
    digest = hashlib.blake2b(b"%2Fqueue%2Fa", key=key, digest_size=4).digest()
    directory = layout.partition_path("/data", "/queue/a")
    assert salt.of_partition(key, directory) == int.from_bytes(digest, "little")
    assert "BLAKE2b with 4 bytes of digest" in PROSE
