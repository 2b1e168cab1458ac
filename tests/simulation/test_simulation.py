"""Hundreds of histories from seeds. A failing seed is printed, and fails again.

Each seed has a history with each cast. ``make thorough`` runs SEEDS; RADIATOR_SEEDS=1000:2000 tries others; python -m
tests.simulation 0:100000 takes a night.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from radiator.storage.header import DamagedBatch
from tests.histories import run
from tests.simulation.broken import BUGS, SHELL
from tests.simulation.casts import CASTS
from tests.simulation.checkers import Violation
from tests.simulation.simulation import EVENTS, Simulation
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent.parent
HISTORIES = 200  # of each cast; each bug is found by one of them, and most by one of the first few
SEEDS = os.environ.get("RADIATOR_SEEDS", f"0:{HISTORIES}")
SEEDS_OF_A_TEST = 20  # about ten seconds
SLOW_SEEDS = "10000:20000"
FOUND_BY = {  # seeds whose histories find the bugs that few histories find; tried first
    "what a sync of everything says is not heard": 133,
    "a torn entry is taken for whole": 14,
    "a start trusts the page cache": 193,
    "what is written counts as synced": 51,
    "a deleted name keeps its place": 6,
    "a step of the clock is believed at once": 57,
    "what has expired is delivered": 9,
    "what is to wait does not": 16,
    "a name is not taken over": 4,
    "the lowest priority goes first": 3,
    "a repeat is receipted when it is written": 3,
    "a partition is given to the next before the last is done": 3,
    "what expires does so too early": 3,
    "settlements do not wait for their rows": 7,
    "a transaction has no rows": 3,
}


def parts(seeds: str) -> list[str]:
    """Return ranges of SEEDS_OF_A_TEST seeds, such as 20:40, that are this range together."""
    first, _, last = seeds.partition(":")
    starts = range(int(first), int(last), SEEDS_OF_A_TEST)
    return [f"{start}:{min(start + SEEDS_OF_A_TEST, int(last))}" for start in starts]


@pytest.mark.thorough
@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("seeds", parts(SEEDS))
def test_every_promise_is_kept(seeds: str, cast: str) -> None:
    first, _, last = seeds.partition(":")
    done = run(partial(Simulation, cast=cast), range(int(first), int(last)))
    assert not done.failures, "\n".join(f"seed {seed}\n{text}" for seed, text in done.failures)


@pytest.mark.alone
@pytest.mark.slow
def test_every_promise_is_kept_over_many_more_seeds() -> None:
    """Run the histories in processes of their own, on all cores."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", SLOW_SEEDS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("broken", sampled([*SHELL, *BUGS], 9))
def test_the_checkers_notice_a_broken_broker(broken: str) -> None:
    cast = BUGS[broken][0].cast if broken in BUGS else "plain"
    first = FOUND_BY.get(broken, 0)
    assert first < HISTORIES
    for seed in [first, *range(HISTORIES)]:
        try:
            Simulation(seed, broken, cast=cast).run()
        except (Violation, DamagedBatch):  # or a start falls over what it should have passed over
            return
    raise AssertionError(f"{broken}: not noticed in {HISTORIES} histories")


@pytest.mark.parametrize("cast", CASTS)
def test_a_history_is_the_same_every_time(cast: str) -> None:
    histories = [Simulation(5, cast=cast), Simulation(5, cast=cast)]
    for history in histories:
        history.run()
    assert histories[0].counts == histories[1].counts
    assert list(histories[0].trace) == list(histories[1].trace)


QUICK_SEEDS = 4
FAULTS = {"disk faults": 100, "starts killed": 30}
PLAIN = FAULTS | {"messages": 500, "promised": 200, "settled": 50, "segments": 150, "maintained": 15, "buried": 10}
CHOOSY = PLAIN | {"settled": 30, "maintained": 5, "for crew": 50, "moved": 5}
REPEATING = FAULTS | {
    "messages": 500,
    "promised": 200,
    "settled": 50,
    "segments": 150,
    "maintained": 15,
    "durable": 500,
}


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
