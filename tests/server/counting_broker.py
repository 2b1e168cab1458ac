"""The broker, which says at its exit how many objects Python is going to search for cycles."""

from __future__ import annotations

import atexit
import gc
import os

from radiator.__main__ import main


def report() -> None:
    os.write(1, b"to be searched: %d\n" % len(gc.get_objects()))  # the thread that writes to stdout has ended


if __name__ == "__main__":
    atexit.register(report)
    main()
