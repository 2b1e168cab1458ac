"""Many histories, on all cores."""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.properties.flow.history import OPERATIONS, History

CHUNK = 40
FAILURES_MAX = 3  # then it is known that something is wrong


def run(seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """What happened in all of them together, and which failed."""
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    logging.disable(logging.CRITICAL)  # of the broker: clients make mistakes here
    try:
        for seed in seeds:
            history = History(seed)
            try:
                history.run()
            except Exception:
                failures.append((seed, traceback.format_exc()))
            counts += history.counts
    finally:
        logging.disable(logging.NOTSET)
    return counts, failures


def main(first: int, last: int) -> int:
    chunks = [range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK)]
    counts: Counter[str] = Counter()
    done = failed = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for chunk, (happened, failures) in zip(chunks, pool.map(run, chunks), strict=True):
            counts += happened
            done += len(chunk)
            for seed, text in failures:
                failed += 1
                print(f"seed {seed}\n{text}", flush=True)
            if failed >= FAILURES_MAX:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{done} histories of {OPERATIONS} operations, {failed} failed")
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    return 1 if failed else 0
