"""Records of a store as files that other programs read: JSON lines, CSV, Parquet. No broker, no Spark.

The parts: ``records`` (which records, from where), ``rows`` (a record as the columns of ``docs/spark.md``), ``writers``
(the formats), ``files`` (where the output goes, and when it is there).
"""
