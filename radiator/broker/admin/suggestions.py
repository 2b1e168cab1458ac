"""Errors for names that do not exist, with the closest name that does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.services import Services

NAME_CHARS_MAX: Final = 200  # longer names are compared with none
LENGTHS: Final = 3  # a close name is so many characters longer or shorter at most
COMPARED_MAX: Final = 1_000
QUICK_UNITS: Final = 3
COMPARE_UNITS: Final = 20
NAMES_A_UNIT: Final = 4
CLOSE: Final = 0.75
LISTED_BY: Final = {
    **dict.fromkeys(("queue", "destination"), "`radiator ls --url ADDRESS` lists them."),
    "client": "`radiator clients` lists them.",
    "cursor": "`radiator cursors ls` lists them.",
}


def not_found(
    broker: Services, what: str, name: str, names: Iterable[str], shown: Callable[[str], bool] = bool
) -> Generator[bool, None, ProtocolError]:
    """Return the error for an unknown name, with a suggestion if there is a close one, in steps.

    Args:
        broker: The services of the broker.
        what: What the name is of: a key of ``LISTED_BY``.
        name: The unknown name.
        names: The names that exist.
        shown: Returns True if the user may see a name.
    """
    best, closest, compared = CLOSE, "", 0
    matcher = SequenceMatcher(b=name, autojunk=False)
    for number, each in enumerate(list(names) if len(name) <= NAME_CHARS_MAX else ()):
        if number % NAMES_A_UNIT == 0:
            broker.budget.spend(1)
            yield True
        if abs(len(each) - len(name)) > LENGTHS or not shown(each):
            continue
        broker.budget.spend(QUICK_UNITS)
        yield True
        matcher.set_seq1(each)
        if matcher.real_quick_ratio() < best or matcher.quick_ratio() < best:
            continue
        broker.budget.spend(COMPARE_UNITS)
        yield True
        if (ratio := matcher.ratio()) > best:
            best, closest = ratio, each
        compared += 1
        if compared == COMPARED_MAX:
            break
    meant = f"Did you mean {closest!r}?" if closest else LISTED_BY[what]
    return ProtocolError("not-found", f"there is no {what} {name[:200]!r}", meant)
