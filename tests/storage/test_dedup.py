"""What a partition remembers of ids: against a model, within its memory, at its edges."""

from __future__ import annotations

import random
import sys
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.storage.dedup import Dedup, Generation, Ids

SALT = 0x9E3779B97F4A7C15
WINDOW_NS = 1_000


def ident(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=16).digest()


def dedup(window_ns: int = WINDOW_NS, count: int = 1_000_000) -> Dedup:
    return Dedup(window_ns, count, SALT)


def run_of(identities: list[bytes], apart: int = 1) -> Ids:
    ids = Ids()
    for number, identity in enumerate(identities):
        ids.add(identity, number * apart)
    return ids


def memory(table: Dedup) -> int:
    return sum(sys.getsizeof(each) for part in (table.current, table.previous) for each in _values(part))


def _values(part: Generation) -> list[object]:
    """Everything that it is made of."""
    return [getattr(part, name) for name in Generation.__slots__]


# --- against a model --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60)),
        st.tuples(st.just("extend"), st.integers(0, 60)),
        st.tuples(st.just("index"), st.integers(1, 9)),
        st.tuples(st.just("forget"), st.integers(1, 30)),
        st.tuples(st.just("later"), st.integers(1, 700)),
    ),
    max_size=300,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(5, 40))
def test_it_knows_what_a_dict_with_times_knows(steps: list[tuple[str, int]], count: int) -> None:
    table = dedup(count=count)
    model: dict[int, tuple[int, int]] = {}  # the latest: (offset, time)
    added: list[tuple[int, int, int]] = []  # number, offset, time
    crowd: dict[tuple[int, int, int], int] = {}  # the most that have come behind it, also if they were taken back
    now = offset = 0
    for step, value in steps:
        if step == "later":
            now += value
        elif step == "forget":
            offset = max(0, offset - value)
            table.forget(offset)
            added = [each for each in added if each[1] < offset]
            model = {number: (at, when) for number, at, when in added}
        elif step == "index":
            table.index(value)
        elif step == "extend":
            new = [each for each in range(value, value + 9) if table.find(ident(each), now) is None]
            table.extend(run_of([ident(each) for each in new], 2), offset, now)
            assert list(table.since(table.added - len(new)))[-len(new) or 99 :] == [ident(each) for each in new]
            for each in new:
                added.append((each, offset, now))
                model[each] = (offset, now)
                offset += 2
        elif table.find(ident(value), now) is None:
            table.add(ident(value), offset, now)
            added.append((value, offset, now))
            model[value] = (offset, now)
            offset += 1
        for number, (at, when) in model.items():
            found = table.find(ident(number), now)
            if now - when >= WINDOW_NS:
                assert found is None
                continue
            is_indexing = sum(1 for _, other, _ in added if other > at)
            crowd[number, at, when] = max(is_indexing, crowd.get((number, at, when), 0))
            assert found in (at, None)
            assert found == at or crowd[number, at, when] >= count
        assert len(table) <= 2 * (count + 9)  # the last run of a generation may be longer than what it has room for


def test_ten_thousand_ids_are_found_and_no_others() -> None:
    table = dedup()
    for number in range(10_000):
        table.add(ident(number), number * 3, 0)
        assert table.find(ident(number), 0) == number * 3
    assert [table.find(ident(number), 0) for number in range(10_000)] == [3 * number for number in range(10_000)]
    assert not any(table.find(ident(number), 0) is not None for number in range(10_000, 30_000))


def test_what_is_taken_back_while_the_index_grows_is_gone_and_the_rest_is_there() -> None:
    chance = random.Random(1)
    for _ in range(50):
        part, kept = Generation(SALT), chance.randrange(2_000)
        for number in range(chance.randrange(kept, 3_000)):
            part.add(number, 7, number, 0)
        part.forget(kept)
        for number in range(kept, kept + 500):
            part.add(number + 10_000, 7, number, 0)
        assert all(part.find(number, 7) == number for number in range(min(kept, len(part))))
        assert all(part.find(number, 7) == -1 for number in range(kept, 3_000))
        assert all(part.find(number + 10_000, 7) == number for number in range(kept, kept + 500))


def test_a_run_is_found_at_once_and_its_index_is_made_a_few_entries_at_a_time() -> None:
    for before in (0, 100, 11_000):  # with an index that grows, too
        table = dedup()
        for number in range(before):
            table.add(ident(number), number, 0)
        table.extend(run_of([ident(number) for number in range(before, before + 20_000)]), before, 0)
        for number in range(before + 20_000, before + 20_100):
            table.add(ident(number), number, 0)
        assert all(table.find(ident(number), 0) == number for number in range(before + 20_100))
        steps = 0
        while table.index(64):
            steps += 1
            assert table.find(ident(steps * 7), 0) == steps * 7
        assert 300 <= steps <= (before + 20_100) // 64 * 2
        assert not table.current.is_indexing
        assert all(table.find(ident(number), 0) == number for number in range(before + 20_100))
        assert table.find(ident(before + 20_100), 0) is None


