"""Note how far a replay came, and store it in a file, so that the same command continues there.

The file has the replay's name, which the ids are made of, the chosen records, and for each partition the offset below
which all chosen records are stored. It is written before the first message is sent, as the name must outlive a kill,
then at most once a second, and before a pause; beside the old one, and renamed. Messages sent after the last write are
recognised by the broker: repeated ids are not stored again. In a second fewer messages are sent than a broker
remembers.

This module knows one file. It does not know the contents of records.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from radiator.errors import ConfigError

FORMAT = 1
WRITE_SECONDS = 1.0


class Progress:
    """``path`` None: in memory only. ``chosen`` describes the records; a file with other ones is refused.

    Raises ConfigError.
    """

    def __init__(
        self,
        path: str | None,
        chosen: Mapping[str, Any],
        name: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._chosen = json.loads(json.dumps(chosen))
        self._monotonic = monotonic
        self._next_write = 0.0
        self._unwritten = False
        found = self._read()
        self.name = name or uuid.uuid4().hex[:12]
        self.next_offsets: dict[str, int] = {}
        if found is not None:
            if found["chosen"] != self._chosen or name not in (None, found["name"]):
                raise ConfigError(
                    f"{path} belongs to another replay, with {json.dumps(found['chosen'])}: "
                    "give the same options again, or another file"
                )
            self.name, self.next_offsets = found["name"], found["next_offsets"]

    def stored(self, partition: str, offset: int) -> None:
        """Note that a record is stored."""
        self.next_offsets[partition] = offset + 1
        self._unwritten = True
        if self._monotonic() >= self._next_write:
            self.write()

    def pause(self, seconds: float) -> None:
        """Write now what would be due within a pause of this length."""
        if self._unwritten and self._monotonic() + seconds >= self._next_write:
            self.write()

    def write(self) -> None:
        """Write the file, if there is one. Raises OSError."""
        if self._path is None:
            return
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(
                {"format": FORMAT, "name": self.name, "chosen": self._chosen, "next_offsets": self.next_offsets}, file
            )
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)
        self._unwritten = False
        self._next_write = self._monotonic() + WRITE_SECONDS

    def _read(self) -> dict[str, Any] | None:
        if self._path is None:
            return None
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
            if found["format"] != FORMAT:
                raise ConfigError(f"{self._path}: format {found['format']} is newer than this version")
            return {"name": str(found["name"]), "chosen": found["chosen"], "next_offsets": dict(found["next_offsets"])}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self._path} is not a progress file of a replay ({error}): give another one") from None
