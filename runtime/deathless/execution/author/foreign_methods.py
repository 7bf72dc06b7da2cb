"""Methods that programs in other languages call: what `Service.foreign` registers, and how a call finds its own.

    program, caller, service --call(method=7, args=b"")--> handler `call` --> the function of method 7 --> its bytes
                             --send(method=7, args=b"")--> handler `send` --> the same function, whose result is let go

A method has a number and takes bytes, as in the AMBROSIA client protocol. What calls a service by numbers calls two
handlers of it, `call` and `send`, as it does where an author wrote these by hand; here they are made from the methods.
So the log, the outbox, sessions, keys and shards know nothing of numbers. With a codec the bytes are a value, which
is decoded strictly in its turn, so the same bytes have the same outcome on every replica.

Guarantees: what is registered can be run, all else is refused at import; equal results give equal bytes in every
process; a message that nobody waits for and that names no method changes nothing and is noted (`unknown_methods`).
Does not: know which programs there are. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

import msgspec

from deathless.base.errors import ForeignMethodRefused, InvalidArgument, InvalidService, UnknownMethod
from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_json_too_deep, is_too_deep
from deathless.execution.author.signature import Function, has_no_order, place, read_signature
from deathless.execution.declared.type_shapes import sorts_itself
from deathless.execution.turn.context import Context
from deathless.execution.turn.method_address import CALL, SEND
from deathless.execution.values.ordered import ordered_encoder

Codec = Literal["", "json", "msgpack"]
"""How arguments and result of a method are written; empty: they are bytes."""

CODECS: Final[tuple[str, ...]] = get_args(Codec)
BY_NUMBER: Final = (CALL, SEND)
"""Handlers that whoever calls by a number calls."""
METHOD_MIN: Final = -(1 << 31)
METHOD_MAX: Final = (1 << 31) - 1
PREFIX: Final = "foreign:"
"""What the name of a method begins with where names of handlers stand, as in the record of an interface."""
NOTE: Final = "deathless.unknown"
"""The built-in handler that notes a number which nothing has (handlers.unknown_methods)."""
SERIES: Final = "unknown-methods"
"""The series of all of them, and the key that they are noted under and asked by."""
NAMED_MAX: Final = 20  # numbers that an error names
_RAW_RESULTS: Final = (bytes, bytes | None, None, type(None))
Decode = Callable[[bytes], object]
Encode = Callable[[object], bytes | None]


class NumberArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Arguments of the handlers `call` and `send`."""

    method: int
    args: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSpec:
    """One method, as everything around it needs to know it."""

    method: int  # its number, [-2**31, 2**31)
    codec: Codec
    args_type: type[msgspec.Struct]  # one field, whose type is that of its arguments: bytes without a codec
    result_type: object  # annotation of the result
    function: Function
    waits: bool  # an `async def`
    shared: bool
    doc: str

    @property
    def name(self) -> str:
        """What it is called where names of handlers stand."""
        return f"{PREFIX}{self.method}"

    @property
    def kind(self) -> str:
        """What it is, as the record of an interface says it: other bytes are another kind."""
        return f"foreign {self.codec}".rstrip()

    @property
    def argument(self) -> object:
        """Annotation of what it takes."""
        return msgspec.structs.fields(self.args_type)[0].type

    @property
    def content_type(self) -> str:
        """Media type of its bytes."""
        return {"": "application/octet-stream", "json": "application/json", "msgpack": "application/msgpack"}[
            self.codec
        ]


def check_method(method: object, where: str) -> int:
    """Give the number of a method.

    Raises: ForeignMethodRefused naming `where`, for what is none.
    """
    if type(method) is not int or not METHOD_MIN <= method <= METHOD_MAX:
        raise ForeignMethodRefused(
            f"{where}: {method!r} is no method number", remedy=f"use a whole number, {METHOD_MIN} to {METHOD_MAX}"
        )
    return method


