"""Print the warnings of a read on stderr, each once for all processes of the read.

The processes share a directory. The first process that prints a warning creates an empty file there, named by a hash of
the text. On a cluster each machine has a directory of its own, or none, and prints for itself.
"""

from __future__ import annotations

import hashlib
import os
import sys


def warn(text: str, once: str | None = None) -> None:
    """Print a warning on stderr.

    Args:
        text: The warning.
        once: The shared directory, or None. Without a directory, or if it cannot be written, the warning is printed
            every time.
    """
    if once is None or _first(text, once):
        print(f"radiator: {text}", file=sys.stderr, flush=True)


def _first(text: str, directory: str) -> bool:
    printed = os.path.join(directory, hashlib.sha256(text.encode()).hexdigest())
    try:
        os.close(os.open(printed, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
