"""Run Spark's daemon of Python workers without tracebacks of broken pipes (``worker.py`` has the reason).

Spark forks all Python workers from one daemon. The worker that looks up data sources does not import this package, so
it cannot suppress its traceback itself. ``get_session`` makes this module the daemon if the master is local, because
the workers certainly have the package then.
"""

from __future__ import annotations

from pyspark import daemon
from pyspark.daemon import manager  # worker.py recognises the daemon by this name

from radiator.spark.worker import quiet

if __name__ == "__main__":
    quiet(daemon)
    manager()