def read_method(
    function: Function, *, method: object, codec: str, shared: bool, scope: Mapping[str, object], state: type
) -> ForeignSpec:
    """Take a function apart that is to be a method.

    Args:
        function: the author's.
        method: its number.
        codec: see `Codec`.
        shared: as of a handler.
        scope: names visible where it is registered.
        state: of the service.

    Raises: ForeignMethodRefused naming function, file and line; InvalidService for types as those of a handler.
    """
    if not callable(function):
        raise ForeignMethodRefused(f"method {method!r}: it must be a function, not {function!r}")
    where = place(function)
    number = check_method(method, where)
    if codec not in CODECS:
        raise ForeignMethodRefused(
            f"{where}: method {number} has codec {codec!r}, which there is not", remedy='use "json" or "msgpack"'
        )
    signature = read_signature(function, kind="handler", scope=scope, shape=state)
    fields = msgspec.structs.fields(signature.arguments)
    if len(fields) != 1 or signature.keywords or not fields[0].required:
        raise ForeignMethodRefused(
            f"{where}: method {number} takes state, context and one value by position, without a default; "
            f"this takes {', '.join(each.name for each in fields) or 'none'}"
        )
    spec = ForeignSpec(
        method=number,
        codec=cast("Codec", codec),
        args_type=signature.arguments,
        result_type=signature.result,
        function=function,
        waits=signature.waits,
        shared=shared,
        doc=(getattr(function, "__doc__", None) or "").strip(),
    )
    if not codec and spec.argument is not bytes:
        raise ForeignMethodRefused(
            f"{where}: `{fields[0].name}` of method {number} is {spec.argument!r}, but without a codec it is bytes",
            remedy=f'write `{fields[0].name}: bytes`, or codec="json" or "msgpack"',
        )
    if not codec and signature.result not in _RAW_RESULTS:
        raise ForeignMethodRefused(
            f"{where}: method {number} returns {signature.result!r}, but without a codec it returns bytes or nothing",
            remedy='write `-> bytes`, `-> bytes | None` or `-> None`, or codec="json" or "msgpack"',
        )
    if codec == "json":
        _check_json(spec, where)
    return spec


def _check_json(spec: ForeignSpec, where: str) -> None:
    """Refuse types that JSON has no decoder for. Raises: InvalidService."""
    for stated in (spec.argument, spec.result_type):
        try:
            msgspec.json.Decoder(stated)
        except (TypeError, ValueError) as error:
            raise InvalidService(f"{where}: method {spec.method}: {error}") from None


def read_argument(spec: ForeignSpec) -> Decode:
    """Give what makes the argument of a method of the bytes that came.

    It raises InvalidArgument naming method, codec and the place in the value.
    """
    if not spec.codec:
        return bytes
    as_json = spec.codec == "json"
    stated = cast("type[object]", spec.argument)
    decode = (msgspec.json.Decoder(stated) if as_json else msgspec.msgpack.Decoder(stated)).decode
    too_deep = is_json_too_deep if as_json else is_too_deep
    where = f"arguments of method {spec.method}, which are {spec.codec}"

    def decoded(data: bytes) -> object:
        if too_deep(data):
            raise InvalidArgument(f"{where}, are nested more than {NESTING_MAX} levels")
        try:
            return decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidArgument(f"{where}, do not fit: {error}") from None

    return decoded


def write_result(spec: ForeignSpec) -> Encode:
    """Give what makes bytes of what a method returned; None: it returns nothing.

    It raises msgspec.ValidationError for a value that is not of the declared type.
    """
    if not spec.codec:
        return cast("Encode", _as_it_is)
    if spec.result_type in (None, type(None)):
        return _nothing
    stated = cast("type[object]", spec.result_type)
    sorts = has_no_order(stated)
    if spec.codec == "msgpack":
        encode = ordered_encoder(sorts_itself=sorts_itself(stated)) if sorts else msgspec.msgpack.Encoder().encode
        check: Decode = msgspec.msgpack.Decoder(stated).decode
    else:
        encode = msgspec.json.Encoder(order="deterministic" if sorts else None).encode
        check = msgspec.json.Decoder(stated).decode

    def encoded(value: object) -> bytes:
        data = encode(value)
        check(data)
        return data

    return encoded


