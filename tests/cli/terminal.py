"""A command on a terminal of a given width."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(columns: int, *args: str) -> tuple[list[str], str]:
    """Run ``radiator`` with stdout on a terminal; returns the lines that it shows, and stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "radiator", *args],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, cwd=ROOT, env=environment,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the command has ended
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    _, err = process.communicate(timeout=30)
    return ESCAPES.sub("", shown.decode()).splitlines(), err.decode()
