"""The log on disk and in memory. Plain Python; owns every byte under the data directory.

Start reading at ``format`` (what a batch is), then ``partition`` (the log), ``store`` (all logs of one directory).
"""
