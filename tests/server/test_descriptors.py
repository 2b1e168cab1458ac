"""Open files: raised where they may be, and where not, fewer connections rather than silence."""

from __future__ import annotations

import resource

import pytest

from radiator.server.descriptors import OTHERS, provide

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "room"),
    [
        (NONE, NONE, None, 10_000),
        (20_000, 20_000, None, 10_000),
        (1_024, NONE, 10_000 + OTHERS, 10_000),
        (1_024, 1_048_576, 10_000 + OTHERS, 10_000),
        (1_024, 4_096, 4_096, 4_096 - OTHERS),
        (256, 256, 256, 128),
    ],
)
def test_what_the_system_allows_is_used_and_no_more_is_promised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, room: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    assert provide(10_000) == room
    assert asked == ([] if raised_to is None else [(raised_to, hard)])


def test_a_system_that_refuses_to_raise_it_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, NONE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert provide(10_000) == 512
