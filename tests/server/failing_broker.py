"""A broker whose disk fails, or takes for ever, while a file says so.

``python -m tests.server.failing_broker serve ...``.

While ``<data_dir>/fail`` exists, a write or a sync of a file whose path holds the file's text is an EIO; while
``<data_dir>/stall`` exists, every sync waits. Nothing in the product
knows of this; the process replaces a verb of the file system before it starts.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Any

from radiator.cli.main import main
from radiator.storage.files import FileSystem


def install(data: str) -> None:
    honest, pwritev = os.fdatasync, os.pwritev

    def look(fd: int) -> None:
        try:
            with open(f"{data}/fail", encoding="utf-8") as file:
                wanted = file.read()
        except FileNotFoundError:
            wanted = ""
        if wanted and wanted in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def writing(fd: int, pieces: Any, position: int) -> int:
        look(fd)
        return pwritev(fd, pieces, position)

    def fdatasync(fd: int) -> None:
        look(fd)
        while os.path.exists(f"{data}/stall"):
            time.sleep(0.01)
        honest(fd)

    FileSystem.fdatasync = staticmethod(fdatasync)  # type: ignore[assignment]
    FileSystem.pwritev = staticmethod(writing)  # type: ignore[assignment]


if __name__ == "__main__":
    install(sys.argv[sys.argv.index("--data") + 1])
    main()
