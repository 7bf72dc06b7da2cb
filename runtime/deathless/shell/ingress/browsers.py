"""What a browser gets from the HTTP port beside answers to calls: pages for people, and leave to call from elsewhere.

Guarantees: neither needs to know who asks. Does not: answer calls.
"""

from __future__ import annotations

from collections.abc import Collection

from deathless.shell.ingress.pages import Page, Pages
from deathless.shell.web.compression import accepts_gzip
from deathless.shell.web.cross_origin import CrossOrigin
from deathless.shell.web.request import Request

PAGE_METHODS = (b"GET", b"HEAD")


class Browsers:
    """Of one service.

    Args:
        service: its name.
        origins: whose pages may call, see `CrossOrigin`.
    """

    def __init__(self, service: str, origins: Collection[str] = ()) -> None:
        self.document = b""  # the OpenAPI document, made when it is first asked for
        self._pages = Pages(service)
        self._cross_origin = CrossOrigin(origins)

    def preflight(self, request: Request) -> bool:
        """Answer a browser that asks what a page of another origin may do; False: this is no such question.

        Every answer to a page of another origin that may call says so.
        """
        origin = request.headers.get(b"origin")
        if origin is None:
            return False
        request.lines = self._cross_origin.headers(origin)
        if request.method != b"OPTIONS" or b"access-control-request-method" not in request.headers:
            return False
        allowed = self._cross_origin.preflight(origin)
        if allowed is None:
            return False
        request.lines = allowed
        request.respond(200, b"")
        return True

    def page(self, request: Request) -> Page | None:
        """Give the page for people that a request asks for; None: it asks for none."""
        gzipped = accepts_gzip(request.headers.get(b"accept-encoding", b""))
        transport = request.transport
        secure = transport is not None and transport.get_extra_info("ssl_object") is not None
        origin = (b"https://" if secure else b"http://") + request.headers.get(b"host", b"")
        return self._pages.find(request.target, origin=origin, gzipped=gzipped)
