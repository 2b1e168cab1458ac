"""Headers that keep their types."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.client.typed import HEADER, Value, typed, untyped

NAMES = st.text(min_size=1).filter(lambda name: name != HEADER)
VALUES = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.dictionaries(NAMES, VALUES))
def test_what_was_typed_comes_back_as_it_was(values: dict[str, Value]) -> None:
    headers = typed(values)
    assert all(isinstance(text, str) for text in headers.values())
    found = untyped(headers)
    assert found == values
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in values.items()}


def test_text_needs_no_header_of_its_own() -> None:
    assert typed({"a": "1"}) == {"a": "1"}


def test_a_header_that_was_changed_on_the_way_keeps_its_text() -> None:
    headers = {**typed({"delay": 3, "late": True}), "delay": "4"}
    assert untyped(headers) == {"delay": "4", "late": True}


@pytest.mark.parametrize("kept", ["", "[]", "{", '{"other": 1}', '{"a": [1]}', '{"a": {"b": 1}}'])
def test_a_header_that_is_not_ours_changes_nothing(kept: str) -> None:
    assert untyped({"a": "1", HEADER: kept}) == {"a": "1"}


def test_what_no_header_can_be_is_refused() -> None:
    with pytest.raises(TypeError, match="header a: expected text"):
        typed({"a": [1]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="header a: expected a number"):
        typed({"a": math.inf})
