"""``radiator`` with files of the journal so small that checkpoints are made all the time."""

from __future__ import annotations

from radiator import limits

limits.JOURNAL_FILE_BYTES = 100_000
limits.JOURNAL_PASSED_BYTES_MIN = 20_000

if __name__ == "__main__":
    from radiator.cli.main import main

    main()
