"""The head of a request in HTTP/2: from the header list of a stream to the same `Request` that HTTP/1.1 gives.

h2 takes any malformed head for an error of the whole connection, where RFC 9113 (8.1.1) makes it one of its stream.
So h2 is told not to look, and what it would have refused is refused here, for the stream alone: its caller reads a
status and an error as in HTTP/1.1, and the other callers of the connection (a proxy's, for instance) notice nothing.

`Heads` also hides `content-length` from h2 for the same reason: whether a body is as long as announced is checked where
the body is put together.

Guarantees: a request that is let through is one that HTTP/1.1 could have carried. Does not: read bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hpack import Decoder, HeaderTuple

from deathless.base.errors import DeathlessError, InvalidArgument, TooLarge
from deathless.shell.web.request import HttpLimits, Request, head_refusal

ONCE: Final = (b"host", b"content-type", b"authorization", b"idempotency-key", b"content-length")
LENGTH: Final = b"content-length"
_HIDDEN: Final = b"content-length "  # a name that no client may send
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")  # RFC 9113, 8.2.1: a token in lower case
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"(?![ \t])[^\0\r\n]*(?<![ \t])")
_TARGET: Final = re.compile(rb"[!-~\x80-\xff]+")
_OF_CONNECTION: Final = (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
_PSEUDO: Final = (b":method", b":scheme", b":path", b":authority")

Refusal = tuple[int, DeathlessError]


class Heads(Decoder):
    """Unpacks header blocks for h2 without its looking at `content-length`."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """See hpack.Decoder."""
        found = super().decode(data, raw)
        renamed = {LENGTH: _HIDDEN, _HIDDEN: _HIDDEN + b" "}
        return [HeaderTuple(renamed[each[0]], each[1]) if each[0] in renamed else each for each in found]


def read_head(request: Request, lines: Iterable[tuple[bytes, bytes]], limits: HttpLimits) -> Refusal | None:
    """Fill a request with its head; gives the status and error of one that is not good.

    Args:
        request: new.
        lines: names and values as h2 gives them, those that begin with a colon included.
        limits: of the port.
    """
    request.version = "2"
    size = count = 0
    pseudo: dict[bytes, bytes] = {}
    for name, value in lines:
        if name[:1] == b":":
            wrong = _pseudo(name, value, pseudo, request)
        else:
            size += len(name) + len(value) + 4
            count += 1
            if size > limits.header_bytes_max or count > limits.headers_max:
                return 431, TooLarge(f"header longer than {limits.header_bytes_max} bytes")
            wrong = _line(name, value, request)
        if wrong:
            return 400, InvalidArgument(wrong)
    request.method = pseudo.get(b":method", b"")
    if request.method == b"CONNECT":
        return 501, InvalidArgument("upgrades are not supported")
    if not _METHOD.fullmatch(request.method) or not pseudo.get(b":scheme") or b":path" not in pseudo:
        return 400, InvalidArgument("a request needs :method, :scheme and :path")
    return _target(request, pseudo[b":path"], limits) or _rest(request, pseudo.get(b":authority"), limits)


def _pseudo(name: bytes, value: bytes, found: dict[bytes, bytes], request: Request) -> str:
    """Take a line that begins with a colon; gives what is wrong with it."""
    if name not in _PSEUDO or name in found or request.headers:
        return f"{_text(name)} is unknown, occurs twice, or stands behind another header"
    found[name] = value
    return "" if _VALUE.fullmatch(value) else f"{_text(name)} holds what it must not"


def _line(name: bytes, value: bytes, request: Request) -> str:
    """Take a header line; gives what is wrong with it."""
    if name == _HIDDEN:
        name = LENGTH
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        return f"header {_text(name)} holds what it must not"
    if name in _OF_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        return f"header {_text(name)} is not for HTTP/2"
    if name == LENGTH and not value.isdigit():
        return "content-length must be a number"
    known = request.headers.get(name)
    if known is None:
        request.headers[name] = value
    elif name in ONCE:
        return f"header {_text(name)} occurs twice"
    else:
        request.headers[name] = known + (b"; " if name == b"cookie" else b", ") + value  # RFC 9113, 8.2.3
    return ""


def _target(request: Request, path: bytes, limits: HttpLimits) -> Refusal | None:
    if len(path) > limits.target_bytes_max:
        return 414, TooLarge(f"target longer than {limits.target_bytes_max} bytes")
    if path[:1] != b"/" or not _TARGET.fullmatch(path):
        return 400, InvalidArgument("the target must be a path")
    request.target = path
    return None


def _rest(request: Request, authority: bytes | None, limits: HttpLimits) -> Refusal | None:
    """What HTTP/1.1 asks of a head as well."""
    host = request.headers.setdefault(b"host", authority or b"")
    if not host or (authority is not None and authority != host):
        return 400, InvalidArgument("header host is missing, or another than :authority")
    refusal = head_refusal(request, limits, upgrade=False)
    if refusal is None:
        request.target, _, request.query = request.target.partition(b"?")
    return refusal


def _text(raw: bytes) -> str:
    return raw[:100].decode("ascii", "backslashreplace")
