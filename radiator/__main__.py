"""``python -m radiator`` is the command ``radiator``.

SIGINT before the command line is loaded ends the process at once: Python's own handler would print a traceback from the
middle of an import.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit with its code: the entry point of ``radiator``."""
    python_handler = signal.getsignal(signal.SIGINT)  # not Python's where the parent had SIGINT ignored (nohup)
    if python_handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from radiator.cli.common import INTERRUPTED
    from radiator.cli.main import run

    try:
        signal.signal(signal.SIGINT, python_handler)
        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
