"""Convert URIs between the schemes of pyarrow and fsspec, and those of Hadoop, which Spark uses.

    pyarrow     Spark
    a path      file://
    s3, s3n     s3a
    gcs         gs
    az          abfs

Other schemes have the same name in both. A ``file:`` URI is decoded, because Spark uses paths literally.
"""

from __future__ import annotations

import os

from radiator.columns.files import is_remote, local_path

HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "az": "abfs", "local": "file"}
ARROW = {"s3a": "s3", "s3n": "s3"}


def hadoop_uri(place: str) -> str:
    """Return the URI of a path or a URI for Spark.

    Args:
        place: A path, or a URI of pyarrow or fsspec.

    Example:
        >>> hadoop_uri("s3://bucket/archive")
        's3a://bucket/archive'
    """
    scheme, _, rest = place.partition("://")
    if not is_remote(place):
        scheme, rest = "file", os.path.abspath(local_path(place))
    made = HADOOP.get(scheme, scheme)
    if made == "s3a":  # Hadoop has settings for the parameters that pyarrow reads from the URI
        rest = rest.partition("?")[0]
        bucket, slash, path = rest.partition("/")
        rest = f"{bucket.rpartition('@')[2]}{slash}{path}"
    return f"{made}://{rest}"


def arrow_uri(place: str) -> str:
    """Return the URI of a path or a URI for pyarrow and fsspec.

    Args:
        place: A path, or a URI of Hadoop.

    Example:
        >>> arrow_uri("s3a://bucket/archive")
        's3://bucket/archive'
    """
    scheme, separator, rest = place.partition("://")
    return f"{ARROW.get(scheme, scheme)}://{rest}" if separator else place
