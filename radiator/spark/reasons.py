"""Find the text of an error of this package in an error of Spark, which contains tracebacks of other processes.

Must not import pyspark.
"""

from __future__ import annotations

import re

from radiator.errors import RadiatorError

_UNREAD_FILE = re.compile(
    r"\[FAILED_READ_FILE\.(?P<why>\w+)\] .*? file (?P<path>\S.*?/date=\d{4}-\d\d-\d\d/.*?\.parquet)\."
)


def reason(error: BaseException) -> str | None:
    """Return the text of an error of this package, also inside an error of Spark; None for other errors.

    For Spark's error FAILED_READ_FILE of a file of an archive, return what happened to the file.

    Args:
        error: The error. Spark's errors contain the traceback of another process.
    """
    if isinstance(error, RadiatorError):
        return str(error)
    found = re.findall(r"^radiator\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    if found:
        return str(found[-1]).strip()
    unread = _UNREAD_FILE.search(str(error))
    if unread is None:
        return None
    if unread["why"] == "FILE_NOT_EXIST":
        return (
            f"{unread['path']}: the file does not exist any more: it was removed from the archive after this query was "
            "planned; call table() again"
        )
    return f"{unread['path']}: the file cannot be read; radiator archive verify checks the files of an archive"
