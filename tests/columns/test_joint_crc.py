"""Many small batches under one crc: the same batches are believed as when each is looked at, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radiator.columns import scan
from radiator.columns.batches import Bytes
from radiator.columns.joint_crc import small_batches
from radiator.columns.scan import Loss
from radiator.storage.header import MAGIC, UnknownVersion
from tests.columns.segments import Placed, encode, read_rows, whole, write_segment
from tests.spark.stores import Message, numbered

pytestmark = pytest.mark.spark

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=30)


def stored(tmp_path: Path, sizes: list[int]) -> tuple[Bytes, list[Placed]]:
    batches = [numbered("/topic/a", size, sum(sizes[:i])) for i, size in enumerate(sizes)]
    placed = write_segment(tmp_path / "s.rlog", batches)
    return np.fromfile(tmp_path / "s.rlog", np.uint8), placed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SIZES, st.integers(0, 15))
def test_batches_that_hold_are_found_and_their_bytes_stay(tmp_path: Path, sizes: list[int], cut: int) -> None:
    data, placed = stored(tmp_path, sizes)
    data = data[: len(data) - 8 * cut].copy()
    before = data.copy()
    at, end = small_batches(data)
    ends = [*[batch.position for batch in placed[1:]], len(before) + 8 * cut]
    whole_ones = [batch.position for batch, stop in zip(placed, ends, strict=True) if stop <= len(data)]
    assert at.tolist() == whole_ones
    assert end == (ends[len(whole_ones) - 1] if whole_ones else 0)
    assert (data == before).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(SIZES, st.data())
def test_a_batch_with_any_error_is_never_believed(tmp_path: Path, sizes: list[int], draw: st.DataObject) -> None:
    data, placed = stored(tmp_path, sizes)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data) - 1))
        junk = draw.draw(st.binary(min_size=1, max_size=9))
        data[at : at + len(junk)] ^= np.frombuffer(junk, np.uint8)[: len(data) - at]
    good, before = np.fromfile(tmp_path / "s.rlog", np.uint8), data.copy()
    found, end = small_batches(data)
    assert (data[:end] == good[:end]).all()
    assert (data == before).all()
    assert found.tolist() == [batch.position for batch in placed][: len(found)]


def test_a_message_that_holds_the_magic_is_read_like_others(tmp_path: Path) -> None:
    inner = encode(7, [Message("/topic/x", b"inner")])
    messages = [[Message("/topic/a", body)] for body in (b"1", MAGIC * 9, inner, b"x" * 7 + inner, b"5") * 3]
    placed = write_segment(tmp_path / "s.rlog", messages)
    rows = read_rows(whole(tmp_path / "s.rlog", placed), columns=["body"])
    assert [row["body"] for row in rows] == [batch[0].body for batch in messages]


def test_large_batches_are_left_to_be_looked_at_one_by_one(tmp_path: Path) -> None:
    write_segment(tmp_path / "s.rlog", [[Message("/topic/a", b"x" * 9_000)], [Message("/topic/a", b"y" * 9_000)]])
    assert small_batches(np.fromfile(tmp_path / "s.rlog", np.uint8))[1] == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(SIZES, st.data())
def test_losses_are_the_same_as_when_each_batch_is_looked_at(
    tmp_path: Path, sizes: list[int], draw: st.DataObject
) -> None:
    data, placed = stored(tmp_path, sizes)
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    wanted = whole(tmp_path / "s.rlog", placed)
    data.tofile(tmp_path / "s.rlog")
    found: list[tuple[list[object], list[Loss]]] = []
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            losses: list[Loss] = []
            try:
                rows: list[object] = [*read_rows(wanted, losses=losses)]
            except UnknownVersion as error:  # two bits of the magic make another version of it
                rows = [str(error)]
            found.append((rows, losses))
            patch.setattr(scan, "small_batches", lambda data: (np.empty(0, np.int64), 0))
    assert found[0] == found[1]
