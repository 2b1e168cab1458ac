"""Fuzz a target with atheris: ``python -m fuzz.run TARGET [SECONDS]``.

Without a target all of them take turns. The extra ``fuzz`` is required. An input that breaks a target is stored as
``crash-*`` in the working directory. Pass that file instead of SECONDS to run the input again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 60
# The names of the targets. The modules must not be imported before they are instrumented.
STORAGE = ("batch", "log", "cursors", "index")
WIRE = ("parser", "connection", "broker")
NAMES = (*STORAGE, *WIRE)


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in NAMES:
        return one(arguments[0], arguments[1:])
    seconds = arguments[0] if arguments else str(SECONDS)
    codes = [subprocess.call([sys.executable, "-m", "fuzz.run", name, seconds]) for name in NAMES]
    return max(codes)


def one(name: str, arguments: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["radiator.storage", "radiator.stomp", "radiator.broker"]):
        from fuzz import targets, wire
    module = targets if name in STORAGE else wire
    if arguments and Path(arguments[0]).is_file():
        module.TARGETS[name](Path(arguments[0]).read_bytes())
        return 0
    seconds = int(arguments[0]) if arguments else SECONDS
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(module.seeds()[name]):
            Path(corpus, str(number)).write_bytes(seed)
        options = [f"-max_total_time={seconds}", "-max_len=8192", "-rss_limit_mb=1024", "-timeout=10", "-verbosity=1"]
        atheris.Setup([sys.argv[0], *options, corpus], module.TARGETS[name])
        print(f"fuzz {name} for {seconds} s", flush=True)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
