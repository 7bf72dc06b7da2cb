"""Calls of methods by their numbers over HTTP: raw bytes in, raw bytes out.

    POST /{service}/{key}/7                            bytes of whatever content type -> 200 and bytes, 204 for none
    POST /{service}/{key}/7  Prefer: return=minimal    a fork: 204 once it is logged

A service is called by numbers whose handler `call` takes a `method` and `args`, and gives bytes or nothing: one whose
code is a program in another language, one with methods of its own (`@service.foreign`), or one whose author wrote that
handler by hand. The call is the same as one of that handler with JSON, so one has the recorded reply of the other under
the same idempotency key. The bytes of methods with a codec are theirs, so JSON is JSON.

A page in a browser may send some content types to other sites without asking them first. Of these a request that names
its origin, as all that browsers send do, is refused; who is no browser may send what they like.

Guarantees: nothing is decoded here. Does not: know keys, or send anything. Imports execution and errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.errors import InvalidArgument, UnknownMethod
from deathless.execution.author.foreign_methods import METHOD_MAX, METHOD_MIN, unknown_text
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.turn.method_address import CALL, SEND
from deathless.shell.ingress.routes import RAW, Answer, Route
from deathless.shell.web.json_results import result_as_json
from deathless.shell.web.request import JSON, Request

_NUMBER: Final = re.compile(rb"-?(0|[1-9][0-9]{0,17})")
_SENT_UNASKED: Final = (b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")
"""Content types that a page may send to other sites without asking them (the Fetch standard's safelist)."""
_BYTES: Final = (bytes, bytes | None)
_decode: Final = msgspec.msgpack.Decoder(bytes | None).decode


class NumberRoute:
    """One method, by its number: how bytes come in and go out.

    Args:
        spec: the handler `call`, or `send` for a fork.
        method: the number.
        content_type: of what it returns.
    """

    __slots__ = ("content_type", "method", "name", "spec")

    def __init__(self, spec: HandlerSpec, method: int, content_type: bytes) -> None:
        self.spec = spec
        self.name = spec.name
        self.method = method
        self.content_type = content_type

    def from_bytes(self, body: bytes) -> msgspec.Struct:
        """Give the arguments of a POST."""
        return self.spec.args_type(method=self.method, args=body)

    def answer(self, result: bytes) -> Answer:
        """Give the bytes of a recorded result; 204 where it returned nothing."""
        try:
            found = _decode(result)
        except msgspec.ValidationError:  # another version of the code wrote it, which gave something else
            return Answer(200, result_as_json(result))
        return Answer(204, b"", RAW) if found is None else Answer(200, found, self.content_type)


class Numbers:
    """All methods of a service that are called by numbers; none where it has no handler for that.

    Args:
        service: its code.
        named: what is called by its name, and found first.
    """

    def __init__(self, service: Service, named: Mapping[bytes, Route] | None = None) -> None:
        self._service = service
        self._named = named or {}
        spec = service.specs.get(CALL)
        self._call = spec if spec is not None and takes_numbers(spec) else None
        fork = service.specs.get(SEND)
        self._send = fork if fork is not None and _takes_method(fork) else None

    def route(self, name: bytes, request: Request) -> Route | NumberRoute | None:
        """Give what the end of a path names, by name or by number. Raises: as `find`."""
        return self._named.get(name) or self.find(name, request)

    def find(self, name: bytes, request: Request) -> NumberRoute | None:
        """Give the method that the end of a path names; None: it names none, or the service has none.

        Raises: InvalidArgument for no number of 32 bits; UnknownMethod where all are known and this is none.
        """
        if self._call is None or not _NUMBER.fullmatch(name):
            return None
        method = int(name)
        if not METHOD_MIN <= method <= METHOD_MAX:
            raise InvalidArgument(f"{method} is no method number, which has 32 bits: {METHOD_MIN} to {METHOD_MAX}")
        methods = self._service.methods
        if methods and method not in methods:
            raise UnknownMethod(unknown_text(self._service.name, method, methods))
        kind = methods[method].content_type.encode() if methods else RAW
        spec = self._send if self._send is not None and wants_nothing(request) else self._call
        return NumberRoute(spec, method, kind)


def takes_numbers(spec: HandlerSpec) -> bool:
    """Whether a handler `call` is one at which calls by numbers arrive."""
    return _takes_method(spec) and spec.result_type in _BYTES


def _takes_method(spec: HandlerSpec) -> bool:
    fields = {each.name: each.type for each in msgspec.structs.fields(spec.args_type)}
    return spec.kind == "handler" and fields == {"method": int, "args": bytes} and not spec.keys


def wants_nothing(request: Request) -> bool:
    """Whether a caller says that it wants no result: `Prefer: return=minimal` (RFC 7240, 4.2)."""
    names = request.headers.get(b"prefer", b"").lower().split(b",")
    return any(name.strip() == b"return=minimal" for name in names)


def check_bytes(request: Request) -> None:
    """Refuse a body that is compressed, or that a page of another site may have had a browser send.

    Raises: InvalidArgument, which is answered with 415.
    """
    if request.headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise InvalidArgument("the body must not be compressed", remedy="send no Content-Encoding")
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if b"origin" in request.headers and kind in _SENT_UNASKED:
        raise InvalidArgument(
            "a page in a browser names a content type that browsers ask about first",
            remedy=f"send Content-Type: {RAW.decode()} or {JSON.decode()}",
        )
