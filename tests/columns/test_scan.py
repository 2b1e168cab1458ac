"""Damage: what is yielded and what is reported lost together are exactly the range, whatever happened to the bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radiator.columns.scan import Loss, SegmentRange
from radiator.storage import layout
from radiator.storage.format import encode_batch
from radiator.storage.header import MAGIC, UnknownVersion
from tests.columns.segments import Placed, read_rows, whole, write_segment
from tests.formats.newer import flagged, newer
from tests.spark.stores import Message, numbered

pytestmark = pytest.mark.spark


def segment(tmp_path: Path) -> tuple[Path, list[Placed]]:
    path = tmp_path / "s.rlog"
    sizes = [3, 1, 5, 2, 1, 1, 8, 4]
    return path, write_segment(path, [numbered("/topic/a", n, sum(sizes[:i])) for i, n in enumerate(sizes)])


def offsets_and_losses(wanted: SegmentRange) -> tuple[list[int], list[Loss]]:
    losses: list[Loss] = []
    rows = read_rows(wanted, columns=["offset", "body"], losses=losses)
    assert all(row["body"] == b"body %d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows], losses


def lost(losses: list[Loss]) -> list[int]:
    return [offset for loss in losses for offset in range(loss.first, loss.following)]


def test_a_whole_segment_has_no_losses(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    assert offsets_and_losses(whole(path, placed)) == (list(range(25)), [])


def test_one_damaged_batch_is_one_loss_with_its_offsets_and_place(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[placed[3].position + 100] ^= 1
    path.write_bytes(data)
    offsets, losses = offsets_and_losses(whole(path, placed))
    assert offsets == [*range(9), *range(11, 25)]
    (loss,) = losses
    assert (loss.first, loss.following, loss.position) == (9, 11, placed[3].position)
    assert "offsets 9 to 10 (2 records) cannot be read: batch at offset 9: crc expected" in str(loss)
    assert str(path) in str(loss)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_any_damage_loses_whole_batches_only_and_all_of_it_is_reported(tmp_path: Path, data: st.DataObject) -> None:
    path, placed = segment(tmp_path)
    wanted, good = whole(path, placed), path.read_bytes()
    damaged = bytearray(good)
    start = data.draw(st.integers(0, len(good) - 1))
    junk = data.draw(st.one_of(st.binary(min_size=1, max_size=300), st.just(bytes(200)), st.just(MAGIC * 20)))
    damaged[start : start + len(junk)] = junk
    del damaged[len(good) :]
    path.write_bytes(damaged)
    touched = [
        batch
        for batch, end in zip(placed, [*[b.position for b in placed[1:]], len(good)], strict=True)
        if damaged[batch.position : end] != good[batch.position : end]
    ]
    offsets, losses = offsets_and_losses(wanted)
    gone = [offset for batch in touched for offset in range(batch.base_offset, batch.next_offset)]
    assert lost(losses) == gone
    assert offsets == [offset for offset in range(25) if offset not in gone]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 3000))
def test_a_file_that_became_shorter(tmp_path: Path, length: int) -> None:
    path, placed = segment(tmp_path)
    wanted = whole(path, placed)
    path.write_bytes(path.read_bytes()[:length])
    offsets, losses = offsets_and_losses(wanted)
    assert offsets + lost(losses) == list(range(25))


def test_zeros_behind_the_last_record_are_no_damage(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert offsets_and_losses(whole(path, placed)) == (list(range(25)), [])


def test_batches_in_the_wrong_order_are_not_believed(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = path.read_bytes()
    a, b, c = (placed[i].position for i in (2, 3, 4))
    path.write_bytes(data[:a] + data[b:c] + data[a:b] + data[c:])  # batch 3 stands before batch 2
    offsets, losses = offsets_and_losses(whole(path, placed))
    assert offsets + lost(losses) != []
    assert sorted(offsets + lost(losses)) == list(range(25))
    assert len(set(offsets)) == len(offsets)


def test_a_batch_at_the_place_of_another_costs_only_that_one(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    messages = [Message("/topic/a", b"body %d" % number, b"a:b") for number in range(10)]
    placed = write_segment(path, [[each] for each in messages])
    good, size = path.read_bytes(), placed[1].position
    for place in range(10):
        for other in set(range(10)) - {place}:
            wrong = good[other * size :][:size]
            path.write_bytes(good[: place * size] + wrong + good[(place + 1) * size :])
            offsets, losses = offsets_and_losses(whole(path, placed))
            assert lost(losses) == [place]
            assert offsets == [each for each in range(10) if each != place]


def test_damage_in_front_of_what_a_failed_sync_has_left_ends_where_the_range_does(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[placed[3].position + 100] ^= 1
    path.write_bytes(data)
    ends_before = replace(whole(path, placed), next_offset=placed[5].base_offset)
    offsets, losses = offsets_and_losses(ends_before)
    assert (offsets, lost(losses)) == ([*range(9), 11], [9, 10])
    data[placed[4].position + 100] ^= 1
    path.write_bytes(data)
    offsets, losses = offsets_and_losses(ends_before)
    assert (offsets, lost(losses)) == ([*range(9)], [9, 10, 11])


def test_what_a_damaged_message_holds_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s.rlog"
    times = [message.receive_ns for message in numbered("/topic/a", 2)]
    forged = b"".join(
        piece
        for flags in (0, 1 << 12)
        for piece in encode_batch(1, times, None, None, [0] * 2, ["/topic/b"], [b""] * 2, [b"forged"] * 2, flags)
    )
    body = b"".join(forged.rjust(len(forged) + shift).ljust(1_000) for shift in range(8))
    first, hostile, last = numbered("/topic/a", 3)
    placed = write_segment(path, [[first], [hostile._replace(body=body)], [last]])
    data = bytearray(path.read_bytes())
    data[placed[2].position - 10] ^= 1
    path.write_bytes(data)
    losses: list[Loss] = []
    rows = read_rows(whole(path, placed), columns=["offset", "destination"], losses=losses)
    assert [(row["offset"], row["destination"]) for row in rows] == [(0, "/topic/a"), (2, "/topic/a")]
    assert lost(losses) == [1]


def test_a_missing_batch_is_a_loss(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: placed[2].position] + data[placed[3].position :])
    _, losses = offsets_and_losses(whole(path, placed))
    assert lost(losses) == list(range(4, 9))
    assert "expected a batch with offset 4, got offset 9" in losses[0].reason


@pytest.mark.parametrize(
    ("others", "removed"), [((), False), ((90,), True), ((90, 180), True), ((0, 180), False), ((0,), False)]
)
def test_a_segment_that_is_gone_was_removed_if_only_newer_ones_are_left(
    tmp_path: Path, others: tuple[int, ...], removed: bool
) -> None:
    wanted = SegmentRange("p", layout.segment_path(str(tmp_path), 45), 0, 4096, 45, 90)
    for base in others:
        Path(layout.segment_path(str(tmp_path), base)).touch()
    offsets, (loss,) = offsets_and_losses(wanted)
    assert offsets == [] and lost([loss]) == list(range(45, 90))
    assert loss.removed == removed
    assert ("the broker removed it after this read was planned" in str(loss)) == removed


def test_a_newer_format_is_refused_whatever_the_options_say(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = bytearray(path.read_bytes())
    start, end = placed[2].position, placed[3].position
    data[start:end] = newer(bytes(data[start:end]), 9)
    path.write_bytes(data)
    with pytest.raises(UnknownVersion, match="format version 9"):
        offsets_and_losses(whole(path, placed))


def test_a_part_of_a_newer_format_is_refused_and_is_no_damage(tmp_path: Path) -> None:
    path, placed = segment(tmp_path)
    data = path.read_bytes()
    start, end = placed[2].position, placed[3].position
    path.write_bytes(data[:start] + flagged(data[start:end]) + data[end:])
    with pytest.raises(UnknownVersion, match="flags .* of a newer radiator"):
        offsets_and_losses(whole(path, placed))
