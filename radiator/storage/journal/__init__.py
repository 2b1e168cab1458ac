"""The journal: one ordered stream per data directory, in which every group commit is one entry.

The disk thread writes it, and a start reads it.

    format.py      the bytes of files and entries
    journal.py     writing: files, syncs, which files are still needed
    reading.py     reading what an earlier run left, entry by entry
    group.py       a group commit as a job
    dirty_logs.py  the logs that the next checkpoint must sync
    snapshots.py   the snapshot of cursors and definitions that a checkpoint writes
    checkpoint.py  syncing segments, then reusing files of the journal
    redo.py        at a start: appending what is in the journal and not in the segments
"""
