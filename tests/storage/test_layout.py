"""Names on disk cannot leave their directory, and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.storage import layout


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_every_name_comes_back_and_is_one_harmless_component(name: str) -> None:
    try:
        encoded = layout.encode_name(name)
    except ValueError as error:
        assert str(limits.DESTINATION_BYTES_MAX) in str(error)
        return
    assert layout.decode_name(encoded) == name
    assert "/" not in encoded and "\0" not in encoded and not encoded.startswith(".")
    assert len(encoded) <= limits.DESTINATION_BYTES_MAX
    assert layout.parse_message_id(layout.message_id(name, 2**63)) == (name, 2**63)
    assert not set(layout.message_id(name, 1)) & set(":\\\r\n")


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("/queue/a", "%2Fqueue%2Fa"), ("..", "%2E."), ("a.b-c_1", "a.b-c_1"), ("ä~", "%C3%A4%7E"), ("%2E", "%252E")],
)
def test_names_are_encoded_like_this(name: str, encoded: str) -> None:
    assert layout.encode_name(name) == encoded


@pytest.mark.parametrize("encoded", ["", ".", "..", "a/b", "%2f", "%41", "a b", "%", "%FF", "~", "lost+found"])
def test_what_encode_cannot_have_made_is_not_decoded(encoded: str) -> None:
    with pytest.raises(ValueError):
        layout.decode_name(encoded)


@pytest.mark.parametrize("text", ["", "a", "a@", "a@-1", "a@1x", "@1", "a@\u0661", "a@" + "9" * 21])
def test_other_texts_are_not_message_ids(text: str) -> None:
    with pytest.raises(ValueError):
        layout.parse_message_id(text)


def test_a_segment_is_named_after_its_base_offset() -> None:
    assert layout.segment_path("/d", 42) == "/d/00000000000000000042.rlog"
    assert layout.segment_base("00000000000000000042.rlog") == 42
    assert layout.index_base("00000000000000000042.idx") == 42
    for other in ("42.rlog", "00000000000000000042.idx", "head", "0000000000000000004x.rlog", "00000000000000000042"):
        assert layout.segment_base(other) is None


def test_a_head_holds_or_is_none() -> None:
    data = layout.encode_head(1, 2, 3).ljust(layout.HEAD_FILE_BYTES, b"\0")
    assert layout.decode_head(data) == layout.Head(1, 2, 3)
    for place in range(36):
        assert layout.decode_head(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]) is None
    whole = (layout.encode_head(1, 2, 3) + layout.encode_listed(layout.Listed(7, 8))).ljust(64, b"\0")
    assert layout.decode_head(whole) == layout.Head(1, 2, 3) and layout.decode_listed(whole) == layout.Listed(7, 8)
    for place in range(layout.LISTED_AT, layout.LISTED_AT + layout.LISTED_BYTES):
        assert layout.decode_listed(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]) is None
    assert layout.decode_listed(data) is None and layout.decode_listed(b"") is None
    assert layout.decode_head(b"") is None
    assert layout.decode_head(bytes(64)) is None
