"""The sheet ``top``: the most frequent values of every tag."""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.page import Field, Section, Table
from radiator.spark.pictures import bars
from radiator.spark.sheets.options import Options
from radiator.spark.sheets.work import Answers, Sheet, Work

PANELS_MAX = 6  # small charts of tags in one picture
_TAGS = (
    Field("key", "tag"),
    Field("value", "value"),
    Field("messages", "messages", "count"),
    Field("share", "share of the tag", "share"),
    Field("values", "values in all", "count"),
)


def run(work: Work) -> Answers:
    return {"tags": work.job("top_tags", limit=work.options.limit)}


def section(answers: Answers, options: Options) -> Section:
    rows = answers["tags"]
    if not rows:
        return Section("Tags", found="No message carries a tag.", nothing=True)
    keys = list(dict.fromkeys(row["key"] for row in rows))
    picture = bars(
        "tags",
        "Most frequent values of the tags",
        [{**row, "panel": row["key"]} for row in rows if row["key"] in keys[:PANELS_MAX]],
        label="value",
        value="messages",
        unit="short",
        panel="panel",
        limit=10,
        note="Messages that carry the tag with this value, the ten most frequent each",
    )
    first = rows[0]
    found = (
        f"{units.many(len(keys), 'tag')} in use. Most messages have {first['key']}, with "
        f"{units.many(first['values'], 'value')}; {first['share']:.0%} of them say {first['value']}."
    )
    return Section("Tags", found=found, pictures=[picture], tables=[Table("Values", _TAGS, rows, folded=True)])


SHEET = Sheet(run, section)
