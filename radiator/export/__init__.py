"""Export records of a store as files for other programs: JSON lines, CSV, Parquet. It needs no broker and no Spark.

The parts: ``records`` (which records, from where), ``rows`` (a record as the columns of ``docs/spark.md``), ``writers``
(the formats), ``files`` (where the output goes).
"""
