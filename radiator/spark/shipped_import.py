"""Import the package from a file of the session in streams, where Spark 4.3 does not do it.

Spark copies such a file into a directory of the session, and passes the directory to its Python processes. For
streaming sources and sinks in Python it does not: the planning process gets ``streaming_job``, an empty directory, and
tasks get no session. So objects that are sent there carry the name of the file, and find it before they import the
package.

Uses the directories of a session's files.
Invariant: if the package is installed, or is found without this module, nothing is different.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import radiator


def with_package(reduced: Any) -> Any:
    """Return the pickle form of an object, extended by the search for the package if this process runs from a zip file.

    Args:
        reduced: The result of the ``__reduce_ex__`` of the object.
    """
    package = Path(radiator.__file__).parent.parent
    if not package.is_file():
        return reduced
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the receiver may be unable to import this module
    return _arrived, (package.name, cloudpickle.dumps(reduced))


def _arrived(name: str, data: bytes) -> Any:
    """Import the package and restore the object, in the receiving process.

    The name of the file is known. The directory is not, because a stream has a session of its own.
    """
    from pyspark.core.files import SparkFiles

    if importlib.util.find_spec("radiator") is None:
        given = Path(SparkFiles.getRootDirectory())
        root = given.parent if given.name == "streaming_job" else given
        found = next((path for form in (name, f"*/{name}") for path in root.glob(form)), None)
        if found is not None:
            sys.path.insert(1, str(found.resolve()))
            importlib.invalidate_caches()
    make, arguments, state, *_ = cloudpickle.loads(data)
    made = make(*arguments)
    made.__dict__.update(state)
    return made
