"""Header blocks as maps: the vectorised way says the same as the header codec, whatever the block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.columns.headermap import HeaderMaps
from radiator.columns.uniform import BLOCKS_MIN, uniform_blocks
from radiator.stomp.headers import join, split_block

pytestmark = pytest.mark.spark

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NAMES = st.one_of(TEXT.filter(bool), st.sampled_from(["tag-a", "tag-", "tag", "tag-b:c", "number"]))
HEADERS = st.dictionaries(NAMES, TEXT, max_size=5)


def stored(headers: dict[str, str]) -> bytes:
    return join(headers.items(), "1.2")[1:].encode()


def maps_of(blocks: list[bytes], before: bytes = b"") -> HeaderMaps:
    """As the decoder holds them: in one buffer, which may have begun earlier."""
    data = np.frombuffer(before + b"".join(blocks), np.uint8)
    offsets = np.cumsum([len(before), *map(len, blocks)]).astype(np.int32)
    return HeaderMaps(data, offsets)


@given(st.lists(HEADERS, min_size=1, max_size=12), st.sampled_from([b"", b"x:y\n:"]))
def test_headers_and_tags_of_stored_blocks(messages: list[dict[str, str]], before: bytes) -> None:
    maps = maps_of([stored(headers) for headers in messages], before)
    headers, tags = maps.headers(), maps.tags()
    headers.validate(full=True)
    tags.validate(full=True)
    assert [dict(row) for row in headers.to_pylist()] == messages
    assert [dict(row) for row in tags.to_pylist()] == [
        {name[4:]: value for name, value in each.items() if name.startswith("tag-")} for each in messages
    ]
    assert [dict(split_block(stored(each))) for each in messages] == messages  # the codec agrees


def test_no_message_has_a_header() -> None:
    maps = maps_of([b"", b"", b""])
    assert maps.headers().to_pylist() == [[], [], []]
    assert maps.tags().to_pylist() == [[], [], []]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"ip:10.0.0.1:80\na:b", {"ip": "10.0.0.1:80", "a": "b"}),  # a colon that nobody escaped
        (b"nothing", {"nothing": ""}),
        (b"a:b\n", {"a": "b", "": ""}),
        (b":\\c\na:b::\\c", {"": ":", "a": "b:::"}),
    ],
)
def test_blocks_that_no_broker_of_ours_writes_are_read_all_the_same(block: bytes, expected: dict[str, str]) -> None:
    rows = maps_of([b"x:y", block, b"tag-t:v"]).headers().to_pylist()
    assert {"": ""} | dict(rows[1]) == {"": ""} | expected
    assert [dict(rows[0]), dict(rows[2])] == [{"x": "y"}, {"tag-t": "v"}]


def test_an_escape_that_stomp_does_not_define_stays_as_it_came() -> None:
    assert maps_of([b"a:\\t\\c"]).headers().to_pylist() == [[("a", "\\t\\c")]]


def test_the_arrow_type_is_what_spark_expects() -> None:
    assert maps_of([b"a:b"]).headers().type == pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize("block", [b"tag:1", b"a:b", b"", b"tag-:1", b"tag-", b":"])
def test_a_lone_block_about_as_short_as_the_prefix_of_tags(block: bytes) -> None:
    assert dict(maps_of([block]).tags().to_pylist()[0]) == {b"tag-:1": {"": "1"}, b"tag-": {"": ""}}.get(block, {})


@st.composite
def much_alike(draw: st.DrawFn) -> list[bytes]:
    """Blocks with the same names, and perhaps the same lengths of values; then some bytes of one of them are other
    ones."""
    names = draw(
        st.lists(st.sampled_from(["tag-a", "tag-", "tag", "tagb", "a", "", "tag-flight"]), max_size=5, unique=True)
    )
    widths = [draw(st.tuples(st.integers(0, 12), st.sampled_from([0, 0, 5]))) for _ in names]  # and how much more
    rng = draw(st.randoms(use_true_random=False))
    rows = [
        "\n".join(
            f"{name}:{''.join(rng.choices('abc -', k=width + rng.randint(0, more)))}"
            for name, (width, more) in zip(names, widths, strict=True)
        )
        for _ in range(draw(st.integers(BLOCKS_MIN - 1, BLOCKS_MIN + 20)))
    ]
    blocks = [bytearray(row, "ascii") for row in rows]
    for _ in range(draw(st.integers(0, 2))):
        block = rng.choice(blocks)
        if block:
            block[rng.randrange(len(block))] = rng.choice(b"xt-:\n\\\xc3\xa9")
    return [bytes(block) for block in blocks]


@pytest.mark.thorough
@given(much_alike(), st.sampled_from([b"", b"x:y\n:"]))
def test_blocks_that_are_alike_say_the_same_as_one_by_one(blocks: list[bytes], before: bytes) -> None:
    maps = maps_of(blocks, before)
    headers, tags = maps.headers(), maps.tags()
    headers.validate(full=True)
    tags.validate(full=True)
    apart = [maps_of([block]) for block in blocks]  # too few to be alike
    assert list(map(_firsts, headers.to_pylist())) == [_firsts(each.headers().to_pylist()[0]) for each in apart]
    assert list(map(_firsts, tags.to_pylist())) == [_firsts(each.tags().to_pylist()[0]) for each in apart]
    for key in ("a", "", "-", "flight", "tag-a", "tagb"):
        assert _values(maps.headers(key), key) == _values(headers, key)
        assert _values(maps.tags(key), key) == _values(tags, key)


def _firsts(row: list[tuple[str, str]]) -> dict[str, str]:
    """Of headers with one name the first one counts, as for Spark: a map may have the others, or not."""
    return dict(reversed(row))


def _values(maps: pa.MapArray, key: str) -> list[str | None]:
    maps.validate(full=True)
    return [next((value for name, value in row if name == key), None) for row in maps.to_pylist()]


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (b"a:1\ntag-b:34", True),
        (b"\xff:1\ntag-b:34", True),
        (b"a:1\ntag-bb:34", False),
        (b"tag-b:1\ntag-b:2", False),
        (b"tag-b:1\na:2", False),
        (b"a:1\ntag-b:\\c", False),
        (b"a:1\ntag-b", False),
    ],
)
def test_one_key_is_cut_from_blocks_that_are_alike(other: bytes, found: bool) -> None:
    for blocks in [b"a:1\ntag-b:23"] * BLOCKS_MIN + [other], [b"a:1\ntag-b:23", other] * BLOCKS_MIN:
        data, offsets = np.frombuffer(b"".join(blocks), np.uint8), np.cumsum([0, *map(len, blocks)]).astype(np.int32)
        shape = uniform_blocks(data, offsets)
        assert (shape is not None and shape.maps_of(b"tag-b:", 4) is not None) == found


@pytest.mark.parametrize(
    ("other", "tags", "headers"),
    [
        (b"a:1\ntag-b:34", True, True),
        (b"a:12\ntag-b:4", True, True),
        (b"a:\ntag-b:", True, True),
        (b"c:1\ntag-b:34", False, False),
        (b"a:1\ntag-c:34", False, False),
        (b"a:1\ntag-bb:34", False, False),
        (b"a:1\ntag-b:\\c", False, False),
        (b"a:\\c\ntag-b:1", True, False),
        (b"a:1\ntag-b:\xc3\xa9", False, False),
        (b"a:\xff\ntag-b:1", True, False),
        (b"a:1\ntag-b::4", False, False),
        (b"a:1\ntag-b:\n4", False, False),
        (b"a:1\ntag-b", False, False),
        (b"a:1", False, False),
        (b"", False, False),
    ],
)
def test_what_is_alike(other: bytes, tags: bool, headers: bool) -> None:
    for blocks in [b"a:1\ntag-b:23"] * BLOCKS_MIN + [other], [b"a:1\ntag-b:23", other] * BLOCKS_MIN:
        data, offsets = np.frombuffer(b"".join(blocks), np.uint8), np.cumsum([0, *map(len, blocks)]).astype(np.int32)
        shape = uniform_blocks(data, offsets)
        assert (shape is not None and shape.maps(b"tag-") is not None) == tags
        assert (shape is not None and shape.maps(b"") is not None) == headers


@pytest.mark.parametrize("first", [b"tag-a:1\ntag-a:2", b"a:1\n", b"a\\c:1", b"tag-\xc3\xa9:1"])
def test_a_first_block_that_is_not_plain_is_left_to_the_slower_way(first: bytes) -> None:
    data, offsets = np.frombuffer(first * 99, np.uint8), np.arange(100, dtype=np.int32) * np.int32(len(first))
    shape = uniform_blocks(data, offsets)
    assert shape is None or shape.maps(b"tag-") is None


def test_as_many_lines_in_all_but_not_in_each() -> None:
    blocks = [b"a:1\nb:2"] * BLOCKS_MIN + [b"a:1", b"a:1\nb:2\nc:3"]
    data, offsets = np.frombuffer(b"".join(blocks), np.uint8), np.cumsum([0, *map(len, blocks)]).astype(np.int32)
    assert uniform_blocks(data, offsets) is None
