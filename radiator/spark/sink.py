"""Writing: ``df.write`` and ``df.writeStream`` of the format ``radiator``, to a broker over STOMP.

Each task has a connection of its own and sends its rows without waiting for one another; it has done its work when a
receipt speaks for the last of them. So what Spark takes for written is stored as the destination's rule says. Nothing
can be taken back: an attempt that fails has sent what it has sent, and the next one sends the same ids, which the
broker knows. ``commit`` and ``abort`` have nothing to do.

Where the epoch comes from: Spark tells a task the query's id (from its checkpoint) and the epoch's number as local
properties. A batch has neither; its id is made when it is planned and the same in all its tasks and their attempts.
Through Spark Connect the batches of foreachBatch have neither, and the user has to say which epoch it is.

Knows: pyspark's writers and tasks. The rest is in sink_options, sink_rows, sink_ids and ``radiator.client.sure``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, SupportsIndex

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from radiator.client import Connection, connect
from radiator.client.errors import BadTls, ConnectFailed, ServerError, TimedOut
from radiator.client.sure import SureSender
from radiator.errors import ClientError, ConfigError
from radiator.limits import MIB
from radiator.spark.bringing import bring
from radiator.spark.sink_ids import Ids
from radiator.spark.sink_options import BATCH, SinkOptions, parse
from radiator.spark.sink_rows import Rows
from radiator.spark.worker import quiet

QUERY_PROPERTY, EPOCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
TAGS_PROPERTY, CONNECT_TAG = "spark.job.tags", "SparkConnect_OperationTag"
CONNECT_SECONDS_MAX = 10.0
ROWS_AT_A_TIME, BYTES_AT_A_TIME = 4096, 4 * MIB  # of which Python's objects are made
PROBE_SECONDS_MAX = 10.0  # for a broker that is just being restarted; who has mistyped a port should not wait longer


class Stored(WriterCommitMessage):  # type: ignore[misc]  # pyspark is untyped here
    """What one task has stored."""

    def __init__(self, messages: int, sent_again: int) -> None:
        self.messages = messages
        self.sent_again = sent_again


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows
        self._query = options.query or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        quiet()
        return _write(iterator, self._options, self._rows, self._query, self._epoch())

    def _epoch(self) -> str:
        """foreachBatch writes batches, and Spark tells their tasks the epoch as well. The name must be the user's: two
        writes of one epoch are two, and only he can tell them apart. Spark Connect tells no epoch."""
        options = self._options
        if not options.query:
            return BATCH
        epoch = options.epoch or _property(EPOCH_PROPERTY)
        if epoch is None and options.ids_have_epochs and CONNECT_TAG in (_property(TAGS_PROPERTY) or ""):
            raise ConfigError(
                "through Spark Connect no task is told whether foreachBatch has begun it, and what epochs say alike "
                'would be stored once: expected option("epoch", epoch) beside query, with the number that foreachBatch '
                f'gives, or option("epoch", "{BATCH}") where it is a batch by itself'
            )
        return epoch or BATCH


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return bring(super().__reduce_ex__(protocol))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        quiet()
        options = self._options
        query, epoch = options.query or _property(QUERY_PROPERTY), _property(EPOCH_PROPERTY)
        if options.dedup != "none" and (query is None or (epoch is None and options.ids_have_epochs)):
            raise ConfigError(
                "this Spark does not tell its tasks which query and epoch they belong to, so no row can be told from "
                "its repeat: expected dedup_by with query, or dedup=none"
            )
        return _write(iterator, options, self._rows, query or "", epoch or "")


def batch_sink(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """Raises ConfigError, and ClientError if the broker is not there or does not let us in: before a row is sent."""
    if overwrite:
        raise ConfigError(
            'mode "overwrite" is refused: a log only grows, and what was said stays said; expected mode("append")'
        )
    options = parse(given)
    sink = BatchSink(options, Rows(schema, options))
    probe = SureSender(lambda: _connect(options), patience_seconds=min(options.timeout_seconds, PROBE_SECONDS_MAX))
    with _in_words(options):
        probe.open()
    probe.close()
    return sink


def stream_sink(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """Raises ConfigError."""
    if overwrite:
        raise ConfigError(
            'outputMode "complete" is refused: it replaces what was written, and a log only grows; expected "append", '
            "or foreachBatch, which may write each state of a table"
        )
    options = parse(given)
    if options.epoch is not None:
        raise ConfigError("option epoch is for batches that foreachBatch writes: of a stream Spark tells it; drop it")
    return StreamSink(options, Rows(schema, options))


def _write(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, rows: Rows, query: str, epoch: str
) -> WriterCommitMessage:
    context = TaskContext.get()
    ids = Ids(query, epoch, context.partitionId() if context else 0, options.dedup, bool(options.dedup_by))
    sender = SureSender(
        lambda: _connect(options, transmit_time=not rows.speaks_of_transmit_time),
        patience_seconds=options.timeout_seconds,
        messages_per_receipt=options.messages_per_receipt,
    )
    number = 0
    try:
        with _in_words(options):
            for batch in pieces(iterator):
                for row in rows.read(batch, number):
                    message = row.message
                    dedup_id = None if row.own_id else ids.of(row.digest, row.placed)
                    if dedup_id is not None:
                        message = message._replace(headers={**(message.headers or {}), "dedup-id": dedup_id})
                    sender.send(message)
                number += batch.num_rows
            sender.flush()
    except BaseException:
        sender.abandon()
        raise
    sender.close()
    return Stored(sender.stored, sender.sent_again)


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, fewer at a time: Spark's batches have 64 MiB, and what is made of a batch as much again."""
    for batch in batches:
        rows = min(ROWS_AT_A_TIME, max(batch.num_rows * BYTES_AT_A_TIME // max(batch.nbytes, 1), 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


@contextmanager
def _in_words(options: SinkOptions) -> Iterator[None]:
    """What the client raises, as one line that says which broker it was."""
    try:
        yield
    except TimedOut as error:
        told = f"{error} (option timeout); a queue that is full and blocks answers when it has room"
        raise TimedOut(f"the broker at {options.address}: {told}") from None
    except ClientError as error:
        raise ClientError(f"the broker at {options.address}: {' '.join(str(error).split())}") from None
    except ValueError as error:  # a header that no frame can have
        raise ConfigError(f"a row cannot be sent: {' '.join(str(error).split())}") from None


def _connect(options: SinkOptions, transmit_time: bool = True) -> Connection:
    try:
        return connect(
            options.address,
            login=options.login,
            passcode=options.passcode,
            timeout=options.timeout_seconds,
            connect_timeout=min(options.timeout_seconds, CONNECT_SECONDS_MAX),
            transmit_time=transmit_time,
            ca=options.ca,
            cert=options.cert,
            key=options.key,
        )
    except BadTls as error:
        raise BadTls(f"{error} (options url, ca, cert, key)") from None
    except ConnectFailed as error:
        raise ConnectFailed(f"{error} (option url)") from None
    except ServerError as error:
        if error.code != "denied":
            raise
        detail = f"{error.detail.strip()} (options login and passcode, or passcodeFile)"
        raise ServerError(error.code, error.message, detail, error.receipt) from None


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None
