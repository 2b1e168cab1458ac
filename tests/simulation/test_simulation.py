"""Thousands of histories from seeds. A failing seed is printed, and fails again.

Each seed has a history with each cast. RADIATOR_SEEDS=1000:2000 tries others; python -m tests.simulation 0:100000 takes
a night.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from radiator.storage.header import DamagedBatch
from tests.simulation.broken import BUGS, SHELL
from tests.simulation.casts import CASTS
from tests.simulation.checkers import Violation
from tests.simulation.simulation import EVENTS, Simulation
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent.parent
SEEDS = os.environ.get("RADIATOR_SEEDS", "0:700")
SLOW_SEEDS = "10000:20000"
HISTORIES_MAX = 300  # most bugs are found in the first few
FOUND_BY = {  # seeds whose histories find the bugs that few histories find; tried first
    "what a sync of everything says is not heard": 110,
    "a torn entry is taken for whole": 121,
    "what is written counts as synced": 22,
    "a deleted name keeps its place": 17,
    "a step of the clock is believed at once": 168,
    "what has expired is delivered": 12,
    "what is to wait does not": 6,
    "a name is not taken over": 4,
    "the lowest priority goes first": 3,
    "a repeat is receipted when it is written": 3,
    "a partition is given to the next before the last is done": 3,
    "what expires does so too early": 3,
    "settlements do not wait for their rows": 7,
    "a transaction has no rows": 3,
}


def run(seeds: str) -> None:
    """Run the histories in processes of their own, on all cores."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", seeds], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.alone
def test_every_promise_is_kept() -> None:
    run(SEEDS)


@pytest.mark.alone
@pytest.mark.slow
def test_every_promise_is_kept_over_many_more_seeds() -> None:
    run(SLOW_SEEDS)


@pytest.mark.parametrize("broken", sampled([*SHELL, *BUGS], 9))
def test_the_checkers_notice_a_broken_broker(broken: str) -> None:
    cast = BUGS[broken][0].cast if broken in BUGS else "plain"
    for seed in [FOUND_BY.get(broken, 0), *range(HISTORIES_MAX)]:
        try:
            Simulation(seed, broken, cast=cast).run()
        except (Violation, DamagedBatch):  # or a start falls over what it should have passed over
            return
    raise AssertionError(f"{broken}: not noticed in {HISTORIES_MAX} histories")


@pytest.mark.parametrize("cast", CASTS)
def test_a_history_is_the_same_every_time(cast: str) -> None:
    runs = [Simulation(5, cast=cast), Simulation(5, cast=cast)]
    for run in runs:
        run.run()
    assert runs[0].counts == runs[1].counts
    assert list(runs[0].trace) == list(runs[1].trace)


QUICK_SEEDS = 4
PLAIN = {"messages": 500, "promised": 200, "settled": 50, "segments": 150, "maintained": 15, "buried": 10}
CHOOSY = PLAIN | {"settled": 30, "maintained": 5, "for crew": 50, "moved": 5}
REPEATING = {"messages": 500, "promised": 200, "settled": 50, "segments": 150, "maintained": 15, "durable": 500}


@pytest.mark.parametrize("cast", CASTS)
def test_a_few_histories_keep_every_promise(cast: str) -> None:
    for seed in range(QUICK_SEEDS):
        Simulation(seed, cast=cast).run()


@pytest.mark.thorough
@pytest.mark.parametrize(("cast", "least"), [("plain", PLAIN), ("choosy", CHOOSY), ("repeating", REPEATING)])
def test_the_histories_are_eventful(cast: str, least: dict[str, int]) -> None:
    """Without events the tests above would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in range(30):
        simulation = Simulation(seed, cast=cast)
        simulation.run()
        counts += simulation.counts
    assert all(counts[event] >= 5 for event in EVENTS), counts
    assert all(counts[what] > number for what, number in least.items()), counts


def test_a_decided_commit_is_known_in_a_log_that_went_on_in_another_file() -> None:
    """Its batches and those of others were merged there; the journal of the cursors had failed."""
    Simulation(5354).run()
