"""A broker that writes down its syncs, its writes to files and its RECEIPTs, as strace would:
``python -m tests.crash.counting_broker FILE serve ...``.

For machines without strace: the file seam is where the product makes its system calls on files, and a transport sends
with ``socket.send``. A write or sync is told when it has ended, a RECEIPT before it leaves.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from radiator.cli.main import main
from radiator.storage.files import FileSystem

if __name__ == "__main__":
    out = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sync, write, send = FileSystem.fdatasync, FileSystem.pwritev, socket.socket.send

    def report(call: str, fd: int, result: int) -> None:
        os.write(out, f"{call}({fd}<{os.readlink(f'/proc/self/fd/{fd}')}>) = {result}\n".encode())

    def synced(fd: int) -> None:
        sync(fd)
        report("fdatasync", fd, 0)

    def written(fd: int, pieces: Any, position: int) -> int:
        size = write(fd, pieces, position)
        report("pwritev", fd, size)
        return size

    def sent(self: socket.socket, data: Any, *more: Any) -> int:
        if bytes(data[:7]) == b"RECEIPT":
            os.write(out, b'sendto("RECEIPT")\n')
        return send(self, data, *more)

    FileSystem.fdatasync = staticmethod(synced)  # type: ignore[assignment]
    FileSystem.pwritev = staticmethod(written)  # type: ignore[assignment]
    socket.socket.send = sent  # type: ignore[method-assign,assignment]
    main()
