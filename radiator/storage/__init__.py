"""Logs, cursors and all other files of a data directory, in plain Python.

Start with ``format`` (the bytes of a batch), then ``partition`` (a log), then ``store`` (all logs of one directory).
"""
