"""Compressed and sparse batches: what goes in comes out, and no bytes in a region do worse than be called damage."""

from __future__ import annotations

import builtins
import struct
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import format as codec
from radiator.storage.compression import compress, decompress
from radiator.storage.format import decode, encode_batch
from radiator.storage.header import COMPRESSED, DamagedBatch, UnknownVersion, decode_header

DELTAS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8, unique=True).map(sorted)
VALUES = st.sampled_from([b"", b"k:v", b"content-type:text/plain\ntag-city:Newark", b"x" * 500]) | st.binary(
    max_size=40
)


def batch(
    bodies: list[bytes], deltas: list[int] | None = None, level: int = limits.ZSTD_LEVEL, base: int = 50
) -> bytes:
    n = len(bodies)
    blocks = [b"tag-city:Newark"] * n
    return b"".join(
        encode_batch(base, list(range(n)), None, None, [0] * n, ["/q"], blocks, bodies, 0, deltas, 9, level)
    )


def resealed(data: bytes | bytearray) -> bytes:
    """With a crc that holds, and the lengths as they are."""
    return bytes(data[:12]) + struct.pack("<I", zlib.crc32(data[16:])) + bytes(data[16:])


@given(DELTAS, st.data(), st.integers(0, 2**62), st.sampled_from([0, 1, limits.ZSTD_LEVEL, 19]), st.booleans())
def test_decode_is_the_inverse_of_encode_dense_sparse_and_compressed(
    deltas: list[int], data: st.DataObject, base: int, level: int, sparse: bool
) -> None:
    n = len(deltas)
    blocks, bodies = (data.draw(st.lists(VALUES, min_size=n, max_size=n)) for _ in range(2))
    pieces = encode_batch(
        base, range(n), [5] * n, None, [0] * n, ["/q"], blocks, bodies, 0, deltas if sparse else None, 9, level
    )
    whole = b"".join(pieces)
    header, columns = decode(b"junkjunk" + whole, 8)
    assert header.total_len == len(whole) and len(whole) % 8 == 0
    assert list(columns.offsets) == [base + delta for delta in (deltas if sparse else range(n))]
    assert columns.base_offset == base
    assert (columns.blocks, columns.bodies) == (blocks, bodies)
    assert columns.size_bytes == sum(map(len, blocks)) + sum(map(len, bodies))
    assert bool(header.flags & codec.SPARSE) is sparse
    stored = codec.StoredBatch(whole, 0, header)
    assert (list(stored.offsets()), list(stored.receive_ns())) == (list(columns.offsets), list(range(n)))
    if not level:
        assert not header.flags & COMPRESSED


def test_only_what_gets_smaller_is_compressed() -> None:
    header = decode_header(batch([b"alike " * 100]))
    assert header.flags & COMPRESSED == codec.BODIES_ZSTD and header.bodies_len < 100 and header.headers_len == 15
    assert not decode_header(batch([b"a", b"b"])).flags & COMPRESSED
    assert compress(b"", 3) is None
    assert compress(bytes(limits.BATCH_BYTES_MAX + 1), 1) is None, "no reader would unpack it"
    assert decompress(compress(bytes(limits.BATCH_BYTES_MAX), 1) or b"", limits.BATCH_BYTES_MAX).count(0) == 16 << 20


@given(st.data())
def test_any_flipped_bit_of_a_compressed_batch_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(batch([b"alike " * 9] * 3, [1, 5, 6]))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((DamagedBatch, UnknownVersion)):
        decode(bytes(whole))


@given(st.data())
def test_mutated_bytes_under_a_good_crc_are_damage_and_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(batch([b"alike %d" % number * 9 for number in range(4)], [1, 5, 6, 9]))
    for _ in range(data.draw(st.integers(1, 3))):
        junk = data.draw(st.binary(min_size=1, max_size=12))
        place = data.draw(st.integers(codec.CRC_FROM, len(whole) - len(junk)))
        whole[place : place + len(junk)] = junk
    try:
        _, columns = decode(resealed(whole))
        assert columns.size_bytes <= 2 * limits.BATCH_BYTES_MAX
    except (DamagedBatch, UnknownVersion):
        pass


