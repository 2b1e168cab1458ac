"""Compare delivery with a model: thousands of operations of several clients, in any order, on every kind of queue and
topic, with every way in which a message may end.

RADIATOR_FLOW_SEEDS=1000:2000 tries other seeds; python -m tests.properties.flow 0:100000 takes a night.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.histories import many, run
from tests.properties.flow.broken import broken
from tests.properties.flow.broken_rules import BROKEN
from tests.properties.flow.history import OPERATIONS, WEIGHTS, History
from tests.properties.flow.parts import Violation
from tests.tiers import sampled

SEEDS = os.environ.get("RADIATOR_FLOW_SEEDS", "0:40")
QUICK_SEEDS = "0:10"
SLOW_SEEDS = (1_000, 5_000)
HISTORIES_MAX = 60
FOUND_BY = {  # seeds whose histories find the bugs that few histories find, or find them slowly; tried first
    "a settled message comes again": 2,
    "a topic reader takes messages of queues": 19,
    "a priority does not wait for the one above": 26,
    "once more than the rule allows": 6,
    "a commit happens without what it acknowledges": 8,
    "the time to answer runs on in a transaction": 18,
    "a dead letter is delivered where it was": 2,
    "the pause of the rule means nothing": 9,
    "a name that was deleted keeps its place": 26,
    "what one child settles is settled for all": 8,
    "a late ack is taken for one of what is held": 6,
}
EVENTFUL = ["delivered", "returned", "settled", "rests", "late", "lost on the way", "timed out", "taken over"]
EVENTFUL += ["max-deliveries", "rejected", "expired", "unacked", "deleted"]


@pytest.mark.parametrize("seeds_of_run", [QUICK_SEEDS, pytest.param(SEEDS, marks=pytest.mark.thorough)])
def test_every_message_goes_to_one_consumer_within_its_window_and_in_its_place(seeds_of_run: str) -> None:
    first, _, last = seeds_of_run.partition(":")
    seeds = range(int(first), int(last))
    _, counts, failures = run(History, seeds)
    assert not failures, "\n".join(f"seed {seed}\n{text}" for seed, text in failures)
    if len(seeds) * OPERATIONS >= 10_000:  # or it says nothing
        assert all(counts[what] > 0 for what in [*WEIGHTS, *EVENTFUL]), counts
        assert counts["delivered"] > 5_000


@pytest.mark.alone
@pytest.mark.slow
def test_the_same_over_many_more_seeds() -> None:
    assert many(History, "histories", *SLOW_SEEDS) == 0


@pytest.mark.parametrize("name", sampled(BROKEN, 15))
def test_a_broken_broker_is_noticed(name: str) -> None:
    for seed in [FOUND_BY.get(name, 0), *range(HISTORIES_MAX)]:
        try:
            with broken(name):
                History(seed).run()
        except Violation:
            return
        except RuntimeError as error:
            if "got the event" in str(error):  # the table of states refuses it
                return
            raise
    raise AssertionError(f"{name}: not noticed in {HISTORIES_MAX} histories")


def test_a_history_is_the_same_every_time() -> None:
    histories = [History(7), History(7)]
    for history in histories:
        history.run()
    assert histories[0].counts == histories[1].counts
    assert list(histories[0].trace) == list(histories[1].trace)
    assert isinstance(histories[0].counts, Counter)
