"""What a store was told and what it promised, and whether it still holds that after another start."""

from __future__ import annotations

from radiator.storage.store import Store
from tests.storage.driving import read_all


class Model:
    """What was appended, and what was promised, over any number of lives of the broker."""

    def __init__(self) -> None:
        self.appended: dict[str, dict[int, set[bytes]]] = {}
        self.promised: dict[str, dict[int, bytes]] = {}

    def append(self, name: str, offset: int, body: bytes) -> None:
        self.appended.setdefault(name, {}).setdefault(offset, set()).add(body)

    def promise(self, name: str, offsets: range, bodies: list[bytes]) -> None:
        self.promised.setdefault(name, {}).update(zip(offsets, bodies, strict=True))

    def check(self, store: Store) -> None:
        for name, promised in self.promised.items():
            partition = store.partitions[name]
            found = read_all(partition)
            for offset, body in promised.items():
                assert found.get(offset) == body, f"{name}@{offset} was receipted"
            for offset, body in found.items():
                assert body in self.appended[name][offset], f"{name}@{offset} was never sent"
            assert list(found) == sorted(found)
            # What is found now has been shown to readers: a later life must not unsay it.
            promised.update(found)
