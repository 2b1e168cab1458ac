"""A broker that has half a second for a stop, on a disk that takes 20 ms for each sync and each new directory.

``python -m tests.server.hurried_broker serve ...``.
"""

from __future__ import annotations

import os
import time

from radiator.cli.main import main
from radiator.server import app
from radiator.storage.files import FileSystem


def install() -> None:
    fdatasync, mkdir = os.fdatasync, FileSystem.mkdir

    def slow_fdatasync(fd: int) -> None:
        time.sleep(0.02)
        fdatasync(fd)

    def slow_mkdir(files: FileSystem, path: str) -> None:
        time.sleep(0.02)
        mkdir(files, path)

    FileSystem.fdatasync = staticmethod(slow_fdatasync)  # type: ignore[assignment]
    FileSystem.mkdir = slow_mkdir  # type: ignore[method-assign]
    app.STOP_SECONDS_MAX, app.NOTICE_SECONDS_MAX = 0.5, 0.2


if __name__ == "__main__":
    install()
    main()
