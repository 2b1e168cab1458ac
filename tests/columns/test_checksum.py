"""The crc of what is read is zlib's, whoever computes it."""

from __future__ import annotations

import importlib
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.columns import checksum


@given(st.binary(max_size=3000), st.integers(0, 40))
def test_the_fastest_routine_gives_the_numbers_of_zlib(data: bytes, start: int) -> None:
    assert checksum.crc32(data) == zlib.crc32(data)
    assert checksum.crc32(memoryview(data)[start:]) == zlib.crc32(data[start:])  # at addresses of any alignment
    long = data * 200
    assert checksum.crc32(memoryview(long)[start:]) == zlib.crc32(long[start:])


def test_without_zlib_ng_the_crc_is_zlibs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    assert checksum._fastest() is zlib.crc32


def test_with_zlib_ng_it_is_used() -> None:
    assert checksum.crc32 is importlib.import_module("zlib_ng.zlib_ng").crc32
