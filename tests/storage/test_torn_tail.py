"""A log that was cut anywhere in its last 64 KiB starts with exactly the whole batches before the cut, and goes on."""

from __future__ import annotations

import pytest

from radiator.storage import layout
from radiator.storage.recovery import RecoveryNote
from tests.storage.damaging import HEAD, INDEX, NAME, NAMES, SEGMENT, Built, whole_of
from tests.storage.driving import ALWAYS, commit, opened, put
from tests.tiers import sampled

TAIL_BYTES = 64 * 1024
SIZES = [0, 10, 300, 900, 2_500]
COUNTS = [1, 1, 1, 2, 5]


@pytest.fixture(scope="module")
def built() -> Built:
    made = Built(100 * 1024, SIZES, COUNTS)
    assert len(made.files[SEGMENT]) == made.ends[-1][0] > TAIL_BYTES + 32 * 1024
    assert len([end for end, _ in made.ends if end > made.ends[-1][0] - TAIL_BYTES]) > 20
    return made


def before(built: Built, cut: int) -> tuple[int, int]:
    """(position, next offset) behind the last batch that ends at or before the cut."""
    return max((end for end in built.ends if end[0] <= cut), default=(0, 0))


def reported(notes: list[RecoveryNote]) -> list[str]:
    return [note.kind for note in notes]


@pytest.mark.parametrize("filled", [False, True], ids=["cut", "zeros"])
@pytest.mark.parametrize("step", sampled([97, 1], 1))
def test_the_last_64_kib_cut_at_every_byte_leave_the_whole_batches_before_the_cut(
    built: Built, step: int, filled: bool
) -> None:
    """65,536 starts, of which ``make test`` makes every 97th. Behind the cut is nothing, or (a page that was never
    written) zeros to the end of its page: then a cut is looked for at every byte that is no zero. The head is the one
    of before: nothing of the tail was committed.

    Starts that leave the same bytes in all files are the same start from there on, so how the log goes on is looked at
    once for each number of whole batches.
    """
    whole = built.files[SEGMENT]
    first = len(whole) - TAIL_BYTES
    fs = built.fs(quick=True)
    node, head = fs.nodes[SEGMENT].cache, fs.nodes[HEAD].cache
    old_head = layout.encode_head(0, *before(built, first))
    kept: dict[tuple[int, int], dict[str, bytes]] = {}
    for cut in range(len(whole) - 1, first - 1, -step):
        if filled and not whole[cut]:
            continue
        position, next_offset = before(built, cut)
        del node[position:]
        node += whole[position:cut]
        if filled:
            node += bytes(-cut % 4096)
        head[: len(old_head)] = old_head
        fs.nodes[INDEX].cache[:] = built.files[INDEX]
        log, found, notes = built.recover(fs)
        assert (log.position, log.next_offset, found.next_offset) == (position, next_offset, next_offset)
        assert len(node) == position and whole.startswith(node)
        assert reported(notes) == (["torn"] if whole[position:cut].strip(b"\0") else []), cut
        assert bytes(head[:40]) == layout.encode_head(0, position, next_offset)
        index = bytes(fs.nodes[INDEX].cache)
        assert built.files[INDEX].startswith(index)
        kept[position, next_offset] = {SEGMENT: bytes(node), INDEX: index, HEAD: bytes(head)}
    for (position, next_offset), files in kept.items():
        fs = built.fs()
        for path, data in files.items():
            fs.nodes[path].cache[:] = data
        store, notes = opened(fs)
        assert not notes
        expected = {offset: body for offset, body in built.bodies.items() if offset < next_offset}
        assert whole_of(store) == expected
        assert put(store.partition(NAME, ALWAYS), b"goes on") == [next_offset], position
        commit(store)
        fs.kill()
        store, notes = opened(fs)
        assert not notes and whole_of(store) == {**expected, next_offset: b"goes on"}
        store.close()


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_what_the_head_covers_and_is_cut_off_is_reported_with_its_offsets_and_not_given_again(
    built: Built, step: int
) -> None:
    whole = built.files[SEGMENT]
    end = built.ends[-1][1]
    fs = built.fs(quick=True)
    node = fs.nodes[SEGMENT].cache
    for cut in range(len(whole) - 1, len(whole) - TAIL_BYTES - 1, -step):
        position, next_offset = before(built, cut)
        del node[position:]
        node += whole[position:cut]
        fs.nodes[HEAD].cache[:] = built.files[HEAD]
        fs.nodes[INDEX].cache[:] = built.files[INDEX]
        log, found, notes = built.recover(fs)
        assert (log.position, found.next_offset) == (position, end)
        assert reported(notes) == (["torn", "damage"] if whole[position:cut].strip(b"\0") else ["damage"])
        assert (notes[-1].first_offset, notes[-1].last_offset) == (next_offset, end - 1)


def test_an_index_cut_at_every_byte_costs_time_and_nothing_else() -> None:
    built = Built(400 * 1024, [3_000], [1, 7])
    whole, index = built.files[SEGMENT], built.files[INDEX]
    assert len(index) > 5 * 32
    fs = built.fs(quick=True)
    for cut in range(len(index)):
        fs.nodes[INDEX].cache[:] = index[:cut]
        fs.nodes[HEAD].cache[:] = built.files[HEAD]
        log, found, notes = built.recover(fs)
        assert not notes and bytes(fs.nodes[SEGMENT].cache) == whole
        assert found.next_offset == len(built.bodies) and found.destinations == {f"/topic/{n}" for n in range(4)}
        left = bytes(fs.nodes[INDEX].cache)
        assert index.startswith(left) and len(left) + 32 * len(log.entries) + 32 * (not left) == len(index)


def test_names_cut_at_every_byte_are_completed_from_the_log() -> None:
    built = Built(2_000, [10], [1, 3])
    fs = built.fs(quick=True)
    for cut in range(len(built.files[NAMES])):
        fs.nodes[NAMES].cache[:] = built.files[NAMES][:cut]
        _, found, notes = built.recover(fs)
        assert not notes and found.destinations == {f"/topic/{n}" for n in range(4)}
        _, found, notes = built.recover(fs)
        assert not notes and found.destinations == {f"/topic/{n}" for n in range(4)}
