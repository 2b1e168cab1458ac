"""A store in an object store: the same rows as from local files, and few requests for them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from pyarrow import fs as arrow

from radiator.columns.decode import Counters
from radiator.columns.files import RemoteFiles, open_store
from radiator.columns.log import NoStore, partitions
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, snapshot
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.limits import KIB
from tests.columns.s3 import S3, running
from tests.columns.test_files import rows
from tests.spark.stores import Writer, numbered

pytestmark = pytest.mark.spark
PARTITIONS = ("/topic/a b", "/queue/ä%41", "plain")
SEGMENTS = 12


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Names that no URI would take as they are, several segments, an index."""
    writer = Writer(tmp_path_factory.mktemp("here") / "data", 256 * KIB)
    for name in PARTITIONS:
        writer.write(name, [each._replace(body=bytes(500)) for each in numbered(name, 1500)], per_batch=7)
    writer.close()
    return writer.root


@pytest.fixture(scope="module")
def uri(s3: S3, local: str) -> str:
    return s3.upload(local, "data")


class Requests(logging.Handler):
    """What the server was asked, by method."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.asked: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search("(GET|HEAD|PUT|POST) /", record.getMessage())
        self.asked[found[1] if found else "other"] += 1

    def take(self) -> Counter[str]:
        asked, self.asked = self.asked, Counter()
        return asked


@pytest.fixture
def requests() -> Iterator[Requests]:
    handler, log = Requests(), logging.getLogger("werkzeug")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(logging.WARNING)


def test_every_row_is_that_of_the_local_files(s3: S3, uri: str, local: str) -> None:
    assert rows(uri, split_bytes=100_000, storage=s3.storage).equals(rows(local, split_bytes=100_000))
    selection = Selection().partition("in", "/queue/ä%41").offsets(700, 900)
    assert rows(uri, selection, storage=s3.storage).equals(rows(local, selection))
    assert snapshot(uri, s3.storage) == snapshot(local)


def test_arguments_may_stand_in_the_uri_and_are_not_shown(s3: S3, uri: str) -> None:
    parameters = urlencode({"endpoint_override": s3.endpoint, "scheme": "http", "region": "us-east-1"})
    given = uri.replace("://", "://who:knows@") + "?" + parameters
    assert snapshot(given) == snapshot(uri, s3.storage)
    assert open_store(given).root == uri


def test_planning_asks_twice_per_file_and_lists_once(s3: S3, uri: str, requests: Requests) -> None:
    """A HEAD and a GET for each head, first header and index; and no question about what an index says."""
    options = ReadOptions(uri, Selection(), split_bytes=1, storage=s3.storage)
    tasks = plan(options)
    segments = len({each.path for task in tasks for each in task})
    assert segments == SEGMENTS
    assert len(tasks) > 3 * SEGMENTS  # so there were entries to believe
    asked = requests.take()
    files = len(PARTITIONS) + 2 * SEGMENTS
    assert asked["GET"] <= files + 8  # listings
    assert asked["HEAD"] <= files + 8


def test_reading_asks_once_per_piece_of_several_mib(
    s3: S3, tmp_path_factory: pytest.TempPathFactory, requests: Requests
) -> None:
    writer = Writer(tmp_path_factory.mktemp("large") / "data")
    large = [each._replace(body=bytes(100_000)) for each in numbered("/topic/a", 400)]
    writer.write("a", large, per_batch=10)
    writer.close()
    options = ReadOptions(s3.upload(writer.root, "large"), Selection(), split_bytes=1 << 30, storage=s3.storage)
    (task,) = plan(options)
    requests.take()
    schema = arrow_schema(["offset", "size"])
    made = list(read(task, options, schema, Counters()))
    assert sum(batch.num_rows for batch in made) == 400
    asked = requests.take()
    assert asked["GET"] <= 3 * 4 + 3  # 40 MB in three chunks of four parts each, the last one again for what it cut
    assert asked["HEAD"] == 1


def test_missing_and_refused_objects_of_s3_are_reported_with_the_reason(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_store("s3://nowhere/data", s3.storage)
    with pytest.raises(NoStore, match="no radiator store at s3://nowhere/data: there is no such directory"):
        partitions(place)

    def refuse(self: RemoteFiles, path: str) -> list[str]:
        raise OSError("AWS Error ACCESS_DENIED")

    monkeypatch.setattr(RemoteFiles, "listdir", refuse)
    with pytest.raises(StorageError, match="s3://nowhere/data: cannot read: AWS Error ACCESS_DENIED; check its URI,"):
        partitions(place)


def test_a_segment_that_is_gone_is_a_loss(s3: S3, local: str) -> None:
    uri = s3.upload(local, "retained")
    options = ReadOptions(uri, Selection(), fail_on_data_loss=False, storage=s3.storage)
    tasks = plan(options)
    first = min(each.path for task in tasks for each in task)
    arrow.S3FileSystem(**s3.storage).delete_file(first.removeprefix("s3://"))
    made = [batch for task in tasks for batch in read(task, options, arrow_schema(["offset"]), Counters())]
    assert 0 < sum(batch.num_rows for batch in made) < 4500