def _as_it_is(value: object) -> object:
    """The handler `call` gives bytes or nothing, which is checked there."""
    return value


def _nothing(value: object) -> None:
    if value is not None:
        raise msgspec.ValidationError(f"Expected `null`, got `{type(value).__name__}`")


class Methods:
    """All methods of a service, made ready.

    Args:
        service: gives its name, which its manifest may change later.
    """

    def __init__(self, service: Callable[[], str]) -> None:
        self.specs: dict[int, ForeignSpec] = {}
        self._service = service
        self._ready: dict[int, tuple[Decode, Encode, ForeignSpec]] = {}

    def add(self, spec: ForeignSpec) -> None:
        """Take one in. Raises: ForeignMethodRefused."""
        where = place(spec.function)
        other = self.specs.get(spec.method)
        if other is not None:
            raise ForeignMethodRefused(
                f"{where}: service {self._service()} has a method {spec.method} already, {place(other.function)}"
            )
        first = next(iter(self.specs.values()), spec)
        if first.shared != spec.shared:
            raise ForeignMethodRefused(
                f"{where}: method {spec.method} has shared={spec.shared}, and method {first.method} has not",
                remedy="give all methods of a service the same `shared`: what calls them calls one handler",
            )
        self.specs[spec.method] = spec
        self._ready[spec.method] = (read_argument(spec), write_result(spec), spec)

    @property
    def waits(self) -> bool:
        """Whether one of them is an `async def`."""
        return any(each.waits for each in self.specs.values())

    def function(self, name: str) -> Function:
        """Give the handler of this name, `call` or `send`, for the methods that are there now."""
        functions: dict[tuple[str, bool], object] = {
            (CALL, False): self._call,
            (CALL, True): self._call_and_wait,
            (SEND, False): self._send,
            (SEND, True): self._send_and_wait,
        }
        return cast("Function", functions[name, self.waits])

    def _find(self, method: int) -> tuple[Decode, Encode, ForeignSpec]:
        """Raises: UnknownMethod."""
        found = self._ready.get(method)
        if found is None:
            raise UnknownMethod(unknown_text(self._service(), method, self.specs))
        return found

    def _call(self, state: object, ctx: Context, method: int, args: bytes) -> bytes | None:
        decode, encode, spec = self._find(method)
        return encode(spec.function(state, ctx, decode(args)))

    async def _call_and_wait(self, state: object, ctx: Context, method: int, args: bytes) -> bytes | None:
        decode, encode, spec = self._find(method)
        result = spec.function(state, ctx, decode(args))
        return encode(await cast("Awaitable[object]", result) if spec.waits else result)

    def _send(self, state: object, ctx: Context, method: int, args: bytes) -> None:
        if method in self._ready:
            decode, _, spec = self._ready[method]
            spec.function(state, ctx, decode(args))
        else:
            self._note(ctx, method)

    async def _send_and_wait(self, state: object, ctx: Context, method: int, args: bytes) -> None:
        if method not in self._ready:
            self._note(ctx, method)
            return
        decode, _, spec = self._ready[method]
        result = spec.function(state, ctx, decode(args))
        if spec.waits:
            await cast("Awaitable[object]", result)

    def _note(self, ctx: Context, method: int) -> None:
        """Nobody waits for an error, so it is noted who was meant."""
        ctx.fork(self._service(), SERIES, NOTE, {"series": SERIES, "method": method})


def unknown_text(service: str, method: int, known: Mapping[int, object]) -> str:
    """Say that a service has no method of a number, and which it has."""
    numbers = sorted(known)
    named = ", ".join(map(str, numbers[:NAMED_MAX])) + (", ..." if len(numbers) > NAMED_MAX else "")
    return f"service {service} has no method {method}; it has {named or 'none'}"
