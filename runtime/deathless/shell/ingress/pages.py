"""Pages for people: what this is, at `/`, and the description of the service in a viewer, at `/docs`.

    /                          what is served here, and where to read on
    /docs                      the OpenAPI document in a viewer (Swagger UI), which can send calls as well
    /docs/FILE                 what that page needs; nothing comes from another address

They tell the service's name and nothing else of it, so they ask nobody who they are. The document that the viewer reads
does, and the viewer asks for a token where one is wanted.

Guarantees: a page runs no script and reads no style of another origin, and cannot be shown in another page. Does not:
describe the interface (`openapi` does).
"""

from __future__ import annotations

import gzip
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

Lines = tuple[tuple[bytes, bytes], ...]
_FOLDER: Final = "viewer"
_POLICY: Final = b"; ".join(
    (
        b"default-src 'self'",
        b"img-src 'self' data:",
        b"style-src 'self' 'unsafe-inline'",
        b"frame-ancestors 'none'",
        b"base-uri 'none'",
    )
)
_KEPT: Final = b"public, max-age=3600"
_HTML: Final = b"text/html; charset=utf-8"
_FILES: Final = {
    b"/docs/swagger-ui-bundle.js": ("swagger-ui-bundle.js.gz", b"text/javascript; charset=utf-8"),
    b"/docs/swagger-ui.css": ("swagger-ui.css.gz", b"text/css; charset=utf-8"),
    b"/docs/docs.js": ("docs.js", b"text/javascript; charset=utf-8"),
    b"/docs/pages.css": ("pages.css", b"text/css; charset=utf-8"),
}


class Page(NamedTuple):
    """What is answered."""

    body: bytes
    kind: bytes  # content type
    headers: Lines


class Pages:
    """The pages of one service.

    Args:
        service: its name.
    """

    def __init__(self, service: str) -> None:
        self._service = service

    def find(self, target: bytes, *, origin: bytes, gzipped: bool) -> Page | None:
        """Give the page at a path; None: there is none.

        Args:
            target: the path.
            origin: scheme and host by which the caller found us, for the example.
            gzipped: the caller takes what is compressed.
        """
        if target == b"/":
            return self._filled("index.html", origin)
        if target in (b"/docs", b"/docs/"):
            return self._filled("docs.html", origin)
        found = _FILES.get(target)
        if found is None:
            return None
        name, kind = found
        headers: Lines = (*_guarded(), (b"cache-control", _KEPT))
        if not name.endswith(".gz"):
            return Page(_read(name), kind, headers)
        if gzipped:
            return Page(_read(name), kind, (*headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")))
        return Page(gzip.decompress(_read(name)), kind, (*headers, (b"vary", b"accept-encoding")))

    def _filled(self, name: str, origin: bytes) -> Page:
        values = {"service": escape(self._service), "origin": escape(origin.decode("latin-1"))}
        return Page(_read(name).decode().format(**values).encode(), _HTML, _guarded())


def _guarded() -> Lines:
    return (
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )


@cache
def _read(name: str) -> bytes:
    return files("deathless.shell.ingress").joinpath(_FOLDER, name).read_bytes()
