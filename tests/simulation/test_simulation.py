"""Histories from seeds, thousands of them. A seed that fails is printed, and fails again.

RADIATOR_SEEDS=1000:2000 tries others; python -m tests.simulation 0:100000 is a long night.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.broken import BUGS, SHELL
from tests.simulation.checkers import Violation
from tests.simulation.simulation import EVENTS, Simulation

ROOT = Path(__file__).parent.parent.parent
SEEDS = os.environ.get("RADIATOR_SEEDS", "0:2000")
SLOW_SEEDS = "10000:30000"


def run(seeds: str) -> None:
    """In processes of their own, on all cores."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", seeds], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.alone
def test_every_promise_is_kept() -> None:
    run(SEEDS)


@pytest.mark.alone
@pytest.mark.slow
def test_every_promise_is_kept_over_many_more_seeds() -> None:
    run(SLOW_SEEDS)


@pytest.mark.parametrize("broken", [*SHELL, *BUGS])
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
    assert counts["cared"] > 20
    assert counts["buried"] > 20


def test_a_dead_letter_that_has_outlived_its_message_and_what_is_sent_again_are_two_messages() -> None:
    """A power cut took it from the queue under a weaker promise; its producer had no receipt."""
    simulation = Simulation(5578)
    simulation.run()
    assert simulation.checkers.outlived


def test_a_decided_commit_is_known_in_a_log_that_went_on_in_another_file() -> None:
    """Its batches and those of others had become one there; the journal of the cursors had failed."""
    Simulation(5354).run()
