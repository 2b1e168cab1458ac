"""The numbers of names in the dictionaries of batches."""

from __future__ import annotations

import pytest

from radiator.columns.names import NameTable
from radiator.storage.header import DamagedBatch


def dictionary(*names: bytes) -> bytes:
    return b"".join(len(name).to_bytes(4, "little") + name for name in names)


@pytest.mark.parametrize("names", [[b"/a", b"/b", b"/c"], [b"/a", b"/longer", b"/c"], [b"", b""], [b"/a"]])
def test_names_of_one_length_and_of_several_are_numbered_once(names: list[bytes]) -> None:
    table = NameTable()
    first = table.place(dictionary(*names), len(names))
    again = table.place(dictionary(*names, b"/new"), len(names) + 1)
    texts = [name.decode() for name in names]
    assert [table.names[number] for number in table.flat[first : first + len(names)]] == texts
    assert [table.names[number] for number in table.flat[again:]] == [*texts, "/new"]
    assert len(set(table.names)) == len(table.names)


def test_lengths_that_do_not_add_up_are_damage() -> None:
    for data, count in [(dictionary(b"/ab", b"/cd"), 3), (dictionary(b"/a", b"/b")[:-1], 2), (b"\x03\0\0\0/a", 1)]:
        with pytest.raises(DamagedBatch):
            NameTable().place(data, count)
