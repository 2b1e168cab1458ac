"""The redo log by itself; what it is for is in tests/broker/test_atomic_commit.py and in the simulation."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from radiator import limits
from radiator.errors import StorageError
from radiator.storage.transaction_log import (
    Entry,
    TransactionLog,
    decode_entries,
    encode_acks_part,
    encode_batch_part,
    encode_entry,
    load,
)
from tests.storage.faults import FaultyFileSystem

FIRST = [encode_batch_part("/queue/a", [b"one", b" batch"]), encode_acks_part(b"acks")]
SECOND = [encode_batch_part("über", [b"another"])]
WHOLE = [Entry([("/queue/a", memoryview(b"one batch"))], b"acks"), Entry([("über", memoryview(b"another"))], b"")]


def opened() -> tuple[FaultyFileSystem, TransactionLog]:
    fs = FaultyFileSystem(Random(1))
    fs.mkdir("/data")
    fs.sync_dir("/")
    return fs, TransactionLog(fs, "/data")


def test_entries_come_back_as_they_were_written() -> None:
    fs, log = opened()
    log.write(FIRST, True)
    log.write(SECOND, False)
    fs.power_cut()
    assert load(fs, "/data").entries == WHOLE


def test_a_cut_at_any_byte_leaves_the_entries_before_it() -> None:
    first, second = encode_entry(1, FIRST), encode_entry(2, SECOND)
    data = first + second
    ends = [24 + len(b"".join(FIRST)), len(first) + 24 + len(b"".join(SECOND))]  # the padding may be missing
    for size in range(len(data) + 1):
        assert decode_entries(data[:size]) == WHOLE[: sum(size >= end for end in ends)]


def test_a_flipped_bit_anywhere_ends_the_file_there() -> None:
    data = encode_entry(1, FIRST) + encode_entry(2, SECOND)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        found = decode_entries(bytes(damaged))
        assert all(entry in WHOLE for entry in found)
        assert found == WHOLE[: len(found)]


def test_what_is_left_over_from_the_last_time_does_not_count() -> None:
    fs, log = opened()
    log.write(FIRST, True)
    log.write(SECOND, False)
    log.write(FIRST, True)
    assert load(fs, "/data").entries == WHOLE[:1], "the second entry still stands behind, with an older serial"


def test_nothing_there_is_nothing_to_do() -> None:
    fs, log = opened()
    assert load(fs, "/data").entries == []
    log.clear()
    log.write(FIRST, True)
    log.clear()
    fs.power_cut()
    assert load(fs, "/data").entries == []


@pytest.mark.parametrize("verb", ["open", "pwritev", "fdatasync", "sync_dir"])
def test_an_entry_that_could_not_be_synced_never_was(verb: str) -> None:
    for keep in (True, False):
        fs, log = opened()
        if keep:
            log.write(FIRST, True)
            if verb in ("open", "sync_dir"):
                continue
        fs.fail(verb)
        with pytest.raises(StorageError, match="cannot write a transaction"):
            log.write(SECOND, not keep)
        fs.power_cut()
        assert load(fs, "/data").entries == (WHOLE[:1] if keep else [])
        log = TransactionLog(fs, "/data")
        log.write(FIRST, True)
        assert load(fs, "/data").entries == WHOLE[:1]


def test_after_an_entry_that_could_not_be_written_the_next_one_stands_where_it_is_found() -> None:
    fs, log = opened()
    log.write(SECOND, True)
    fs.fail("pwritev")
    with pytest.raises(StorageError):
        log.write(SECOND, True)
    log.write(FIRST, False)
    assert load(fs, "/data").entries == WHOLE[:1]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = opened()
    monkeypatch.setattr(limits, "TRANSACTION_LOG_BYTES_MAX", 150)
    log.write(FIRST, True)
    log.write(FIRST, False)
    with pytest.raises(StorageError, match="150 bytes of transactions wait"):
        log.write(FIRST, False)
    log.write(FIRST, True)


def test_what_one_group_decides_is_never_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, log = opened()
    monkeypatch.setattr(limits, "TRANSACTION_LOG_BYTES_MAX", 10)
    log.write(FIRST, True)
    assert load(fs, "/data").entries == WHOLE[:1]


def test_a_start_holds_the_file_once_and_copies_nothing_of_it() -> None:
    size = 8 * limits.MIB
    fs, log = opened()
    log.write([encode_batch_part("p", [bytes(size)])], True)
    log.write([encode_batch_part("q", [bytes(size)])], False)
    tracemalloc.start()
    try:
        found = load(fs, "/data")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(batch) for entry in found.entries for _, batch in entry.batches] == [size, size]
    assert held < 2 * size + limits.MIB
    assert peak < 4 * size + limits.MIB, "the file of the tests copies what it reads once more"
