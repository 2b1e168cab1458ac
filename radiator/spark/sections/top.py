"""Show the most frequent values of every tag, keys and how unevenly they share the traffic, and senders."""

from __future__ import annotations

from collections import Counter

from radiator.spark import units
from radiator.spark.charts import Chart, bars
from radiator.spark.jobs import key_columns, key_skew, partition_balance, senders, top_keys
from radiator.spark.jobs.frequent import PARTITION_KEY, PRODUCER
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Row, Rows
from radiator.spark.sections.work import Work

PANELS_MAX, PANEL_ROWS_MAX = 6, 10  # panels of tags in one chart, and values in each
BARS_MAX = 25
CHANCE_MAX = 20  # messages: with fewer, a share means nothing
SHOWN_MAX = 3  # keys with a line of their own
HEAVY_MIN = 0.1  # the minimum share of a heavy key
UNEVEN_MIN = 2.0  # the minimum multiple of an equal share
_TAGS = (
    Field("key", "tag"),
    Field("value", "value"),
    Field("messages", "messages", "count"),
    Field("share", "share of the tag", "share"),
    Field("values", "values in all", "count"),
)
_KEYS = (
    Field("value", "key"),
    Field("messages", "messages", "count"),
    Field("share", "share", "share"),
    Field("bytes", "bytes", "size"),
    Field("partitions", "partitions", "count"),
    Field("first_received", "first received", "moment", page_only=True),
    Field("last_received", "last received", "moment"),
)
_SENDERS = (
    Field("sender", "sender"),
    Field("messages", "messages", "count"),
    Field("share", "share", "share"),
    Field("bytes", "bytes", "size"),
    Field("destinations", "destinations", "count"),
    Field("first_received", "first received", "moment", page_only=True),
    Field("last_received", "last received", "moment"),
    Field("silent_ms", "silent for", "duration"),
)
_BALANCE = (
    Field("destination", "destination"),
    Field("partition", "partition"),
    Field("messages", "messages", "count"),
    Field("bytes", "bytes", "size"),
    Field("share", "share", "share"),
)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``top``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    options, limit = work.options, work.options.limit
    key, sender = options.key or PARTITION_KEY, options.sender or PRODUCER
    answers: Answers = {
        "left_out": work.left_out(),
        "tags": work.job("top_tags", limit=limit),
        "key_skew": work.rows(key_skew(work.frame(*key_columns(key)), key=key), "key_skew"),
        "keys": [],
        "senders": [],
        "partition_balance": work.rows(partition_balance(work.frame("destination", "partition", "size")), "balance"),
    }
    if any(row["messages"] for row in answers["key_skew"]):
        frame = work.frame(*key_columns(key, "partition", "size", "receive_time"))
        answers["keys"] = work.rows(top_keys(frame, key=key, limit=limit), "keys")
    frame = work.frame(*key_columns(sender, "destination", "size", "receive_time"))
    answers["senders"] = work.rows(senders(frame, sender=sender, limit=limit), "senders")
    return answers


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``top`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    tags, keys, sent = answers["tags"], answers["keys"], answers["senders"]
    uneven = _uneven(answers["partition_balance"])
    if not (tags or keys or sent or uneven):
        found = f"No message carries a tag, {options.key or PARTITION_KEY} or {options.sender or PRODUCER}."
        return Section("Top", summary=found, empty=True)
    said = [
        *([_of_tags(tags)] if tags else []),
        *([_of_keys(keys, answers["key_skew"][0], options)] if keys else []),
        *([_of_senders(sent, options)] if sent else []),
        *([_of_partitions(uneven)] if uneven else []),
    ]
    tables = [
        *([Table(f"Values of {options.key or PARTITION_KEY}", _KEYS, keys)] if keys else []),
        *([Table(f"Senders, by {options.sender or PRODUCER}", _SENDERS, sent)] if sent else []),
        *([Table("Uneven partitions", _BALANCE, uneven)] if uneven else []),
        *([Table("Values of tags", _TAGS, tags, folded=True)] if tags else []),
    ]
    charts = _charts(tags, keys, sent, options)
    key = options.key or PARTITION_KEY
    heavy = [
        f"{row['value']} has {units.percent(row['share'])} of the messages with {key}"
        for row in _heavy(keys, answers["key_skew"])
    ]
    return Section("Top", summary=" ".join(said), findings=heavy, charts=charts, tables=tables)


def _charts(tags: Rows, keys: Rows, sent: Rows, options: Options) -> list[Chart]:
    charts = []
    if tags:
        used = list(dict.fromkeys(row["key"] for row in tags))
        shown = used[:PANELS_MAX]
        more = f"; {len(used) - PANELS_MAX:,} rarer tags not shown" if len(used) > PANELS_MAX else ""
        charts.append(
            bars(
                "tags",
                "Most frequent values of the tags",
                [{**row, "panel": row["key"]} for row in tags if row["key"] in shown],
                label="value",
                value="messages",
                panel="panel",
                limit=PANEL_ROWS_MAX,
                note="Messages that carry the tag with this value, "
                f"the {min(PANEL_ROWS_MAX, options.limit)} most frequent at most{more}",
            )
        )
    for name, rows, label, header in (
        ("keys", keys, "value", options.key or PARTITION_KEY),
        ("senders", sent, "sender", options.sender or PRODUCER),
    ):
        if rows:
            title = f"Most frequent values of {header}" if name == "keys" else "Senders"
            few = f", the {min(len(rows), BARS_MAX)} most frequent" if len(rows) >= min(options.limit, BARS_MAX) else ""
            note = f"Messages by {header}{few}"
            charts.append(bars(name, title, rows, label=label, value="messages", note=note, limit=BARS_MAX))
    return charts


# --- what is remarkable -----------------------------------------------------------------------------------------------


def _of_tags(rows: Rows) -> str:
    first, tags = rows[0], len({row["key"] for row in rows})
    return (
        f"{units.many(tags, 'tag')}. The most frequent is {first['key']}, with "
        f"{units.many(first['values'], 'value')}; {units.percent(first['share'])} of its messages have "
        f"{first['value']}."
    )


def _of_keys(rows: Rows, skew: Row, options: Options) -> str:
    what = f"{units.many(skew['values'], 'value')} of {options.key or PARTITION_KEY}"
    half, most = skew["values_50"], skew["values_90"]
    said = f"{what}: {half:,} of them {'have' if half > 1 else 'has'} half of the messages, {most:,} have 90%."
    return said + "".join(
        f" {row['value']} alone is {units.percent(row['share'])}." for row in _heavy(rows, [skew])[:1]
    )


def _heavy(keys: Rows, skew: Rows) -> Rows:
    """Return the keys with a large share of the traffic, if there are enough keys for that to be remarkable."""
    many = any(row["values"] > 2 / HEAVY_MIN for row in skew)
    return [row for row in keys if many and row["share"] >= HEAVY_MIN and row["messages"] >= CHANCE_MAX][:SHOWN_MAX]


def _uneven(balance: Rows) -> Rows:
    messages: Counter[str] = Counter()
    for row in balance:
        messages[row["destination"]] += row["messages"]
    return [row for row in balance if row["even"] >= UNEVEN_MIN and messages[row["destination"]] >= CHANCE_MAX]


def _of_senders(rows: Rows, options: Options) -> str:
    first = rows[0]
    share = units.percent(first["share"])
    return f"{first['sender']} sends most, {share} of the messages with {options.sender or PRODUCER}."


def _of_partitions(uneven: Rows) -> str:
    worst = max(uneven, key=lambda row: row["even"])
    return (
        f"Partition {worst['partition']} has {worst['even']:.1f} times its even share of {worst['destination']}: "
        f"{units.percent(worst['share'])} of the messages."
    )
