"""Write to a broker over STOMP: ``df.write`` and ``df.writeStream`` of the format ``radiator``.

Each task has a connection of its own and sends its rows without a wait between them. The task ends when the last row
has a receipt, so rows that Spark counts as written are stored as the rule of the destination says. Nothing can be
undone: a failed attempt has sent some rows, and the next attempt sends them again with the same ids, which the broker
recognises. ``commit`` and ``abort`` do nothing.

The epoch: Spark passes the id of the query (from its checkpoint) and the number of the epoch to a task as local
properties. A batch has neither; its id is created when it is planned, and is the same in all tasks and attempts.
Through Spark Connect the batches of foreachBatch have neither, and the user has to give the epoch.

Uses pyspark's writers and tasks. See also sink_options, sink_rows, sink_ids and ``radiator.client.reliable``.
Source: PySpark, "Python Data Source API", DataSourceArrowWriter.
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

from radiator.client import Connection, Reconnect, connect
from radiator.client.errors import BadTls, ConnectFailed, ServerError, TimedOut
from radiator.client.reliable import ReliableSender
from radiator.errors import ClientError, ConfigError
from radiator.limits import MIB
from radiator.spark.shipped_import import with_package
from radiator.spark.sink_ids import Ids
from radiator.spark.sink_options import BATCH, SinkOptions, parse
from radiator.spark.sink_rows import Rows
from radiator.spark.worker import quiet

QUERY_PROPERTY, EPOCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
TAGS_PROPERTY, CONNECT_TAG = "spark.job.tags", "SparkConnect_OperationTag"
CONNECT_SECONDS_MAX = 10.0
ROWS_AT_A_TIME, BYTES_AT_A_TIME = 4096, 4 * MIB  # converted to Python objects at a time
PROBE_SECONDS_MAX = 10.0  # enough for a broker that restarts; a user with a wrong port should not wait longer


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    """The writer of a batch.

    Args:
        options: The options of the sink.
        rows: The conversion of rows to messages.
    """

    def __init__(self, options: SinkOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows
        self._query = options.query or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, and return the message for the driver.

        Args:
            iterator: The batches of rows.

        Raises:
            ConfigError: A row cannot be sent, or Spark Connect needs the option ``epoch``.
            ClientError: The broker does not answer, or refused a message.
        """
        quiet()
        return _write(iterator, self._options, self._rows, self._query, self._epoch())

    def _epoch(self) -> str:
        """Return the number of the epoch, or BATCH.

        foreachBatch writes batches too, and Spark passes the epoch to their tasks. It counts only with the option
        ``query``, because two writes of one epoch are different and only the user can tell them apart. Spark Connect
        passes no epoch.
        """
        options = self._options
        if not options.query:
            return BATCH
        epoch = options.epoch or _property(EPOCH_PROPERTY)
        if epoch is None and options.ids_have_epochs and CONNECT_TAG in (_property(TAGS_PROPERTY) or ""):
            raise ConfigError(
                "through Spark Connect a task cannot see whether foreachBatch started it, and equal rows of different "
                'epochs would be stored once: expected option("epoch", epoch) beside query, with the number that '
                f'foreachBatch gives, or option("epoch", "{BATCH}") for a batch by itself'
            )
        return epoch or BATCH


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writer of a stream.

    Args:
        options: The options of the sink.
        rows: The conversion of rows to messages.
    """

    def __init__(self, options: SinkOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return with_package(super().__reduce_ex__(protocol))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task, and return the message for the driver.

        Args:
            iterator: The batches of rows.

        Raises:
            ConfigError: A row cannot be sent, or Spark does not pass query and epoch to its tasks.
            ClientError: The broker does not answer, or refused a message.
        """
        quiet()
        options = self._options
        query, epoch = options.query or _property(QUERY_PROPERTY), _property(EPOCH_PROPERTY)
        if options.dedup != "none" and (query is None or (epoch is None and options.ids_have_epochs)):
            raise ConfigError(
                "this Spark does not pass query and epoch to its tasks, so repeated rows cannot be recognised: "
                "expected dedup_by with query, or dedup=none"
            )
        return _write(iterator, options, self._rows, query or "", epoch or "")


def batch_sink(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """Return the writer of a batch, after a check that the broker accepts the connection.

    Args:
        given: The options as Spark passes them.
        schema: The columns of the DataFrame.
        overwrite: True for the mode ``overwrite``, which is refused.

    Raises:
        ConfigError: An option or a column is unknown, or the mode is ``overwrite``.
        ClientError: The broker does not answer, or refuses the login.
    """
    if overwrite:
        raise ConfigError(
            'mode "overwrite" is refused, because stored messages are never replaced; expected mode("append")'
        )
    options = parse(given)
    sink = BatchSink(options, Rows(schema, options))
    probe = ReliableSender(
        lambda policy: _connect(options, policy), patience_seconds=min(options.timeout_seconds, PROBE_SECONDS_MAX)
    )
    with _in_words(options):
        probe.open()
    probe.close()
    return sink


def stream_sink(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """Return the writer of a stream.

    Args:
        given: The options as Spark passes them.
        schema: The columns of the stream.
        overwrite: True for the output mode ``complete``, which is refused.

    Raises:
        ConfigError: An option or a column is unknown, or the output mode is ``complete``.
    """
    if overwrite:
        raise ConfigError(
            'outputMode "complete" is refused, because stored messages are never replaced; expected "append", '
            "or foreachBatch, which may write each state of a table"
        )
    options = parse(given)
    if options.epoch is not None:
        raise ConfigError("option epoch is for batches that foreachBatch writes; Spark sets it for a stream: drop it")
    return StreamSink(options, Rows(schema, options))


def _write(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, rows: Rows, query: str, epoch: str
) -> WriterCommitMessage:
    context = TaskContext.get()
    ids = Ids(query, epoch, context.partitionId() if context else 0, options.dedup, bool(options.dedup_by))
    sender = ReliableSender(
        lambda policy: _connect(options, policy, transmit_time=not rows.speaks_of_transmit_time),
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
    return WriterCommitMessage()


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in smaller batches.

    Spark's batches have up to 64 MiB, and the Python objects of a batch need as much again.

    Args:
        batches: The batches of Spark.
    """
    for batch in batches:
        rows = min(ROWS_AT_A_TIME, max(batch.num_rows * BYTES_AT_A_TIME // max(batch.nbytes, 1), 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


@contextmanager
def _in_words(options: SinkOptions) -> Iterator[None]:
    """Convert errors of the client to one line that names the broker."""
    try:
        yield
    except TimedOut as error:
        raise TimedOut(f"the broker at {options.address}: {error} (option timeout)") from None
    except ClientError as error:
        raise ClientError(f"the broker at {options.address}: {' '.join(str(error).split())}") from None
    except ValueError as error:  # a header that is not allowed
        raise ConfigError(f"a row cannot be sent: {' '.join(str(error).split())}") from None


def _connect(options: SinkOptions, policy: Reconnect, transmit_time: bool = True) -> Connection:
    try:
        return connect(
            options.address,
            login=options.login,
            passcode=options.passcode,
            timeout=options.timeout_seconds,
            connect_timeout=min(options.timeout_seconds, CONNECT_SECONDS_MAX),
            reconnect=policy,
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
