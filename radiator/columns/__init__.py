"""Read the log as Arrow columns: from segment files, without Spark and without a broker.

A read has these steps. ``log`` lists the committed segments. ``planning`` turns ``options`` and a ``selection`` into
ranges of segments. ``scan`` reads a range and checks every batch. ``rows`` and ``headermap`` present a chunk of batches
as columns. ``decode`` builds RecordBatches. ``read`` combines the last three. The Spark source and the archive use this
package.

Uses numpy, pyarrow and the file format. Must not import pyspark, the broker or its rules.
"""
