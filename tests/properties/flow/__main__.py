"""python -m tests.properties.flow FIRST:LAST    histories of these seeds; a seed that fails is printed."""

from __future__ import annotations

import sys

from tests.properties.flow.many import main

if __name__ == "__main__":
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0:1000").partition(":")
    sys.exit(main(int(first), int(last)))