def with_frame(frame: bytes, length: int) -> bytes:
    """A batch of one record whose bodies are ``frame``, said to be ``length`` bytes unpacked."""
    whole = bytearray(batch([frame], level=0))
    flags = int.from_bytes(whole[44:46], "little") | codec.BODIES_ZSTD
    whole[44:46] = struct.pack("<H", flags)
    body_off = codec.HEADER_BYTES + 8 + 8
    whole[body_off + 4 : body_off + 8] = struct.pack("<i", length)
    return resealed(whole)


def streamed(data: bytes) -> bytes:
    """A frame that does not say how long it is."""
    return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(data)


GOOD = zstandard.ZstdCompressor(level=1).compress(b"x" * 1_000)
BOMB_BYTES = 32 << 20  # more than a batch may have
BOMB = zstandard.ZstdCompressor(level=1).compress(bytes(BOMB_BYTES))


@pytest.mark.parametrize(
    ("frame", "length", "said"),
    [
        (GOOD, 999, "expected 999 bytes unpacked, its frame says 1000"),
        (GOOD, 0, "expected 1 to 16777216 bytes unpacked, got 0"),
        (GOOD, -1, "expected 1 to 16777216 bytes unpacked, got -1"),
        (GOOD[:-3], 1_000, "compressed region"),
        (GOOD + b"more", 1_000, "compressed region"),
        (b"not zstd at all", 15, "compressed region"),
        (b"", 8, "compressed region"),
        (BOMB, BOMB_BYTES, "expected 1 to 16777216"),
        (BOMB, 1_000, f"its frame says {BOMB_BYTES}"),
        (streamed(bytes(BOMB_BYTES)), 1_000, "expected 1000 bytes unpacked"),
        (GOOD[:4] + b"\xff" * 12 + GOOD[16:], 1_000, "compressed region"),
    ],
)
def test_garbage_and_bombs_are_damage_and_take_no_memory(frame: bytes, length: int, said: str) -> None:
    data = with_frame(frame, length)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedBatch, match=said):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_wrong_length_inside_a_compressed_frame_is_damage() -> None:
    """The frame says 1000 in its header, and its blocks give more."""
    frame = bytearray(zstandard.ZstdCompressor(level=1).compress(b"x" * 1_000))
    frame[5:7] = struct.pack("<H", 700 - 256)  # the frame's content size, of two bytes
    assert zstandard.get_frame_parameters(bytes(frame)).content_size == 700
    with pytest.raises(DamagedBatch, match="compressed region"):
        decode(with_frame(bytes(frame), 700))


def test_offsets_that_fall_are_damage_where_little_could_become_much() -> None:
    data = bytearray(batch([bytes(60_000), b"", b"", b""]))
    body_off = codec.HEADER_BYTES + 8 * 4 + 24
    data[body_off : body_off + 20] = struct.pack("<5i", 0, 60_000, 0, 60_000, 60_000)
    with pytest.raises(DamagedBatch, match="they fall"):
        decode(resealed(data))


@pytest.mark.parametrize("deltas", [[3, 3], [4, 3]])
def test_offsets_of_a_sparse_batch_must_rise(deltas: list[int]) -> None:
    with pytest.raises(DamagedBatch, match="do not increase"):
        decode(batch([b"a", b"b"], deltas))


@pytest.mark.parametrize("bit", [3, 5])
def test_a_compression_of_the_future_is_refused_with_the_reason(bit: int) -> None:
    whole = bytearray(batch([b"a", b"b"]))
    whole[44:46] = struct.pack("<H", int.from_bytes(whole[44:46], "little") | 1 << bit)
    with pytest.raises(UnknownVersion, match="newer radiator"):
        decode(resealed(whole))


def test_without_zstandard_it_says_what_is_missing_and_calls_nothing_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch([b"alike " * 100] * 3)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "zstandard":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "zstandard")
    with pytest.raises(StorageError, match="pip install zstandard") as told:
        decode(whole)
    assert not isinstance(told.value, DamagedBatch), "damage is passed over, this is not"
    assert decode(batch([b"alike " * 100] * 3, level=0))[1].bodies == [b"alike " * 100] * 3


def test_compression_is_imported_only_where_it_is_used() -> None:
    program = """
import sys
from radiator.storage import store
from radiator.storage.format import decode, encode_batch
decode(b"".join(encode_batch(0, [1, 2], None, None, [0, 0], ["q"], [b"", b""], [b"a" * 99, b"a" * 99])))
sys.exit("zstandard" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
