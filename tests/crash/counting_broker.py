"""A broker that writes a line for each sync of a file: ``python -m tests.crash.counting_broker FILE serve ...``.

For machines without strace: the file seam is where the product makes its system calls.
"""

from __future__ import annotations

import os
import sys

from radiator.cli.main import main
from radiator.storage.files import FileSystem

if __name__ == "__main__":
    out = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    real = FileSystem.fdatasync

    def counted(fd: int) -> None:
        real(fd)
        os.write(out, f"fdatasync({fd}<{os.readlink(f'/proc/self/fd/{fd}')}>) = 0\n".encode())

    FileSystem.fdatasync = staticmethod(counted)  # type: ignore[assignment]
    main()
