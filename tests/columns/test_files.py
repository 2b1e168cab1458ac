"""A store lies where a URI says: planned, scanned and decoded over other file systems as over the local one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as arrow

from radiator.columns import files
from radiator.columns.decode import Counters
from radiator.columns.files import RemoteFiles, open_store
from radiator.columns.listing import listed
from radiator.columns.log import NoStore, partitions
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, snapshot
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.errors import ConfigError, StorageError
from radiator.limits import KIB
from radiator.storage.files import FileSystem
from radiator.storage.reader import list_partitions
from tests.spark.stores import Writer, numbered

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Names that no URI would take as they are, several segments, an index."""
    writer = Writer(tmp_path_factory.mktemp("here") / "data", 256 * KIB)
    for name in ("/topic/a b", "/queue/ä%41", "plain"):
        messages = [each._replace(body=bytes(500)) for each in numbered(name, 1500)]
        writer.write(name, messages, per_batch=7)
    writer.close()
    return writer.root


def in_memory(local: str) -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(local, "/store/data", recursive=True)
    yield "memory://store/data"
    memory.rm("/store", recursive=True)


def on_disk(local: str) -> Iterator[str]:
    pytest.importorskip("fsspec")
    yield f"local://{local}"


PLACES: dict[str, Callable[[str], Iterator[str]]] = {"memory": in_memory, "local": on_disk}


@pytest.fixture(params=PLACES)
def uri(request: pytest.FixtureRequest, local: str) -> Iterator[str]:
    yield from PLACES[request.param](local)


def rows(path: str, selection: Selection | None = None, **given: Any) -> pa.Table:
    options = ReadOptions(path, selection or Selection(), **given)
    schema = arrow_schema()
    made = [batch for task in plan(options) for batch in read(task, options, schema, Counters())]
    return pa.Table.from_batches(made, schema)


def test_every_row_is_that_of_the_local_files(local: str, uri: str) -> None:
    assert rows(uri, split_bytes=100_000).equals(rows(local, split_bytes=100_000))
    assert rows(uri).num_rows == 4500


def test_a_part_is_that_of_the_local_files(local: str, uri: str) -> None:
    selection = Selection().partition("in", "/queue/ä%41").offsets(700, 900)
    assert rows(uri, selection).equals(rows(local, selection))
    assert rows(uri, selection).num_rows == 200


def test_the_ends_are_those_of_the_local_files(local: str, uri: str) -> None:
    assert snapshot(uri) == snapshot(local) == {"/topic/a b": 1500, "/queue/ä%41": 1500, "plain": 1500}


def test_where_there_is_no_store_is_reported_as_for_local_files(uri: str) -> None:
    with pytest.raises(NoStore, match="no radiator store at .*/none: there is no such directory"):
        partitions(open_store(f"{uri}/none"))
    with pytest.raises(NoStore, match="it is a part of a store; use the path .*data and the option partition"):
        partitions(open_store(f"{uri}/partitions/plain"))
    with pytest.raises(NoStore, match="expected a broker's data_dir"):
        partitions(open_store(f"{uri}/salt"))


def test_damage_is_reported_with_its_uri(local: str, tmp_path: Path) -> None:
    shutil.copytree(local, tmp_path / "data")
    segment = sorted((tmp_path / "data/partitions/plain").glob("*.rlog"))[0]
    data = bytearray(segment.read_bytes())
    data[5000] ^= 1
    segment.write_bytes(data)
    uri = f"local://{tmp_path}/data"
    with pytest.raises(StorageError, match=r"partition 'plain': offsets .* \(local://.*rlog at byte"):
        rows(uri)
    assert rows(uri, fail_on_data_loss=False).num_rows == 4493


def test_the_twin_writes_nothing_and_never_touches_local_files(tmp_path: Path) -> None:
    """Every verb of the local files is its own: read over there, or refused."""
    verbs = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert verbs <= vars(RemoteFiles).keys()
    remote = RemoteFiles(arrow.LocalFileSystem(), "x://")
    with pytest.raises(OSError, match="read-only"):
        remote.open(str(tmp_path / "new"), create=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("path", "storage", "error", "told"),
    [
        ("nosuch://x/y", {}, StorageError, "nosuch://x/y: this file system cannot be used"),
        ("s3://bucket/x", {"colour": "red"}, StorageError, "s3://bucket/x: this file system cannot be used: .*colour"),
        ("s3://me:secret@bucket/x?wrong=1", {}, StorageError, "^s3://bucket/x: this file system cannot be used"),
        ("/srv/data", {"region": "x"}, ConfigError, "option storage.region: expected a store on another file system"),
    ],
)
def test_an_error_of_opening_has_no_secrets(
    path: str, storage: dict[str, str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told) as caught:
        open_store(path, storage)
    assert "secret" not in str(caught.value)


def test_hadoops_names_of_s3_are_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(files, "_open", lambda uri, *_: (seen.append(uri), (arrow.LocalFileSystem(), "b/d"))[1])
    assert open_store("s3a://b/d/").root == "s3://b/d"
    assert seen == ["s3://b/d/"]


def test_a_segment_that_goes_while_a_store_is_listed_is_not_listed(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    writer = Writer(tmp_path / "data", 64 * KIB)
    writer.write("a", [each._replace(body=bytes(1000)) for each in numbered("a", 200)], per_batch=10)
    writer.close()
    fsspec.filesystem("memory").put(writer.root, "/going/data", recursive=True)
    place = open_store("memory://going/data")
    assert isinstance(place.fs, RemoteFiles)

    class Going(RemoteFiles):
        def opened(self, path: str) -> Any:
            if path.endswith(f"/{0:020d}.rlog"):
                raise FileNotFoundError(path)
            return super().opened(path)

    (log,) = list_partitions(place.root, listed(place._replace(fs=Going(place.fs.files, place.fs.prefix))))
    assert (
        log.log_start_offset == log.segments[0].base_offset == list_partitions(writer.root)[0].segments[1].base_offset
    )
    fsspec.filesystem("memory").rm("/going", recursive=True)
