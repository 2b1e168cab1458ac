"""Explain options of Spark's Kafka source that have no meaning here, for users who paste Kafka code.

Option names are given in the form of ``spelling.plain``. The tables have them as Kafka writes them.

Must not import files or pyspark.
Source: Spark's Kafka integration guide, "Kafka Specific Configurations".
"""

from __future__ import annotations

import re

from radiator.routing.pattern import segments
from radiator.spark.spelling import plain

_FILES = (
    "the source reads the files of the log and connects to no broker; drop it, and use "
    '.load("<data_dir of the broker>")'
)
_OWN = "the source has no consumer group: the checkpoint of the query has the offsets; drop it"
_TUNING = "the source reads files without a consumer; drop it"

_INSTEAD = {
    "kafka.bootstrap.servers": _FILES,
    "kafka.group.id": _OWN,
    "groupIdPrefix": _OWN,
    "assign": 'use option("partition", "a,b") for partitions by name, or subscribe for destinations',
    "includeHeaders": "the columns headers and tags are there without it; drop it",
    "startingOffsetsByTimestampStrategy": "a time that no record has reached yet begins at the end; drop it",
    "minOffsetsPerTrigger": 'use trigger(processingTime="1 minute") to have fewer and larger batches',
    "maxTriggerDelay": 'use trigger(processingTime="1 minute") to have fewer and larger batches',
    "maxRecordsPerPartition": "use split_bytes or minPartitions to have smaller tasks",
    "kafkaConsumer.pollTimeoutMs": _TUNING,
    "fetchOffset.numRetries": _TUNING,
    "fetchOffset.retryIntervalMs": _TUNING,
    "topic": "to read, use subscribe (names of destinations) or subscribePattern",
}


_DESERIALIZERS = ("key.deserializer", "value.deserializer")
_SERVERS = 'use option("url", "stomp://host:61613"), the address of the broker, and drop it'
_TO_WRITE = {
    "topic": 'use option("destination", "/topic/results"), or have a column destination',
    "kafka.bootstrap.servers": _SERVERS,
    "bootstrap.servers": _SERVERS,
}


def instead_of_writing(plain_name: str) -> str | None:
    """Return what to write instead of an option of the Kafka sink, or None if it is not one of them.

    Args:
        plain_name: The option, in the form of ``spelling.plain``.
    """
    if plain_name in _TO_WRITE:
        return _TO_WRITE[plain_name]
    if plain_name.startswith("kafka.") or plain_name in ("key.serializer", "value.serializer", "includeheaders"):
        return "the sink writes to a STOMP broker without a Kafka producer; drop it"
    return None


_SPELLED = {plain(name): name for name in _INSTEAD}


def called(key: str) -> str:
    """Return an option as Kafka's source writes it, if it is one that is refused here.

    Spark passes names in lower case.

    Args:
        key: The option as it was given.
    """
    return _SPELLED.get(plain(key), key)


def instead(plain_name: str) -> str | None:
    """Return what to write instead of an option of the Kafka source, or None if it is not one of them.

    Args:
        plain_name: The option, in the form of ``spelling.plain``.
    """
    if plain_name.removeprefix("kafka.") in _DESERIALIZERS:
        return "body is binary and text needs a cast, as in body.cast('string'); drop it"
    if plain_name == "bootstrap.servers":
        return _FILES
    spelled = _SPELLED.get(plain_name)
    if plain_name.startswith("kafka.") and spelled is None:
        return _FILES
    return None if spelled is None else _INSTEAD[spelled]


_COLUMNS = {
    "value": "body",
    "key": "headers['partition-key']",
    "topic": "destination",
    "timestamp": "receive_time",
    "timestamptype": "receive_time, always the broker's time",
}


def column_instead(name: str) -> str | None:
    """Return the column that corresponds to a column of Kafka's source, or None if it is not one of them.

    Args:
        name: The name of the column.

    Example:
        >>> column_instead("value")
        'body'
    """
    return _COLUMNS.get(name.lower())


def looks_like_a_regular_expression(text: str) -> bool:
    """Return True if a text is probably a regular expression and not a destination pattern.

    Args:
        text: The value of ``subscribePattern``.
    """
    if any(character in text for character in "^$\\|()[]"):
        return True
    return any(_has_dot_star(each.strip()) for each in text.split(","))


def _has_dot_star(text: str) -> bool:
    """Return True if the text contains ``.*`` in Java's sense: at the start of a segment, or before more of a name.

    In a destination pattern ``*`` is one whole segment.
    """
    return bool(re.search(r"(^|[./])\.[*+]", text)) or any(
        len(part) > 1 and part.startswith("*") for part in segments(text)
    )
