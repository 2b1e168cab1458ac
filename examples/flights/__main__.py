"""``python -m examples.flights``."""

from __future__ import annotations

import sys

from examples.flights.demo import main

if __name__ == "__main__":
    sys.exit(main())
