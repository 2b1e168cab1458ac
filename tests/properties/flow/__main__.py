"""``python -m tests.properties.flow FIRST:LAST`` runs the histories of these seeds and prints each failing seed."""

from __future__ import annotations

import sys

from tests.histories import many
from tests.properties.flow.history import OPERATIONS, History

if __name__ == "__main__":
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0:1000").partition(":")
    sys.exit(many(History, f"histories of {OPERATIONS} operations", int(first), int(last)))
