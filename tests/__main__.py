"""``python -m tests [TIER] [ARGUMENTS OF PYTEST]``: the tests of a tier, with one result.

Each test belongs to one tier. A test without a mark runs in ``make test``, a test marked ``thorough`` in ``make
thorough``, and a test marked ``slow`` in ``make slow``; ``make test-all`` runs the first two tiers as one, so that they
share what is started once: workers, a SparkSession, brokers, browsers. ``make test`` has a quarter of Hypothesis'
examples (``tests/conftest.py``).

Tests run side by side: each worker a file at a time, and one worker all files of tests/spark. The slow tests marked
``alone`` run in a second step, one after the other. The last line counts both steps, and the exit code is 0 only where
both passed.

With ``--again`` as the first of the arguments up to AGAIN_MAX tests that failed are run once more, by themselves, and
must pass then. They are brokers, clients and kills on a machine that others load as well; both results are told.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

WORKERS = min(4, max(3, os.cpu_count() or 2))  # a third of a test is waiting; each starts brokers, and clients of them
KINDS = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
NONE_SELECTED = pytest.ExitCode.NO_TESTS_COLLECTED
SPARK = "tests/spark/"
SEEDS = "tests/simulation/test_simulation.py"
AGAIN_MAX = 3  # more at once are no accident
NOT_RUN = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)


TIERS = {  # the tests of its steps
    "": {"side by side": "not thorough and not slow"},
    "thorough": {"side by side": "thorough and not slow"},
    "all": {"side by side": "not slow"},
    "slow": {"side by side": "slow and not alone", "alone": "slow and alone"},
}


class Scheduling(LoadFileScheduling):
    """Gives a worker a file at a time, and all files of tests/spark to one worker: so they share a SparkSession.

    The tests of SEEDS share nothing: each goes to the next worker without work. They are the last, as scopes with more
    tests come first, so that no worker waits long for another.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file == SEEDS:
            return nodeid
        return SPARK if file.startswith(SPARK) else file


class Tally:
    """A plug-in that counts what came of the tests of one step, and says which worker gets which tests."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduling:
        return Scheduling(config, log)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self.counts = Counter({kind: len(terminalreporter.stats.get(kind, ())) for kind in KINDS})

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS if self.counts[kind]) or "none"


def main(arguments: list[str]) -> int:
    tier = arguments[0] if arguments and arguments[0] in TIERS else ""
    more = arguments[1:] if tier else arguments
    again = more[:1] == ["--again"]
    more = more[again:]
    if not tier:
        more = ["--hypothesis-profile", "quick", *more]
    if tier == "slow":  # it is minutes before one of these hangs
        more = ["-o", "faulthandler_timeout=3600", *more]
    begun, total, codes, told = time.monotonic(), Tally(), [], []
    for name, tests in TIERS[tier].items():
        tally = Tally()
        workers = ["-n", str(WORKERS)] if name != "alone" else []
        codes.append(pytest.main(["-q", *workers, "-m", tests, *more], plugins=[tally]))
        total.counts += tally.counts
        told.append(f"{name}: {tally}")
        if codes[-1] in NOT_RUN:
            break
    failed = total.counts["failed"] + total.counts["error"]
    if again and pytest.ExitCode.TESTS_FAILED in codes and not set(codes) & set(NOT_RUN) and failed <= AGAIN_MAX:
        tally = Tally()
        codes = [pytest.main(["-q", "--last-failed", "--last-failed-no-failures=none", *more], plugins=[tally])]
        told.append(f"once more: {tally}")
    code = max((code for code in codes if code != NONE_SELECTED), default=NONE_SELECTED)
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    print(f"\n{'passed' if code == 0 else 'FAILED'} in {minutes}:{seconds:02}: {total} ({'; '.join(told)})", flush=True)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
