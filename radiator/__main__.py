"""``python -m radiator`` is the command ``radiator``."""

from __future__ import annotations

from radiator.cli.main import main

if __name__ == "__main__":
    main()
