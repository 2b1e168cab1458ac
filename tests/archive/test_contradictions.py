"""Batches that contradict themselves under a crc that holds: to the archiver they are damage like other damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from radiator.archive.manifest import Lost, load
from radiator.archive.opening import open_files
from radiator.archive.run import Options, Outcome, run
from radiator.archive.verify import verify
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER
from tests.archive.stores import archive_rows, fill, log_rows, sealed_ends
from tests.columns.segments import contradict


def lose(segment: Path, place: int) -> Lost:
    batch = contradict(segment, place)
    return Lost("flights", batch.base_offset, batch.base_offset + batch.records, "damaged")


def go(root: Path, options: Options = EAGER) -> Outcome:
    return run(str(root / "data"), open_files(root / "archive"), options)


@pytest.fixture
def harmed(tmp_path: Path) -> tuple[Path, list[Lost], set[tuple[str, int]]]:
    """A store, what is lost of it (one batch in the middle, and the last that is sealed), and what an archive is to
    have of it."""
    fill(tmp_path / "data").close()
    end = sealed_ends(tmp_path / "data")["flights"]
    whole = {key for key in log_rows(tmp_path / "data") if key[1] < end}
    segments = sorted(Path(partition_path(str(tmp_path / "data"), "flights")).glob("*.rlog"))
    lost = [lose(segments[1], 2), lose(segments[-2], -1)]
    return tmp_path, lost, {key for key in whole if not any(each.first <= key[1] < each.next_offset for each in lost)}


@pytest.mark.parametrize("unit_bytes", [1, EAGER.unit_bytes])
def test_a_batch_that_contradicts_itself_is_left_out_and_recorded_where_the_user_says_so(
    harmed: tuple[Path, list[Lost], set[tuple[str, int]]], unit_bytes: int
) -> None:
    root, lost, expected = harmed
    options = replace(EAGER, skip_damaged=True, unit_bytes=unit_bytes)
    out = go(root, options)
    assert out.damaged and not out.problems
    files = open_files(root / "archive")
    state = load(files)
    assert sorted(state.lost) == lost
    assert archive_rows(root / "archive").keys() == expected
    assert list(verify(files, state, records=True)) == []
    again = go(root, options)
    assert not again.problems and not again.records


def test_a_batch_that_contradicts_itself_ends_the_archive_before_it_else(
    harmed: tuple[Path, list[Lost], set[tuple[str, int]]],
) -> None:
    root, lost, _ = harmed
    problem = go(root, replace(EAGER, unit_bytes=1)).problems["flights"]
    assert f"offsets {lost[0].first} to {lost[0].next_offset - 1}" in problem
    assert "at byte" in problem and "--skip-damaged" in problem
    assert load(open_files(root / "archive")).ends["flights"] <= lost[0].first
