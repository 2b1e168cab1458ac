"""A budget of work that remembers every turn."""

from __future__ import annotations

from radiator.broker.budget import Budget


class Counted(Budget):
    """Remembers what each turn has spent."""

    __slots__ = ("turns",)

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = []

    def begin(self) -> None:
        self.turns.append(self.spent)
        super().begin()
