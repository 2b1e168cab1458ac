"""The log as columns: from segment files to Arrow, without Spark and without a broker.

The walk of a read: ``log`` lists what is committed, ``planning`` turns what is wanted (``options``, ``selection``) into
ranges of segments, ``scan`` reads a range and checks every batch, ``rows`` and ``headermap`` see a chunk of batches as
columns, ``decode`` makes RecordBatches of them, ``read`` joins the last three. Whoever analyses the log stands on this:
the Spark source, the archive.

Knows: numpy, pyarrow, the format of the files. Must not know: pyspark, brokers, rules.
"""
