"""A broker whose visits of a connection end after 20 us: nearly every frame waits for the next one.

``python -m tests.server.brief_broker serve ...``.
"""

from __future__ import annotations

from radiator.cli.main import main
from radiator.server import scheduler

if __name__ == "__main__":
    scheduler.SLICE_NS = 20_000  # type: ignore[misc]
    main()
