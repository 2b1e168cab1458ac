"""Run the command ``radiator``: ``python -m radiator`` and the console script enter here.

Until the command line is loaded, SIGINT ends the process without Python's traceback from the middle of an import. The
handler is set when this module is imported, before anything else of radiator is.
"""

from __future__ import annotations

import signal
import sys

_handler = signal.getsignal(signal.SIGINT)
_is_python_handler = _handler is signal.default_int_handler  # not if the parent process ignores SIGINT (nohup)
if _is_python_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line and exit with its code."""
    from radiator.cli.common import INTERRUPTED
    from radiator.cli.main import run

    try:
        if _is_python_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if _is_python_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from Python's own shutdown either
    sys.exit(code)


if __name__ == "__main__":
    main()
