"""SIGKILL of a real broker under load, again and again over the same data: what clients were told is true afterwards.

Producers, consumers with and without cumulative ACKs, transactions over several partitions and ACKs, and readers; logs
that are compressed, compacted, and give the space of settled messages back meanwhile. The kill comes at a random
moment, also while the broker starts or stops. ``tests/crash/judge.py`` says what is compared.

A killed process loses nothing that was written, so the promises are the same under every fsync policy, and a broker
that sends receipts before it *writes* is caught here (below). One that sends them before it *syncs* cannot be: that
takes a power cut, which ``tests/simulation`` makes.

``RADIATOR_SEED`` repeats the decisions of a run.
"""

from __future__ import annotations

import shutil

import pytest

from tests.crash.killing import Kept, Killing, new_seed
from tests.tiers import sampled

POLICIES = ("always", "50ms", "never")
SLOW_LIVES, SLOW_ROUNDS = 5, 12  # for each policy: 5 * (12 + 4 kills of a start) = 80 kills


@pytest.mark.parametrize("policy", sampled(POLICIES, 1))
def test_all_promises_hold_after_kills_under_load(policy: str) -> None:
    """8 kills each, 24 together."""
    with Killing(policy, new_seed()) as killing:
        killing.run(6)
        killing.finish()
        assert killing.kills >= 8


@pytest.mark.thorough
def test_starts_that_are_killed_one_after_the_other_do_no_harm() -> None:
    """Recovery is interrupted wherever it has come to, and what it has done until then is recovered from."""
    with Killing("always", new_seed()) as killing:
        killing.run(2)
        for _ in range(2):
            killing.run_into_a_kill()
            for _ in range(4):
                killing.rounds += 1
                killing.kill_a_start()
            killing.broker.start()
            killing.judge.look(killing.broker)
        killing.finish()


@pytest.mark.slow
def test_all_promises_hold_after_two_hundred_kills(capsys: pytest.CaptureFixture[str]) -> None:
    def report(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    kills, seed = 0, new_seed()
    report(f"\nRADIATOR_SEED={seed}")
    for life in range(SLOW_LIVES):
        for policy in POLICIES:
            with Killing(policy, seed + life) as killing:
                killing.run(SLOW_ROUNDS)
                killing.finish()
            kills += killing.kills
            report(f"{kills} kills so far; {killing.summary}")
    assert kills >= 200


LIES = {
    # what is wrong with the broker: what the judge says, one of these
    "receipts-before-the-write": (
        "should be",
        "is gone",
        "are missing",
        "is at",
        "half of",
        "and then",
        "again",
        "and came back",
    ),
    "acks-that-are-not-stored": (
        "half of transaction",
        "and came back",
        "was receipted, and is gone",
        "was delivered again",
        "a gap",  # its segment was given back when the acks were told, and the cursor stands before it again
    ),
    "deliveries-without-a-mark": ("without a mark", "has no mark"),
    "transactions-file-by-file": ("half of transaction",),
}


@pytest.mark.parametrize("lie", sampled(LIES, 1))
def test_a_broker_with_a_fault_is_found(lie: str) -> None:
    """The judge is worth something."""
    with pytest.raises(Kept) as caught, Killing("never", new_seed(), ["tests.crash.faulty_broker", lie]) as killing:
        killing.run(20)
        killing.finish()
    shutil.rmtree(killing.directory)
    verdict = str(caught.value.__cause__)
    assert any(words in verdict for words in LIES[lie]), verdict
