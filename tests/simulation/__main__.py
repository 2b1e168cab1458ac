"""``python -m tests.simulation 0:100000``"""

from __future__ import annotations

import sys

from tests.simulation.many import main

if __name__ == "__main__":
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0:2000").partition(":")
    sys.exit(main(int(first), int(last)))
