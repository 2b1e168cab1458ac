"""Recent batches in memory: bounded, oldest first out, small ones merged for readers that lag."""

from __future__ import annotations

from array import array

from radiator.storage.batch import RecordBatch
from radiator.storage.partition import BatchBuilder
from radiator.storage.tail import MERGE_BATCHES_MIN, MERGE_RECORDS_MAX, Budget, ColdCache, Tail, find_cold
from tests.storage.driving import add_record


def batch(base: int, count: int = 1, size: int = 10) -> RecordBatch:
    builder = BatchBuilder(base)
    for at in range(count):
        add_record(builder, "/q", b"", b"%d" % (base + at) + b"." * size, base + at, None, None)
    return builder.finish()


def test_find_gives_the_batch_that_holds_the_offset() -> None:
    tail = Tail(Budget(1 << 30))
    assert tail.find(0) is None and tail.oldest() is None
    first, second = batch(5, 100), batch(105, 100)
    tail.add(first)
    tail.add(second)
    assert [tail.find(offset) for offset in (4, 5, 104, 105, 204, 205)] == [None, first, first, second, second, None]
    assert tail.oldest() is first
    assert tail.newest_first() == [second, first]


def test_single_records_come_merged_to_a_reader_that_lags_and_stay_merged() -> None:
    tail = Tail(Budget(1 << 30))
    for base in range(1_000):
        tail.add(batch(base))
    merged = tail.find(0)
    assert merged is not None and len(merged) == MERGE_RECORDS_MAX
    assert merged.bodies[7].startswith(b"7.")
    assert tail.find(100) is merged
    assert tail.find(999) is not None and len(tail.find(999) or ()) == 1, "the live end is not touched"
    close = tail.find(1_000 - MERGE_BATCHES_MIN + 1)
    assert close is not None and len(close) == 1, "a few are not worth a copy"
    seen: list[bytes] = []
    offset = 0
    while (found := tail.find(offset)) is not None:
        seen += found.bodies[found.index_at(offset) :]
        offset = found.next_offset
    assert [int(body.split(b".")[0]) for body in seen] == list(range(1_000))


def sparse(base: int, *offsets: int) -> RecordBatch:
    n = len(offsets)
    return RecordBatch(array("Q", offsets), [base] * n, None, None, [0] * n, ["/q"], [b""] * n, [b"x"] * n, n, base)


def test_sparse_batches_are_found_by_what_they_cover_and_merged_like_others() -> None:
    tail, shelf = Tail(Budget(1 << 30)), [sparse(5, 9, 12), sparse(13, 20)]
    for each in [*shelf, batch(21), batch(22), sparse(23, 25), batch(26)]:
        tail.add(each)
    merged = tail.find(6)
    assert merged is not None and list(merged.offsets) == [9, 12, 20, 21, 22, 25, 26] and merged.base_offset == 5
    assert all(tail.find(offset) is merged for offset in range(5, 26))
    assert [find_cold(shelf, offset) for offset in (4, 5, 9, 10, 13, 20, 21)] == [
        None, shelf[0], shelf[0], shelf[0], shelf[1], shelf[1], None,
    ]  # fmt: skip
    tail.drop_below(27)
    assert tail.find(26) is None


