"""The journal: one ordered stream per data directory, in which every group commit is one entry.

format.py      the bytes of files and entries journal.py     writing: files, syncs, which files are still needed
reading.py     reading what an earlier run left, entry by entry group.py       a group commit as a job checkpoint.py
syncing segments, then reusing files of the journal redo.py        at a start: appending what is in the journal and not
in the segments
"""
