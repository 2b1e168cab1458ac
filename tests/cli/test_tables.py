"""Tables for people: names are whole at every width."""

from __future__ import annotations

import pytest

from radiator.cli.main import run
from radiator.cli.tables import Column, layout
from tests.cli.terminal import on_terminal
from tests.running import BrokerProcess

NAMES = ("/queue/orders.incoming.europe", "/queue/jobs", "/topic/weather.observations.EWR")


@pytest.mark.thorough
def test_ls_shows_whole_names_at_80_and_100_columns(shared_broker: BrokerProcess) -> None:
    for name in NAMES:
        assert run(["send", name, "x", "--url", shared_broker.address]) == 0
    data = ["--data", str(shared_broker.data)]
    for args in (
        ["ls", *data],
        ["ls", "--url", shared_broker.address],
        ["cursors", "ls", "--url", shared_broker.address],
    ):
        for columns in (80, 100):
            lines, err = on_terminal(columns, *args)
            assert all(len(line) <= columns for line in lines)
            assert f"left out at {columns} columns: " in err
            shown = {word for line in lines for word in line.split()}
            wanted = {f"queue:{name}" for name in NAMES[:2]} if args[0] == "cursors" else set(NAMES)
            assert wanted <= shown


def test_a_table_that_fits_has_every_column() -> None:
    lines, left_out = layout((Column("name"), Column("size", number=True, drop=1)), [["a", "10"], ["bb", "5"]], 10)
    assert lines == ["name  size", "a       10", "bb       5"]
    assert left_out == []


def test_the_least_important_columns_are_left_out_first() -> None:
    columns = (Column("name"), Column("a", drop=1), Column("b", drop=2))
    assert layout(columns, [["long-name", "x", "y"]], 13) == (["name       a", "long-name  x"], ["b"])
    assert layout(columns, [["long-name", "x", "y"]], 11) == (["name", "long-name"], ["a", "b"])


def test_a_name_wider_than_the_terminal_stays_whole() -> None:
    lines, _ = layout((Column("name"), Column("size", drop=1)), [["x" * 50, "1"]], 20)
    assert lines == ["name", "x" * 50]


def test_a_list_is_broken_at_its_commas_before_a_column_is_left_out() -> None:
    columns, row = (Column("names"), Column("n", number=True, drop=1)), [["one", "three", "seven"], "3"]
    assert layout(columns, [row], None)[0] == ["names              n", "one, three, seven  3"]
    assert layout(columns, [row], 12) == (["names   n", "one,    3", "three,", "seven"], [])


def test_wide_characters_and_control_characters_keep_the_columns_aligned() -> None:
    lines, _ = layout((Column("name"), Column("n")), [["\u65e5\u672c", "1"], ["a\x1b", "2"]], 80)
    assert lines == ["name   n", "\u65e5\u672c   1", "a\\x1b  2"]
