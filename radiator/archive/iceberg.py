"""Register the data files of an archive in an Iceberg table, for programs that read Iceberg and not Delta.

The table has the same Parquet files, and no copy of them: ``pyiceberg`` reads their footers and writes Iceberg's
metadata to ``_iceberg/`` in the archive. Each registration is one snapshot with all files of a version of the archive.
Files that a merge has replaced are removed from the table in the snapshot that adds the merged ones. The summary of the
snapshot has the version, so a registration can be repeated, and continues where the last one stopped.

Data files have no field ids, so the table has a name mapping. Their directory gives the date; Iceberg derives it from
the bounds of ``receive_time``, which are in one day.

This module knows the manifest and pyiceberg. It does not write data files.
Source: Apache Iceberg, "Table Spec", "Column Projection" and "Partition Transforms".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from radiator.archive.actions import schema_string
from radiator.archive.files import Files
from radiator.archive.listing import load_existing
from radiator.columns.schema import arrow_schema
from radiator.errors import RadiatorError, StorageError

if TYPE_CHECKING:
    from radiator.archive.contents import State

TABLE = "radiator.archive"
METADATA = "_iceberg"  # in the archive
VERSION_KEY = "radiator.version"  # of a snapshot's summary
ARCHIVE_KEY = "radiator.archive"  # of the table: the id of the Delta table
LOCATION_KEY = "radiator.location"  # of the table: where that Delta table is; a copy has the same id
TRIES_MAX = 5
RETRIES_KEY = "commit.retry.num-retries"
_AT_A_TIME = 16  # footers that are read
_MEASURED = ("destination", "partition", "offset", "receive_time", "event_time", "transmit_time", "receive_ns", "size")


class Registered(NamedTuple):
    """What a registration has changed.

    Attributes:
        version: The version of the archive that the table has now.
        added: The number of files that were added.
        removed: The number of files that were removed, because a merge has replaced them.
    """

    version: int
    added: int
    removed: int


def register(files: Files, catalog: str, table: str = TABLE) -> Registered:
    """Make an Iceberg table have the files of the latest version of an archive. Create the table if necessary.

    Args:
        files: The archive.
        catalog: The URI of an SQL database (``sqlite:////srv/iceberg.db``, ``postgresql+psycopg2://...``) or of a REST
            catalogue, or the name of a catalogue in the configuration of pyiceberg.
        table: The name of the table, with its namespace.

    Raises:
        NoArchive: There is no archive.
        StorageError: The archive cannot be read, the catalogue reports an error, or the table is not this archive's.
    """
    with _reported(catalog):
        opened = _opened(catalog)
        for _ in range(TRIES_MAX):
            state = load_existing(files)
            done = _once(files, state, opened, table)
            if done is not None:
                return done
    raise StorageError(f"Iceberg table {table}: other programs change it all the time; try again")


def _opened(catalog: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("radiator", uri=catalog) if "://" in catalog else load_catalog(catalog)


@contextlib.contextmanager
def _reported(catalog: str) -> Iterator[None]:
    """Report errors of pyiceberg, and of the database below it, which have no common class."""
    try:
        yield
    except (RadiatorError, ImportError):
        raise
    except Exception as error:
        where = catalog.rpartition("@")[2] if "://" in catalog else catalog
        said = str(error).partition("\n")[0]  # SQLAlchemy adds a link
        raise StorageError(f"Iceberg catalogue {where}: {type(error).__name__}: {said}") from error


def _once(files: Files, state: State, catalog: Any, name: str) -> Registered | None:
    """Register a version. Return None if another program has changed the table meanwhile."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    wanted = {location(files, path): path for path in state.files}
    try:
        with _metadata(files, name):
            table = catalog.load_table(name)
    except NoSuchTableError:
        table, known = None, {}
        transaction = _created(files, state, catalog, name)
    else:
        registered = _registered(files, state, table, name)
        if registered == state.version:
            return Registered(state.version, 0, 0)
        if registered > state.version:
            state = load_existing(files)  # another run was faster
            if registered > state.version:
                raise StorageError(
                    f"Iceberg table {name}: it has version {registered} of the archive, and {files.uri} ends at "
                    f"version {state.version}: commits of the archive are missing; restore them"
                )
            return None
        with _metadata(files, name):
            known = _known(table)
        transaction = table.transaction()
    added, removed = wanted.keys() - known.keys(), known.keys() - wanted.keys()
    try:
        with transaction:
            if state.table is not None and state.table.schema != schema_string():
                _extend(transaction, _schemas(files, (wanted[each] for each in added)))
            _add_snapshot(transaction, sorted(added), [known[each] for each in sorted(removed)], state.version)
    except (CommitFailedException, TableAlreadyExistsError):
        return None
    return Registered(state.version, len(added), len(removed))


@contextlib.contextmanager
def _metadata(files: Files, name: str) -> Iterator[None]:
    """Report that metadata of the table is missing, with what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(
            f"Iceberg table {name}: the catalogue has it, and its metadata is missing ({error}): restore "
            f"{files.named(METADATA)}/; or drop the table without its files, and register the archive again"
        ) from error


def location(files: Files, path: str) -> str:
    """Return the location of a file in Iceberg's metadata: a URI without secrets.

    Args:
        files: The archive.
        path: The path of the file in the archive.

    Raises:
        StorageError: The archive has a name that Iceberg's locations cannot have.
    """
    whole = files.named(path) if files.local is None else f"file://{files.address(path)}"
    if "#" in whole or "?" in whole:
        raise StorageError(f"{files.uri}: Iceberg cannot have files whose location has # or ?: move the archive")
    return whole


def _created(files: Files, state: State, catalog: Any, name: str) -> Any:
    """Return the transaction that creates the table. Its first snapshot is part of it."""
    from pyiceberg.transforms import DayTransform

    assert state.table is not None
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    measured = {f"write.metadata.metrics.column.{column}": "full" for column in _MEASURED}
    transaction = catalog.create_table_transaction(
        name,
        arrow_schema(),
        location=location(files, METADATA),
        properties={
            ARCHIVE_KEY: state.table.id,
            LOCATION_KEY: location(files, ""),
            RETRIES_KEY: "0",  # a retry of pyiceberg would add and remove the files of an earlier version
            "gc.enabled": "false",  # the files belong to the archive: no program may delete them with the table
            "write.metadata.metrics.default": "none",
            **measured,
        },
    )
    with transaction.update_spec() as spec:
        spec.add_field("receive_time", DayTransform(), "date")
    _map_names(transaction)
    return transaction


def _map_names(transaction: Any) -> None:
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({"schema.name-mapping.default": mapping})


def _registered(files: Files, state: State, table: Any, name: str) -> int:
    """Return the version of the archive that the table has; -1 if it has none.

    Raises:
        StorageError: The table is not of this archive at this place, or another program has changed it.
    """
    assert state.table is not None
    if table.properties.get(ARCHIVE_KEY) != state.table.id:
        raise StorageError(f"Iceberg table {name}: it is not the table of {files.uri}; choose another name for it")
    here, there = location(files, ""), table.properties.get(LOCATION_KEY)
    if here != there:
        raise StorageError(
            f"Iceberg table {name}: it has the files of {there}, and this archive is at {here}: choose another name "
            "for a copy; if the archive was moved, drop the table without its files and register the archive again"
        )
    if table.properties.get(RETRIES_KEY) != "0":
        raise StorageError(f"Iceberg table {name}: expected the property {RETRIES_KEY} to be 0; set it")
    snapshot = table.current_snapshot()
    if snapshot is None:
        return -1
    version = None if snapshot.summary is None else snapshot.summary[VERSION_KEY]
    if version is None:
        raise StorageError(
            f"Iceberg table {name}: another program has changed it (snapshot {snapshot.snapshot_id}); roll it back, or "
            "drop it without its files and register the archive again"
        )
    return int(version)


def _known(table: Any) -> dict[str, Any]:
    """Return the data files of the current snapshot, by location."""
    snapshot = table.current_snapshot()
    found = {}
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found[entry.data_file.file_path] = entry.data_file
    return found


def _schemas(files: Files, paths: Iterable[str]) -> list[pa.Schema]:
    """Return the different schemas of files, with columns that not all archives have."""

    def schema(path: str) -> pa.Schema:
        with files.open(path) as file:
            return pq.read_schema(file).remove_metadata()

    found: list[pa.Schema] = []
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for each in pool.map(schema, paths):
            if not each.equals(arrow_schema()) and each not in found:
                found.append(each)
    return found


def _extend(transaction: Any, schemas: Iterable[pa.Schema]) -> None:
    """Add new columns to the table."""
    for each in schemas:
        with transaction.update_schema() as update:
            update.union_by_name(each)
        _map_names(transaction)


def _add_snapshot(transaction: Any, added: list[str], removed: list[Any], version: int) -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    io, metadata = transaction._table.io, transaction.table_metadata
    summary: Mapping[str, str] = {VERSION_KEY: str(version)}
    update = transaction.update_snapshot(snapshot_properties=summary)
    with update.overwrite() if removed else update.fast_append() as snapshot:
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for made in pool.map(lambda each: parquet_file_to_data_file(io, metadata, each), added):
                snapshot.append_data_file(made)
        for each in removed:
            snapshot.delete_data_file(each)
