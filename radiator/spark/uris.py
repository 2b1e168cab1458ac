"""Two names for one place: what pyarrow and fsspec call a file system, and what Hadoop, so Spark, calls it.

    here        Spark
    a path      file://
    s3, s3n     s3a
    gcs         gs
    az          abfs

Other schemes are called the same by both. A URI ``file:`` is decoded, as Spark takes its paths as they stand.

Knows: schemes. Pure.
"""

from __future__ import annotations

import os

from radiator.columns.files import is_remote, local_path

HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "az": "abfs", "local": "file"}
ARROW = {"s3a": "s3", "s3n": "s3"}


def hadoop_uri(place: str) -> str:
    """Of a path or a URI, as Spark takes it."""
    scheme, _, rest = place.partition("://")
    if not is_remote(place):
        scheme, rest = "file", os.path.abspath(local_path(place))
    made = HADOOP.get(scheme, scheme)
    if made == "s3a":  # Hadoop has settings for what pyarrow takes in the URI
        rest = rest.partition("?")[0]
        bucket, slash, path = rest.partition("/")
        rest = f"{bucket.rpartition('@')[2]}{slash}{path}"
    return f"{made}://{rest}"


def arrow_uri(place: str) -> str:
    """Of a path or a URI, as pyarrow and fsspec take it."""
    scheme, separator, rest = place.partition("://")
    return f"{ARROW.get(scheme, scheme)}://{rest}" if separator else place
