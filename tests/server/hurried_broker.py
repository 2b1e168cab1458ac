"""A broker that has half a second for a stop, on a disk that takes 20 ms for each sync.

``python -m tests.server.hurried_broker serve ...``.
"""

from __future__ import annotations

import os
import time

from radiator.cli.main import main
from radiator.server import app
from radiator.storage.files import FileSystem


def install() -> None:
    honest = os.fdatasync

    def fdatasync(fd: int) -> None:
        time.sleep(0.02)
        honest(fd)

    FileSystem.fdatasync = staticmethod(fdatasync)  # type: ignore[assignment]
    app.STOP_SECONDS_MAX, app.WORD_SECONDS_MAX = 0.5, 0.2


if __name__ == "__main__":
    install()
    main()
