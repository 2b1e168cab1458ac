"""Start Spark for the sections of a report that query it, and read the same part of the store as the other sections."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from radiator.clock import rfc3339
from radiator.columns.scan import LostRecords
from radiator.errors import RadiatorError, StorageError
from radiator.spark.arrow_reader import ArrowReader
from radiator.spark.cached_scan import CACHED_MAX_BYTES, SETTINGS, TIMES, CachedScan
from radiator.spark.interrupt import ended_by_interrupt
from radiator.spark.jobs import absent
from radiator.spark.jobs.archived_damage import absent_from_both
from radiator.spark.reasons import reason
from radiator.spark.sections.options import SAMPLES, Options
from radiator.spark.sections.part import Rows
from radiator.spark.sections.work import Read, Work
from radiator.spark.session import get_session, read
from radiator.storage.reader import StoredPartition


@contextlib.contextmanager
def spark_work(
    source: ArrowReader, options: Options, logs: Sequence[StoredPartition], known: Collection[str] | None,
    waiting: Rows, spark: SparkSession | None,
) -> Iterator[Work]:  # fmt: skip
    """Yield the part of a store that a report is about, with a session of Spark.

    Args:
        source: The store and the archive.
        options: The options of the report.
        logs: The partitions of the store.
        known: All destinations of the store, or None if they are not known.
        waiting: The cursors whose messages wait.
        spark: The session to use. None uses the active session, or starts a local one and stops it at the end.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
        JavaMissing: No usable Java was found.
        StorageError: Spark cannot read the store.
    """
    own = spark is None and SparkSession.getActiveSession() is None  # do not stop a session that ran before
    size = sum(log.size_bytes for log in logs)
    settings = SETTINGS if own and source.archive is None and size <= CACHED_MAX_BYTES else None
    with contextlib.ExitStack() as ending, contextlib.ExitStack() as forgetting:
        session = spark or get_session("radiator report", config=settings, log_level="OFF")
        if own:
            ending.enter_context(ended_by_interrupt())
        try:
            reader: Read
            if source.archive is not None:
                reader = _both(session, source)
                lacks = _spelling(partial(absent_from_both, session, source.path, source.archive))
            else:
                assert source.path is not None
                until = json.dumps(source.ends)
                one = partial(
                    read, session, source.path, ending_offsets=until, fail_on_data_loss=source.fail_on_data_loss
                )
                reader = scan_cache = CachedScan(_spelling(partial(one, warn_once=source.warn_once)), size)
                forgetting.callback(scan_cache.clear)
                lacks = _spelling(partial(absent, session, source.path, ending_offsets=until))
            sizes = {log.name: log.size_bytes for log in logs}
            yield Work(session, reader, options, sizes, lacks, source.archive is not None, known, waiting, source)
        except KeyboardInterrupt:
            own = False  # the JVM has ended already
            raise
        except RadiatorError:
            raise
        except Exception as error:
            text = reason(error)
            if text is None:
                raise
            raise (LostRecords if "LostRecords: " in str(error) else StorageError)(text) from error
        finally:
            forgetting.close()
            if own:
                session.stop()


def _spelling(ask: Read) -> Read:
    """Return the reader with times passed as texts, because numbers are nanoseconds only from the year 2001 on."""

    def asked(**options: Any) -> DataFrame:
        return ask(**{name: rfc3339(value) if name in TIMES else value for name, value in options.items()})

    return asked


def _both(session: SparkSession, source: ArrowReader) -> Read:
    """Return a reader of archive and log that ends when the report began.

    The end of the log is found again for each section.
    """
    from radiator.spark.tables import table

    def report(text: str) -> None:
        if f"'{SAMPLES}'" not in text:  # the section lag reports missing samples itself
            source.report(text)

    def reader(columns: Iterable[str], **asked: Any) -> DataFrame:
        end, start = min(asked.pop("end_time", source.now_ns), source.now_ns), asked.pop("start_time", None)
        since = None if start is None else rfc3339(start)
        return table(
            session, source.path, source.archive, columns=columns, start=since, end=rfc3339(end), typed=False,
            fail_on_data_loss=source.fail_on_data_loss, report=report, warn_once=source.warn_once, **asked,
        )  # fmt: skip

    return reader
