"""Many histories of one kind, each from its seed, on all cores: what simulations and models are run by.

It knows nothing of what a history is: something with ``run`` and ``counts``, which raises where it finds a fault. A
kind goes to other processes by its name, so it is a class or a function of a module.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple, Protocol

CHUNK = 25
FAILURES_MAX = 3  # then it is known that something is wrong


class History(Protocol):
    counts: Counter[str]

    def run(self) -> None: ...


Kind = Callable[[int], History]


class Outcome(NamedTuple):
    """``done`` is how many were run, ``counts`` what happened in all of them; each failed seed has its story."""

    done: int
    counts: Counter[str]
    failures: list[tuple[int, str]]


def run(kind: Kind, seeds: range) -> Outcome:
    """In this process, one after the other."""
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    logging.disable(logging.CRITICAL)  # of the broker: clients make mistakes here, and disks fail
    try:
        for seed in seeds:
            history = kind(seed)
            try:
                history.run()
            except KeyboardInterrupt:
                raise
            except BaseException:  # a simulated death is no Exception
                failures.append((seed, traceback.format_exc()))
            counts += history.counts
    finally:
        logging.disable(logging.NOTSET)
    return Outcome(len(seeds), counts, failures)


def many(kind: Kind, what: str, first: int, last: int) -> int:
    """On all cores. Failures and the sum, ``what`` they are, are printed; 1 if one fails, else 0."""
    chunks = [range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK)]
    counts: Counter[str] = Counter()
    done = failed = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(partial(run, kind), chunks):
            done += outcome.done
            counts += outcome.counts
            for seed, text in outcome.failures:
                failed += 1
                print(f"seed {seed}\n{text}", flush=True)
            if failed >= FAILURES_MAX:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{done} {what}, {failed} failed; {', '.join(f'{n} {name}' for name, n in sorted(counts.items()))}")
    return 1 if failed else 0
