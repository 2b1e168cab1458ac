"""The budget of a turn: units that are spent, and what is remembered of them."""

from __future__ import annotations

from radiator.broker.budget import Budget


def test_each_turn_has_all_of_it_and_the_most_that_one_has_spent_is_remembered() -> None:
    budget = Budget(100)
    budget.spend(70)
    assert (budget.left, budget.spent, budget.peak, budget.exhausted) == (30, 70, 70, False)
    budget.spend(50)
    assert budget.exhausted
    budget.begin()
    assert (budget.left, budget.spent, budget.peak) == (100, 0, 120)
    budget.spend(10)
    budget.begin()
    assert budget.peak == 120


def test_what_is_given_up_is_not_spent() -> None:
    budget = Budget(100)
    budget.spend(10)
    budget.give_way()
    assert budget.exhausted
    assert budget.spent == 10
    budget.spend(5)
    budget.begin()
    assert budget.peak == 15


def test_the_longest_turn_is_remembered() -> None:
    budget = Budget()
    for duration_ns in (5, 9, 7):
        budget.took(duration_ns)
    assert budget.longest_ns == 9
