"""What a read leaves out, or takes for a slip, told on stderr; where many reads make one answer, each thing once.

The processes that read share a directory then: the first that has something to say leaves an empty file there, named
by a hash of the text. On a cluster each machine has its own, or none, and tells for itself.

Knows: stderr, that directory. Must not know: what is told.
"""

from __future__ import annotations

import hashlib
import os
import sys


def warn(text: str, once: str | None = None) -> None:
    """``once``: the directory that is shared; without one, or if it cannot be written, the text is told anyhow."""
    if once is None or _first(text, once):
        print(f"radiator: {text}", file=sys.stderr, flush=True)


def _first(text: str, directory: str) -> bool:
    mark = os.path.join(directory, hashlib.sha256(text.encode()).hexdigest())
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
