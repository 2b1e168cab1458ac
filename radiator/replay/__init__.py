"""Replay records of a store and of an archive: send them to a broker at the pace at which they came.

    choice      which records
    sources     where they are read: a data directory, an archive, or both with the boundary between them
    shelf       rows sorted by offset
    merging     many ordered streams as one, by receive time
    schedule    when each is due: a pure function of the records' own times
    messages    a record as a message: its headers and its destination
    progress    how far it came, in a file, for a replay that is interrupted
    work        the loop that joins them

This package knows files of stores and archives, and the client. It does not know the command line, servers or pyspark.
"""
