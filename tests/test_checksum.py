"""The crc of what is stored and read is zlib's, whoever computes it."""

from __future__ import annotations

import importlib
import runpy
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import checksum
from radiator.checksum import crc32


@given(st.binary(max_size=3000), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_the_fastest_routine_gives_the_numbers_of_zlib(data: bytes, start: int, before: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(data, before) == zlib.crc32(data, before)
    assert crc32(memoryview(data)[start:]) == zlib.crc32(data[start:])  # at addresses of any alignment
    long = data * 200
    assert crc32(memoryview(long)[start:], before) == zlib.crc32(long[start:], before)


def test_without_zlib_ng_the_crc_is_zlibs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    assert runpy.run_path(checksum.__file__)["crc32"] is zlib.crc32


def test_with_zlib_ng_it_is_used() -> None:
    assert crc32 is importlib.import_module("zlib_ng.zlib_ng").crc32
