"""Find files of an archive that are in no commit.

An active run has files in their places before its commit; each of them is in an intent in ``_new/`` meanwhile. Files
that a merge has replaced are in the commits until they are removed. So a file in neither a commit nor an intent is an
*orphan*: a run whose intent is gone left it, or something else put it there. Files are listed twice, since a run may
end between two listings.

If there are orphans and not one commit, the commits are missing (a copy without names that begin with ``_``, a deleted
directory): that is no new archive, and is not read or begun as one.

This module knows names and the manifest. It does not know Parquet. It writes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from radiator.archive.files import Entry, Files
from radiator.archive.manifest import State, load
from radiator.archive.paths import DATA_SUFFIX, DATE_PREFIX, INTENT_SUFFIX, LOG, NEW
from radiator.errors import StorageError


@dataclass
class Uncommitted:
    """Files in no commit.

    ``in_progress``: files in intents, of runs that are active or died; the next run removes them. ``spooled``: the same
    in ``_new/``.
    """

    orphans: list[Entry] = field(default_factory=list)
    in_progress: list[Entry] = field(default_factory=list)
    spooled: list[Entry] = field(default_factory=list)


def find_uncommitted(files: Files) -> Uncommitted:
    """Return the files in no commit. Raises StorageError, OSError."""
    made = Uncommitted()
    found = {each for each in files.list("") if each.path.startswith(DATE_PREFIX) and each.path.endswith(DATA_SUFFIX)}
    found, intended = _not_in_commits(files, found)
    again, _ = _not_in_commits(files, {each for each in found if each.path not in intended})
    made.orphans = sorted(each for each in again if files.size(each.path) is not None)
    made.in_progress = sorted(each for each in found if each.path in intended)
    made.spooled = [each for each in files.list(NEW) if not each.path.endswith(INTENT_SUFFIX)]
    return made


def check_commits(files: Files, state: State) -> None:
    """Raise StorageError if an archive without a commit has data files. Raises OSError."""
    if state.version >= 0:
        return
    found = find_uncommitted(files).orphans
    if found:
        more = f" and {len(found) - 1} more" if found[1:] else ""
        raise StorageError(
            f"{files.uri}: there are data files ({found[0].path}{more}), and no commit in {LOG}/, which says what they "
            f"are: restore {LOG}/, archive to a new place, or remove the files if they are not needed"
        )


def _not_in_commits(files: Files, found: set[Entry]) -> tuple[set[Entry], set[str]]:
    """Return those of ``found`` that are in no commit, and the paths in intents.

    Intents are read first: a file without an intent is committed or removed.
    """
    intended: set[str] = set()
    for entry in files.list(NEW):
        if entry.path.endswith(INTENT_SUFFIX):
            try:
                intended |= set(json.loads(files.read(entry.path))["add"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue  # gone, or torn: a run tells that
    state = load(files) if found else State()
    named = state.files.keys() | state.removed.keys()
    return {each for each in found if each.path not in named}, intended
