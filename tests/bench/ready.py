"""The upper limit of a Python data source: one that hands over Arrow batches that lie ready made in memory-mapped
files, and does nothing else. What a source of the same rows takes longer is its own work; the rest is Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.spark.options import parse
from radiator.spark.schema import SCHEMA, arrow_schema, select


class ReadyFile(InputPartition):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ReadyReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        return [ReadyFile(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadyFile)
        reader = pa.ipc.open_file(pa.memory_map(partition.path))
        return map(reader.get_batch, range(reader.num_record_batches))


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(self.options["path"])


def make_ready(spark: SparkSession, store: str, folder: Path, columns: Sequence[str]) -> None:
    """The batches that a read of these columns yields, one file for each of its tasks."""
    folder.mkdir()
    options = parse({"path": store})
    schema = arrow_schema(select(columns))
    for number, ranges in enumerate(plan(options)):
        with pa.OSFile(str(folder / f"{number:06d}.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as out:
            for batch in read(ranges, options, schema, Counters()):
                out.write_batch(batch)
