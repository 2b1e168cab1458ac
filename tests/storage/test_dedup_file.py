"""The bytes of the ``dedup`` file: blocks that follow one another, and nothing else."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.clock import WallNs
from radiator.storage import layout
from radiator.storage.dedup import Columns
from radiator.storage.dedup_file import columns_of, decode, encode_block, rows_of
from radiator.storage.file_partition import FilePartition
from tests.storage.driving import ALWAYS, NOW, commit, opened
from tests.storage.faults import Crash, FaultyFileSystem


def columns(*offsets: int) -> Columns:
    return (
        array("Q", [(offset * 0x9E3779B97F4A7C15) % 2**64 for offset in offsets]),
        array("Q", [(1 << 64) - 1 - offset for offset in offsets]),
        array("Q", offsets),
        array("q", [offset - 5 for offset in offsets]),
    )


THREE = [
    encode_block(0, 10, rows_of(columns(1, 4, 9))),
    encode_block(10, 20, b""),
    encode_block(20, 30, rows_of(columns(29))),
]


def test_what_is_written_is_what_is_read() -> None:
    data = b"".join(THREE)
    decoded = decode(data)
    assert (decoded.covered, decoded.end) == (30, len(data))
    assert columns_of(decoded.rows) == columns(1, 4, 9, 29)
    assert rows_of(columns_of(decoded.rows)) == decoded.rows


def test_nothing_is_an_empty_file() -> None:
    assert decode(b"") == (b"", None, 0)
    assert decode(bytes(1_000)) == (b"", None, 0)


@pytest.mark.parametrize("wrong", range(3))
def test_a_block_that_does_not_hold_ends_the_file(wrong: int) -> None:
    for at in range(0, len(THREE[wrong]), 5):
        blocks = [bytearray(block) for block in THREE]
        blocks[wrong][at] ^= 0x10
        decoded = decode(bytes(b"".join(blocks)))
        assert decoded.end == sum(map(len, THREE[:wrong]))
        assert decoded.covered == (None, 10, 20)[wrong]


def test_a_block_that_does_not_follow_ends_the_file() -> None:
    """One of an earlier time, behind a block that was torn and written again, must not be believed."""
    assert decode(THREE[0] + THREE[2]).covered == 10
    assert decode(THREE[0] + THREE[0]).covered == 10


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(b"".join(THREE))), st.binary(max_size=100))
def test_a_file_that_is_cut_anywhere_has_the_whole_blocks_before(cut: int, rest: bytes) -> None:
    data = b"".join(THREE)[:cut]
    decoded = decode(data + b"\x5a" * 8 + rest)
    whole = 0
    while len(b"".join(THREE[: whole + 1])) <= cut and whole < 3:
        whole += 1
    assert decoded.end == len(b"".join(THREE[:whole]))
    assert decoded.covered == (None, 10, 20, 30)[whole]


def test_a_block_of_an_earlier_run_whose_sync_has_failed_is_written_again_with_the_next() -> None:
    """The process is killed before it learns of the failure, and the kernel holds the block as if it was written."""
    fs = FaultyFileSystem()
    identities = {b"id:0": b"0" * 16, b"id:1": b"1" * 16}
    for number, block in enumerate(identities):
        store, _ = opened(fs, identify=lambda name, block: identities[block])
        log = store.partition("p", ALWAYS)
        assert isinstance(log, FilePartition)
        log.append("/queue/a", block, b"", WallNs(NOW))
        log.remember(identities[block], number)
        commit(store)
        assert log.dedup_file is not None
        log.dedup_file.request_block()
        log.queue()
        if number == 0:
            fs.fail("fdatasync", under="/dedup", fatal=True)
            with pytest.raises(Crash):
                commit(store)
            fs.kill()
        else:
            commit(store)
            assert log.dedup_file.synced_to == 2
    fs.power_cut()
    assert decode(bytes(fs.nodes[layout.dedup_path(log.directory)].cache)).covered == 2
