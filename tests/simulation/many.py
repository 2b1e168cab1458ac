"""Many histories, on all cores. ``main`` returns 1 if one fails, and says which.

Each failing seed is printed with what it broke and the steps before that; the same seed fails again.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.simulation import Simulation

CHUNK = 25
FAILURES_MAX = 3  # then it is known that something is wrong


def run(seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """What happened in all of them together, and which failed."""
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    logging.disable(logging.CRITICAL)  # of the broker: disks fail here all the time
    try:
        for seed in seeds:
            simulation = Simulation(seed)
            try:
                simulation.run()
            except BaseException:
                failures.append((seed, traceback.format_exc()))
            counts += simulation.counts
    finally:
        logging.disable(logging.NOTSET)
    return counts, failures


def main(first: int, last: int) -> int:
    chunks = [range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK)]
    counts: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for chunk, (happened, failures) in zip(chunks, pool.map(run, chunks), strict=True):
            counts += happened
            for seed, text in failures:
                failed += 1
                print(f"seed {seed}\n{text}", flush=True)
            if failed >= FAILURES_MAX:
                pool.shutdown(cancel_futures=True)
                last = chunk.stop
                break
    print(
        f"{last - first} histories, {failed} failed; {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}"
    )
    return 1 if failed else 0
