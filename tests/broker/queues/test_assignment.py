"""Who owns which partition: fair, steady, and never two at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.queues.assignment import Assignment


class Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.ack = "client"
        self.in_flight: dict[bytes, tuple[Any, int]] = {}

    def __repr__(self) -> str:
        return self.name


class Group:
    """Owners, with members that hold things."""

    def __init__(self, sources: int) -> None:
        self.woken = 0
        self.assignment = Assignment(self.wake)
        self.sources = [f"p{number}" for number in range(sources)]
        self.members: list[Member] = []
        for source in self.sources:
            self.assignment.add(source)

    def wake(self) -> None:
        self.woken += 1

    def join(self, alone: bool = False) -> Member:
        member = Member(f"m{len(self.members)}")
        self.members.append(member)
        self.assignment.joined(member, alone)  # type: ignore[arg-type]
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.in_flight.clear()
        self.assignment.left(member)  # type: ignore[arg-type]

    def takers(self, source: str) -> list[Any]:
        found: Iterable[Any] = self.assignment.takers(source, self.members)  # type: ignore[arg-type]
        return list(found)

    def table(self) -> dict[str, list[Any]]:
        return {source: self.takers(source) for source in self.sources}

    def shares(self) -> list[int]:
        owned = [takers[0] for takers in self.table().values() if takers]
        return sorted(owned.count(member) for member in self.members)


@pytest.mark.parametrize(
    ("members", "shares"), [(1, [4]), (2, [2, 2]), (3, [1, 1, 2]), (4, [1] * 4), (5, [0] + [1] * 4)]
)
def test_partitions_are_shared_fairly_and_members_beyond_their_number_wait(members: int, shares: list[int]) -> None:
    group = Group(4)
    for _ in range(members):
        group.join()
    assert group.shares() == shares


def test_a_partition_is_reassigned_only_when_none_of_its_messages_are_in_flight() -> None:
    group = Group(2)
    first = group.join()
    assert group.table() == {"p0": [first], "p1": [first]}
    first.in_flight[b"1"] = (group.sources[1], 7)
    second = group.join()
    assert group.table() == {"p0": [first], "p1": []}
    woken = group.woken
    first.in_flight.clear()
    assert group.table() == {"p0": [first], "p1": [second]}
    assert group.woken == woken + 1


class Counted(dict[bytes, tuple[Any, int]]):
    searches = 0

    def __reversed__(self) -> Any:
        self.searches += 1
        return super().__reversed__()


def test_a_source_that_is_to_move_is_not_searched_for_at_each_acknowledgement() -> None:
    group = Group(2)
    first = group.join()
    group.table()
    held = first.in_flight = Counted((b"%d" % number, (group.sources[1], number)) for number in range(100))
    second = group.join()
    for message_id in list(held):
        assert group.takers(group.sources[1]) == []
        del held[message_id]
    assert held.searches == 1
    assert group.takers(group.sources[1]) == [second]


def test_what_a_lost_member_had_goes_to_the_others_at_once() -> None:
    group = Group(3)
    first, second = group.join(), group.join()
    lost = [source for source, takers in group.table().items() if takers == [second]]
    group.leave(second)
    assert all(group.takers(source) == [first] for source in lost)


def test_a_member_that_joins_takes_no_more_than_its_share_from_others() -> None:
    group = Group(6)
    group.join()
    group.join()
    before = group.table()
    newcomer = group.join()
    after = group.table()
    assert [source for source in group.sources if before[source] != after[source]] == [
        source for source in group.sources if after[source] == [newcomer]
    ]
    assert group.shares() == [2, 2, 2]


def test_a_group_without_members_assigns_no_partition() -> None:
    group = Group(1)
    group.leave(group.join())
    assert group.takers("p0") == []


def test_one_exclusive_consumer_takes_all_and_the_next_one_takes_over() -> None:
    group = Group(0)
    first = group.join()
    assert group.takers("q") == [first]
    alone = group.join(alone=True)
    other = group.join(alone=True)
    assert group.takers("q") == [alone]
    group.leave(alone)
    assert group.takers("q") == [other]
    group.leave(other)
    assert group.takers("q") == [first]


def test_an_exclusive_consumer_begins_when_the_others_hold_nothing() -> None:
    group = Group(0)
    first, queue = group.join(), "q"
    first.in_flight[b"1"] = (queue, 1)
    alone = group.join(alone=True)
    assert group.takers(queue) == []
    first.in_flight.clear()
    assert group.takers(queue) == [alone]


@given(st.data())
def test_no_partition_is_ever_with_two_members_and_all_are_assigned(data: st.DataObject) -> None:
    group = Group(data.draw(st.integers(1, 8)))
    number = 0
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["join", "leave", "take", "settle"]))
        if action == "join" and len(group.members) < 6:
            group.join()
        elif action == "leave" and group.members:
            group.leave(data.draw(st.sampled_from(group.members)))
        elif action == "take":
            for source in group.sources:
                for taker in group.takers(source):
                    number += 1
                    taker.in_flight[b"%d" % number] = (source, number)
        elif action == "settle" and group.members:
            data.draw(st.sampled_from(group.members)).in_flight.clear()
        for source in group.sources:
            holders = {each for each in group.members if any(held == source for held, _ in each.in_flight.values())}
            assert len(holders) <= 1
    for member in group.members:
        member.in_flight.clear()
    if group.members:
        shares = group.shares()
        assert sum(shares) == len(group.sources)
        assert max(shares) - min(shares) <= 1


def test_thousands_that_come_or_go_at_once_are_shared_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = []
    honest = Assignment._rebalance

    def share(assignment: Assignment) -> None:
        shared.append(assignment)
        honest(assignment)

    monkeypatch.setattr(Assignment, "_rebalance", share)
    group = Group(3_000)
    members = [group.join() for _ in range(4)]
    assert group.shares() == [750] * 4
    assert len(shared) == 1
    for source in group.sources[:1_500]:
        group.assignment.remove(source)
    del group.sources[:1_500]
    group.leave(members[0])
    assert group.shares() == [500] * 3
    assert len(shared) == 2