def test_a_lost_message_is_as_if_it_had_never_come() -> None:
    table = dedup()
    for number in range(100):
        table.add(ident(number), number, 0)
    table.lose(10, 19)
    known = [number for number in range(100) if table.find(ident(number), 0) is not None]
    assert known == [*range(10), *range(20, 100)]
    table.add(ident(15), 100, 0)
    assert table.find(ident(15), 0) == 100


def test_ids_that_differ_in_one_half_are_two() -> None:
    part = Generation(SALT)
    part.add(1, 1, 0, 0)
    part.add(1, 2, 1, 0)
    part.add(2, 1, 2, 0)
    assert [part.find(1, 1), part.find(1, 2), part.find(2, 1), part.find(2, 2)] == [0, 1, 2, -1]


def test_a_generation_that_is_loaded_is_as_one_that_was_filled() -> None:
    filled, loaded = Generation(SALT), Generation(SALT)
    for number in range(5_000):
        filled.add(number, number, number, number)
    loaded.load((filled.first[:], filled.second[:], filled.offsets[:], filled.receive_ns[:]))
    for number in range(5_000, 9_000):
        loaded.add(number, number, number, number)
    assert all(loaded.find(number, number) == number for number in range(9_000))
    assert loaded.find(9_000, 9_000) == -1


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_no_id_takes_more_than_64_bytes_at_any_load() -> None:
    table, worst = dedup(), 0.0
    for number in range(100_000):
        table.add(ident(number), number, 0)
        if number >= 256:  # below, an empty table weighs more than what is in it
            worst = max(worst, memory(table) / (number + 1))
    assert 32 < worst <= 64


def test_a_growing_index_makes_no_insertion_slow() -> None:
    """Steps, not time: an insertion moves a few entries of the old index, never all of them."""

    class Counting(Generation):
        __slots__ = ("puts",)

        def _put(self, first: int, entry: int) -> None:
            self.puts += 1
            super()._put(first, entry)

    part, most = Counting(SALT), 0
    for number in range(50_000):
        part.puts = 0
        part.add(number * 0x9E3779B97F4A7C15 % 2**64, number, number, 0)
        most = max(most, part.puts)
    assert most == 5


def test_ids_beyond_the_count_are_forgotten_at_twice_that_at_the_latest() -> None:
    table = dedup(count=100)
    for number in range(1_000):
        table.add(ident(number), number, 0)
        assert table.find(ident(max(0, number - 100)), 0) == max(0, number - 100)
        if number >= 200:
            assert table.find(ident(number - 200), 0) is None
    assert len(table) <= 200


@pytest.mark.parametrize(
    "age_ns, known", [(0, True), (WINDOW_NS - 1, True), (WINDOW_NS, False), (5 * WINDOW_NS, False)]
)
def test_an_id_is_known_for_just_the_window(age_ns: int, known: bool) -> None:
    table = dedup()
    table.add(ident(1), 5, 10_000)
    table.add(ident(2), 6, 10_000 + WINDOW_NS // 2)
    assert table.find(ident(1), 10_000 + age_ns) == (5 if known else None)


def test_an_id_that_came_again_after_the_window_counts_from_the_second_time() -> None:
    table = dedup()
    table.add(ident(1), 5, 0)
    table.add(ident(1), 9, WINDOW_NS)
    table.add(ident(1), 12, 2 * WINDOW_NS)
    assert table.find(ident(1), 2 * WINDOW_NS) == 12
    table.forget(12)
    assert table.find(ident(1), WINDOW_NS) == 9


def test_a_clock_that_steps_back_forgets_nothing() -> None:
    table = dedup()
    table.add(ident(1), 5, 10_000)
    assert table.find(ident(1), 0) == 5


@pytest.mark.parametrize("before", [0, 2_000])  # with an index that has to grow, and one that has room
@pytest.mark.parametrize("kept", [0, 10, 2_000, 2_010])
@pytest.mark.parametrize("steps", [0, 1, 20, 50])
def test_a_run_that_is_taken_back_before_its_index_is_made_leaves_nothing_to_do(
    before: int, kept: int, steps: int
) -> None:
    table = dedup()
    for number in range(before):
        table.add(ident(number), number, 0)
    table.extend(run_of([ident(number) for number in range(before, 2_600)]), before, 0)
    for _ in range(steps):
        table.index(32)
    table.forget(kept)
    table.extend(run_of([ident(number) for number in range(6_000, 6_100)]), kept, 0)
    while table.index(32):
        steps += 1
        assert steps < 1_000
    assert all(table.find(ident(number), 0) == number for number in range(kept))
    assert all(table.find(ident(number), 0) is None for number in range(kept, 2_600))
    assert all(table.find(ident(6_000 + number), 0) == kept + number for number in range(100))
