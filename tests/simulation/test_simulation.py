"""Histories from seeds. A failing seed is in the name of the test; ``RADIATOR_SEEDS=1000:2000`` tries others.

RADIATOR_SEEDS=0:100000 pytest -q tests/simulation          a long night
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.simulation import EVENTS, Simulation

FIRST, _, LAST = os.environ.get("RADIATOR_SEEDS", "0:120").partition(":")
SEEDS = range(int(FIRST), int(LAST))
SLOW_SEEDS = range(1_000, 3_000)
BROKEN = ["receipt before sync", "acks forgotten", "a window too wide"]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed: int) -> None:
    Simulation(seed).run()


@pytest.mark.slow
def test_every_promise_is_kept_over_many_seeds() -> None:
    for seed in SLOW_SEEDS:
        try:
            Simulation(seed).run()
        except BaseException:
            print(f"seed {seed}")
            raise


@pytest.mark.parametrize("broken", BROKEN)
def test_the_checkers_notice_a_broken_broker(broken: str) -> None:
    for seed in range(60):
        try:
            Simulation(seed, broken).run()
        except Violation:
            return
    raise AssertionError(f"{broken}: not noticed in 60 histories")


def test_a_history_is_the_same_every_time() -> None:
    runs = [Simulation(5), Simulation(5)]
    for run in runs:
        run.run()
    assert runs[0].counts == runs[1].counts
    assert list(runs[0].trace) == list(runs[1].trace)


def test_the_histories_are_eventful() -> None:
    """Otherwise the tests above say nothing."""
    counts: Counter[str] = Counter()
    for seed in range(20):
        simulation = Simulation(seed)
        simulation.run()
        counts += simulation.counts
    assert all(counts[event] >= 5 for event in EVENTS), counts
    assert counts["messages"] > 500
    assert counts["promised"] > 200
    assert counts["settled"] > 50
    assert counts["segments"] > 150
