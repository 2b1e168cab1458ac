"""``python -m tests.simulation 0:100000``: each failing seed is printed, with what it broke and the steps to it."""

from __future__ import annotations

import sys

from tests.histories import many
from tests.simulation.simulation import Simulation

if __name__ == "__main__":
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0:2000").partition(":")
    sys.exit(many(Simulation, "histories", int(first), int(last)))
