"""Where the archive ends and the log begins, as of one moment, so that every record lies on one side of it.

The log is listed first with its marks for retention, then the commits are read. What retention had removed from the log
by then was archived before, so the commits that are read later name it, or are not all there, which the marks tell;
what they name beyond what was listed is a little more, and no hole. Below ``ends`` every record is the archive's, from
there up to what was listed it is the log's. What becomes of the log after that is found by who reads it: see the option
``archive`` of the source.

Knows: the listing of a store, the state of an archive. Must not know: Spark.
Invariant: of each partition, the offsets on both sides are consecutive, or the hole between them is in ``holes``
or ``settled``, or can hold nothing that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from radiator.archive import DataFile, Files, State, load
from radiator.archive.border import check
from radiator.archive.holes import Around
from radiator.archive.listing import in_order, there
from radiator.archive.lookup import may_hold
from radiator.archive.marks import ahead, marks
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.columns.selection import Selection
from radiator.spark.unknown import unknown


@dataclass(frozen=True)
class Seam:
    """``log``: by partition, the offsets that are read from the log: from, up to and not including. ``files``: those
    of the archive that may hold what is wanted. ``holes``: what neither side has and may be wanted, in words;
    ``settled``: as much of it as the queues of that log were through with. ``slips``: what was asked for and is not
    there, in words."""

    log: Mapping[str, tuple[int, int]]
    files: tuple[DataFile, ...]
    holes: tuple[str, ...]
    settled: tuple[str, ...] = ()
    slips: tuple[str, ...] = ()


def seam(
    data: str | None, archive: Files | None, selection: Selection, storage: Mapping[str, str] | None = None
) -> Seam:
    """Raises StorageError."""
    place = None if data is None else open_store(data, storage)
    logs = [] if place is None else partitions(place)
    wanted_logs = [each for each in logs if selection.wants_partition(each.name)]
    found = {} if place is None or archive is None else marks(place.fs, wanted_logs)
    state = State() if archive is None else load(archive) if place is not None else there(archive)
    if place is not None and archive is not None:
        check(place, archive, state, wanted_logs)
    around = Around(state, place, logs, found)
    holes = list(around.holes(selection))
    log: dict[str, tuple[int, int]] = {}
    for each in wanted_logs:
        first = max(each.log_start_offset, state.ends.get(each.name, 0))
        if first < each.next_offset:
            log[each.name] = first, each.next_offset
    wanted = (each for each in state.files.values() if may_hold(each, selection))
    lost, settled = (tuple(str(each) for each in holes if each.settled is which) for which in (False, True))
    slips = () if archive is None else tuple(_slips(archive, state, found, around, selection))
    return Seam(log, tuple(in_order(wanted)), lost, settled, slips)


def _slips(
    archive: Files, state: State, found: Mapping[str, int], around: Around, selection: Selection
) -> Iterator[str]:
    behind = ahead(found, archive.uri, state)
    if behind is not None:
        yield behind
    if state.version < 0:
        yield (
            f"{archive.uri}: there is no archive, or nothing in it yet, so this is the log alone; `radiator archive "
            "--data DIR --to URI` writes its sealed segments to one"
        )
    known = around.destinations() if selection.destinations else None
    for text in () if known is None else unknown(selection, known):
        yield f"neither archive nor log has a {text}"


def whole(each: DataFile, selection: Selection) -> bool:
    """Whether every record of the file is wanted, so that nothing has to be asked of its rows."""
    low, high = selection.offsets_of(each.partition)
    names = each.destinations
    return (
        low <= each.first_offset
        and each.next_offset <= high
        and each.min_receive_ns >= selection.receive_low_ns
        and each.max_receive_ns < selection.receive_high_ns
        and (not selection.destinations or (names is not None and all(map(selection.wants_destination, names))))
    )


def names_in(files: Iterable[DataFile], selection: Selection) -> list[str] | None:
    """The wanted destinations of these files; None if some of them do not list theirs."""
    found: set[str] = set()
    for each in files:
        if each.destinations is None:
            return None
        found.update(filter(selection.wants_destination, each.destinations))
    return sorted(found)
