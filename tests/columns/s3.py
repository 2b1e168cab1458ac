"""An S3 on this machine, spoken to over HTTP like any other: who reads it may be another process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from pyarrow import fs as arrow

BUCKET = "logs"


class S3(NamedTuple):
    endpoint: str
    storage: dict[str, str]  # arguments of the file system

    @property
    def files(self) -> arrow.S3FileSystem:
        return arrow.S3FileSystem(**self.storage, allow_bucket_creation=True)

    def uri(self, place: str, **parameters: str) -> str:
        """With all that is needed to open it, as pyarrow spells it."""
        access = {"endpoint_override": self.endpoint, "scheme": "http", "region": "us-east-1"}
        return f"s3://who:knows@{place}?{urlencode(access | parameters)}"

    def upload(self, local: str, name: str) -> str:
        """The URI of a copy of that directory."""
        arrow.copy_files(local, f"{BUCKET}/{name}", destination_filesystem=self.files)
        return f"s3://{BUCKET}/{name}"


@contextlib.contextmanager
def running() -> Iterator[S3]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        access = {"access_key": "who", "secret_key": "knows", "region": "us-east-1"}
        s3 = S3(f"{host}:{port}", {**access, "endpoint_override": f"{host}:{port}", "scheme": "http"})
        s3.files.create_dir(BUCKET)
        yield s3
        s3.files.delete_dir_contents(BUCKET)  # what is stored outlives the server, in this process
    finally:
        server.stop()
