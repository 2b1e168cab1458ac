"""radiator: the log broker that speaks STOMP.

Importing this package imports nothing else; each part is imported by its own name, so that a Spark worker
needs no gevent and the broker needs no pyspark (``docs/architecture.md``, "Layers").
"""

__version__ = "0.1.0"
