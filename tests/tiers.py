"""Which parameters of a test run in ``make test``, and which only in ``make test-all``.

A test, or a file of tests, that only ``make test-all`` runs is marked ``thorough``. Where a test has many parameters of
one kind (seeds, places of a cut), ``sampled`` marks all but a few of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], count: int) -> list[Any]:
    """Return the values as parameters, all but ``count`` of them, evenly spread, marked ``thorough``."""
    every = list(values)
    quick = {index * len(every) // count for index in range(count)}
    return [
        value if index in quick else pytest.param(*_parts(value), marks=pytest.mark.thorough)
        for index, value in enumerate(every)
    ]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)
