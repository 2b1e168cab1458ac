"""What was said is said again: records of a store and of an archive, sent to a broker at the pace at which they came.

    choice      which records
    sources     where they are read: a data directory, an archive, or both with the seam between them
    shelf       rows in another order, in that of their offsets
    merging     many ordered streams as one, by the time of receiving
    schedule    when each is due: a pure function of the records' own times
    messages    a record as a message: what is carried, what it is called, which one it is
    progress    how far it came, in a file, for a replay that is interrupted
    work        the loop that joins them

Knows: files of stores and archives, the client. Must not know: the command line, servers, pyspark.
"""
