"""The list of destinations of a partition."""

from __future__ import annotations

from radiator.storage import names


def test_names_come_back_and_a_torn_one_is_left_out() -> None:
    data = b"".join(map(names.encode_entry, ["/topic/a", "ä", "x" * 1_000]))
    assert names.decode(data) == (["/topic/a", "ä", "x" * 1_000], len(data))
    assert names.decode(data[:-1]) == (["/topic/a", "ä"], 26)
    assert names.decode(data + bytes(9)) == (["/topic/a", "ä", "x" * 1_000], len(data))
    assert names.decode(b"") == ([], 0)
