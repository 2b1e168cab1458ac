"""A broker whose wall clock steps: it is ahead by as many seconds as the file that ``STEPPED`` names says.

``STEPPED=file python -m tests.server.stepping_broker serve ...``. Nothing in the product knows of this.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from radiator.cli.main import main


def install(ahead: Path) -> None:
    wall_ns = time.time_ns

    def stepped_ns() -> int:
        return wall_ns() + int(ahead.read_text()) * 1_000_000_000

    time.time_ns = stepped_ns


if __name__ == "__main__":
    install(Path(os.environ["STEPPED"]))
    main()
