"""Describe the messages that the sections leave out, and how to include them."""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.jobs.left_out import DEAD_LETTER, OPERATIONS, REPLAYED, WRITTEN
from radiator.spark.sections.part import Answers

_WORDS = {  # of one, of several
    REPLAYED: ("replayed message", "replayed messages"),
    DEAD_LETTER: ("dead letter", "dead letters"),
    WRITTEN: ("message written by Spark", "messages written by Spark"),
}


def of_operations(answers: Answers) -> list[str]:
    """Return a note about operations for the top of a page; none if nothing was left out.

    Args:
        answers: The answers, with ``left_out`` if it was queried.
    """
    rows = [row for row in answers.get("left_out", ()) if row["why"] == OPERATIONS]
    if not rows:
        return []
    names = " and ".join(f"{units.many(row['messages'], 'message')} of {row['destination']}" for row in rows)
    return [f"Left out as operations: {names}. To count them, name them with --destination."]


def of_old_times(answers: Answers) -> list[str]:
    """Return a note for a section about the sender's times.

    Args:
        answers: The answers, with ``left_out`` if it was queried.
    """
    rows = answers.get("left_out", [])
    counts = [(sum(row["messages"] for row in rows if row["why"] == why), words) for why, words in _WORDS.items()]
    parts = [f"{messages:,} {words[messages != 1]}" for messages, words in counts if messages]
    several = " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
    return [f"Left out: {several}, because they have the times of the original message."] if parts else []
