"""Words that agree with a number, for messages to people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and what it counts.

    Args:
        number: The number.
        noun: The noun in singular.
        plural: The noun in plural, if it is not the singular and an "s".

    Example:
        >>> counted(1, "message"), counted(1200, "message"), counted(2, "entry", "entries")
        ('1 message', '1,200 messages', '2 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def are(number: int) -> str:
    """Return "is" or "are" for a number."""
    return "is" if number == 1 else "are"
