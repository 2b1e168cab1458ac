"""The window that subscriptions of a session share: what it counts, and who is served next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.clients.shared_window import QueueRing, SharedWindow

ACTS = st.lists(st.tuples(st.sampled_from(["add", "remove", "served"]), st.integers(0, 3)), max_size=30)


@given(ACTS)
def test_the_queue_that_was_served_longest_ago_comes_first(acts: list[tuple[str, int]]) -> None:
    ring: Any = QueueRing()
    fresh: list[int] = []
    served: list[int] = []
    for act, queue in acts:
        if act == "add" and queue in fresh + served:
            continue
        getattr(ring, act)("s", queue)
        if act == "add":
            fresh.append(queue)
        elif queue in fresh + served:
            (fresh if queue in fresh else served).remove(queue)
            if act == "served":
                served.append(queue)
        expected = fresh + served
        assert ring.entries() == [("s", each) for each in expected]
        assert len(ring) == len(expected)
        assert ring.only == (expected[0] if len(expected) == 1 else None)


def test_it_never_counts_more_than_its_size_or_less_than_nothing() -> None:
    window: Any = SharedWindow()
    window.cap(3)
    window.take(3)
    with pytest.raises(AssertionError):
        window.take(1)
    window.give_back(4)
    with pytest.raises(AssertionError):
        window.give_back(1)


def test_topics_and_queues_take_turns_and_so_do_topics() -> None:
    window: Any = SharedWindow()
    assert [window.topics_first() for _ in range(4)] == [False, True, False, True]
    readers = ["a", "b", "c"]
    assert window.in_turn(readers) == ["a", "b", "c"]
    window.topic_served("b")
    assert window.in_turn(readers) == ["c", "a", "b"]
    window.topic_served("c")
    assert window.in_turn(readers) == ["a", "b", "c"]
    window.topic_served("gone")
    assert window.in_turn(readers) == ["a", "b", "c"]