def test_one_budget_holds_for_all_tails_and_the_oldest_goes_first() -> None:
    budget = Budget(20_000)
    tails = [Tail(budget) for _ in range(3)]
    for base in range(300):
        tails[base % 3].add(batch(base // 3 * 1, 1, 500))
        assert budget.bytes <= 20_000
        if base % 7 == 0:
            oldest = tails[0].oldest()
            tails[0].find(0 if oldest is None else oldest.base_offset)
    kept = [each for tail in tails for each in tail.newest_first()]
    assert budget.bytes == sum(each.cost_bytes for each in kept)
    assert all(tail.find(99) is not None for tail in tails)
    assert all(tail.find(10) is None for tail in tails)
    tails[0].drop_below(1_000)
    assert tails[0].oldest() is None and tails[0].find(99) is None
    assert budget.bytes == sum(each.cost_bytes for tail in tails for each in tail.newest_first())


def test_a_batch_that_is_over_the_budget_is_not_kept() -> None:
    budget = Budget(1_000)
    tail = Tail(budget)
    tail.add(batch(0, 1, 5_000))
    assert budget.bytes == 0 and tail.find(0) is None
    tail.add(batch(1, 1, 5_000))
    assert budget.bytes == 0


def test_cold_batches_have_a_budget_as_well() -> None:
    cache = ColdCache(10_000)
    shelf: list[RecordBatch] = []
    other: list[RecordBatch] = []
    for base in range(0, 100, 10):
        cache.add(shelf if base % 20 else other, batch(base, 10, 100))
        assert cache.bytes <= 10_000
    assert find_cold(shelf, 95) is not None
    assert find_cold(shelf, 15) is None and find_cold(other, 5) is None
    assert cache.bytes == sum(each.cost_bytes for each in [*shelf, *other])


def test_what_retention_has_dropped_is_not_remembered() -> None:
    budget = Budget(1 << 30)
    quiet, busy, empty = Tail(budget), Tail(budget), Tail(budget)
    quiet.add(batch(0))  # the oldest of all, and it stays
    for base in range(20_000):
        busy.add(batch(base))
        busy.drop_below(base - 5)
        empty.add(batch(base))
        empty.drop_below(base + 1)
    assert len(budget.order) < 5_000
    budget.bytes_max = 1
    budget.evict()
    assert budget.bytes == 0 and quiet.oldest() is None and busy.oldest() is None


def test_a_tail_knows_its_own_bytes() -> None:
    budget = Budget(1 << 30)
    tails = [Tail(budget), Tail(budget)]
    for base in range(200):
        tails[base % 2].add(batch(base // 2, 1, 50))
    tails[0].find(0)
    tails[1].drop_below(40)
    for tail in tails:
        assert tail.bytes == sum(each.cost_bytes for each in tail.newest_first())
    assert budget.bytes == sum(tail.bytes for tail in tails)


def test_records_below_an_offset_are_dropped_also_from_the_batch_that_contains_it() -> None:
    budget = Budget(1 << 30)
    tail = Tail(budget)
    for base in range(0, 90, 10):
        tail.add(batch(base, 10))
    assert len(tail.find(20) or ()) == 70
    tail.cut_below(33)
    assert tail.find(32) is None and [each.base_offset for each in tail.newest_first()][-1] == 33
    found = tail.find(33)
    assert found is not None and list(found.offsets) == list(range(33, 90))
    assert [int(body.split(b".")[0]) for body in found.bodies] == list(range(33, 90))
    assert budget.bytes == tail.bytes == found.cost_bytes
    tail.cut_below(90)
    assert tail.oldest() is None and budget.bytes == 0
    tail.add(batch(90))
    assert tail.find(90) is not None


def test_a_cut_in_a_sparse_batch_leaves_what_is_behind() -> None:
    tail = Tail(Budget(1 << 30))
    tail.add(sparse(5, 9, 12, 20))
    tail.cut_below(10)
    found = tail.find(11)
    assert found is not None and list(found.offsets) == [12, 20] and found.base_offset == 10
    assert tail.find(9) is None


def test_the_cold_cache_forgets_a_stretch_of_one_shelf() -> None:
    one: list[RecordBatch] = []
    other: list[RecordBatch] = []
    cache, shelves = ColdCache(1 << 30), (one, other)
    for base in (0, 10, 20, 30):
        for shelf in shelves:
            cache.add(shelf, batch(base, 10))
    cache.drop(one, 10, 30)
    assert [each.base_offset for each in one] == [0, 30] and len(other) == 4
    assert cache.bytes == sum(each.cost_bytes for shelf in shelves for each in shelf)
    cache.bytes_max = 0
    cache.add(one, batch(40))
    assert [each.base_offset for each in one] == [40] and not other
