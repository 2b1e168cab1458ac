"""``python -m tests.simulation 0:100000 [CAST ...]`` runs the histories of these seeds with each cast, or with those
named.

It prints each failing seed, with the violation and the steps to it.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.histories import many
from tests.simulation.casts import CASTS
from tests.simulation.simulation import Simulation

if __name__ == "__main__":
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0:2000").partition(":")
    failed = 0
    for cast in sys.argv[2:] or CASTS:
        failed += many(partial(Simulation, cast=cast), f"{cast} histories", int(first), int(last))
    sys.exit(failed)
