"""The bytes of the cursors."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from radiator.storage import cursor_records as journal
from radiator.storage.cursor_records import CursorState

SEEK_2_TO_100 = b"\x05\x02\0\0\0\x64" + bytes(7)

ENTRIES = [
    journal.block([journal.create(1, 0, 5, "queue:ä", "p"), journal.create(2, 1, 0, "b", "q")]),
    journal.block([journal.acked(1, [(5, 9), (20, 30)]), journal.counts(2, {3: 2, 4: 7})]),
    journal.block([SEEK_2_TO_100, journal.acked(2, [(101, 102)])]),
    journal.block([journal.delete(1)]),
]


def facts(states: dict[int, CursorState]) -> dict[int, tuple[object, ...]]:
    return {
        number: (each.name, each.partition, each.slot, each.floor, each.changes, each.counts)
        for number, each in states.items()
    }


def replayed(data: bytes) -> tuple[tuple[int, int], dict[int, tuple[object, ...]]]:
    states: dict[int, CursorState] = {}
    return journal.replay(data, states), facts(states)


def test_entries_come_back() -> None:
    data = b"".join(ENTRIES[:2])
    assert replayed(data) == (
        (len(data), 0),
        {1: ("queue:ä", "p", 0, 5, [(5, 9), (20, 30)], {}), 2: ("b", "q", 1, 0, [], {3: 2, 4: 7})},
    )
    data = b"".join(ENTRIES)
    assert replayed(data)[1] == {2: ("b", "q", 1, 100, [(101, 102)], {})}


def test_a_torn_tail_is_not_applied_wherever_it_is_cut() -> None:
    first = b"".join(ENTRIES[:2])
    for cut in range(1, len(ENTRIES[2]) - 7):
        assert replayed(first + ENTRIES[2][:cut]) == replayed(first)
    assert replayed(first + bytes(500)) == replayed(first)


def test_entries_behind_damage_still_hold() -> None:
    for place in range(len(ENTRIES[1])):
        damaged = bytearray(ENTRIES[1])
        damaged[place] ^= 1
        (end, lost), states = replayed(ENTRIES[0] + bytes(damaged) + ENTRIES[2] + ENTRIES[3])
        assert 2 in states and states[2][3] == 100 and 1 not in states
        assert end == sum(map(len, ENTRIES)) and lost in (0, len(ENTRIES[1]))  # padding may be hit


def test_a_cursor_that_is_recorded_again_keeps_its_settled_offsets() -> None:
    """Each transaction over several files names its cursors."""
    again = journal.block([journal.create(1, 0, 5, "queue:ä", "p"), journal.acked(1, [(40, 41)])])
    before = replayed(ENTRIES[0] + ENTRIES[1])[1]
    state = replayed(ENTRIES[0] + ENTRIES[1] + again)[1][1]
    assert state == (*before[1][:4], [(5, 9), (20, 30), (40, 41)], before[1][5])
    anew = journal.block([journal.delete(1), journal.create(1, 0, 5, "queue:ä", "p")])
    assert replayed(ENTRIES[0] + ENTRIES[1] + anew)[1][1][4] == []


def test_applying_twice_does_no_harm() -> None:
    once, twice = replayed(b"".join(ENTRIES))[1], replayed(b"".join(ENTRIES * 2))[1]
    assert {number: state[3] for number, state in once.items()} == {number: state[3] for number, state in twice.items()}


def test_a_snapshot_holds_or_is_none() -> None:
    data = journal.snapshot(7, [journal.create(1, 0, 5, "n", "p"), journal.acked(1, [(7, 8)])])
    states: dict[int, CursorState] = {}
    assert journal.load_snapshot(data, states) == (7, 0, 0)
    assert facts(states) == {1: ("n", "p", 0, 5, [(7, 8)], {})}
    assert journal.load_snapshot(None, {}) is None
    assert journal.load_snapshot(bytes(len(data)), {}) is None
    assert journal.load_snapshot(data[:-8], {}) is None


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_garbage_raises_nothing(junk: bytes, seed: int) -> None:
    random = Random(seed)
    data = bytearray(b"".join(ENTRIES))
    for _ in range(5):
        data[random.randrange(len(data))] = random.randrange(256)
    replayed(junk + bytes(data))
    replayed(journal.block([junk]))
    journal.load_snapshot(journal.snapshot(1, [junk]), {})
