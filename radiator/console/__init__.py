"""The files of the console: a web page that is a STOMP client of the broker, served by the admin listener.

``vendor.json`` names the libraries in ``static/vendor`` with their versions and hashes; ``packaging/vendor-console.py``
fetches them. There is no build step: the browser gets the files as they are here. One module is made of a table of the
protocol (``HEADERS_MODULE``).
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from radiator.stomp.spec import RESERVED

ROOT: Final = "/console/"
STOMP_PATH: Final = "/console/stomp"
STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
HEADERS_MODULE: Final = "headers.js"  # exports RESERVED, the headers of MESSAGE that only the broker writes
CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # LICENSE
}
# No inline script or style, nothing of other hosts, no frame around the page, and no form that leaves it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS: Final = (f"Content-Security-Policy: {POLICY}", "Referrer-Policy: no-referrer", "X-Frame-Options: DENY")


class File(NamedTuple):
    """A file of the console.

    Attributes:
        content_type: The value of Content-Type.
        body: The content.
        etag: The value of ETag.
    """

    content_type: str
    body: bytes
    etag: str


@cache
def files() -> dict[str, File]:
    """Return the files by their paths, such as ``/console/console.css``, about 400 KB; read at the first request."""
    paths = [path for path in sorted(STATIC.rglob("*")) if path.is_file() and path.suffix in CONTENT_TYPES]
    bodies = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in paths}
    bodies[HEADERS_MODULE] = f"export const RESERVED = new Set({json.dumps(sorted(RESERVED))});\n".encode()
    found = {}
    for name, body in bodies.items():
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        found[ROOT + name] = File(CONTENT_TYPES[Path(name).suffix], body, etag)
    found[ROOT] = found.pop(ROOT + INDEX)
    return found
