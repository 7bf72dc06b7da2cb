"""A handler made ready to run: decoders and encoders chosen once, so that a turn only calls them.

Values cross the handler's boundary as bytes (design 0003, "Turns"): arguments come decoded from the message, the state
comes decoded from its bytes and goes back encoded, the result is encoded. Types that may hold sets are encoded in
sorted order, because the order of a set differs between processes; types without sets keep the order of their dicts.
What is nested too deep is neither decoded nor let out.

Guarantees: two plans of the same service give the same bytes for the same values. Does not: make replies of what is
raised; the executor does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Final, cast

import msgspec

from deathless.base.errors import InvalidArgument, TooLarge
from deathless.execution.author.inputs import INPUT, row_decoder
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.author.signature import has_no_order, map_types
from deathless.execution.declared.type_shapes import shallow_decoder, shallow_encoder, sorts_itself
from deathless.execution.handlers.older_arguments import OlderForms
from deathless.execution.maps.map import decode_map, encode_map
from deathless.execution.maps.view import MapField
from deathless.execution.values.failure import is_fatal
from deathless.execution.values.ordered import ordered_encoder

Call = Callable[[object, object, msgspec.Struct], object]
Decode = Callable[[bytes], object]
Encode = Callable[[object], bytes]

COMPILED_MAX: Final = 1024  # adapters whose code is kept
_SCALARS: Final = {kind: kind for kind in (bool, int, float, str, bytes, type(None))}


def encoder(stated: object, hook: Callable[[object], object] | None = None) -> Encode:
    """Give the encoder for values of an annotation; `hook` encodes what msgspec does not know.

    It raises msgspec.ValidationError for a value that is nested too deep.
    """
    if has_no_order(stated):
        encode = ordered_encoder(hook, sorts_itself=sorts_itself(stated))
    else:
        encode = msgspec.msgpack.Encoder(enc_hook=hook).encode
    return shallow_encoder(stated, encode)


def map_field(name: str, kind: type, value: object) -> MapField:
    """Make a field of maps ready.

    Args:
        name: of the field.
        kind: of keys.
        value: annotation of the items.
    """
    hint = type(None) if value is None else value
    plain = isinstance(hint, type) and hint in _SCALARS
    decode: Decode = msgspec.msgpack.Decoder(value).decode
    return MapField(name=name, kind=kind, plain=plain, decode=decode, encode=encoder(value))


def adapter(spec: HandlerSpec) -> Call:
    """Give a function of (state, context, arguments Struct) that calls the author's with its arguments one by one.

    It is compiled from text, as dataclasses are: a call with the attributes written out costs a third of one with a
    list of values made for it. Only names of parameters are in the text, and those are identifiers.
    """
    names = spec.args_type.__struct_fields__
    taken = ["state", "context"][: 1 + spec.takes_context]
    taken += [f"{name}=_.{name}" if name in spec.keywords else f"_.{name}" for name in names]
    scope: dict[str, object] = {"function": spec.function}
    text = f"def call(state, context, _): return function({', '.join(taken)})"
    exec(_compiled(text), scope)  # noqa: S102  only names of parameters are in it
    return cast("Call", scope["call"])


@lru_cache(COMPILED_MAX)
def _compiled(text: str) -> CodeType:
    """Compile what handlers of the same parameters share, and executors of the same service."""
    return compile(text, "<adapter>", "exec")


class Plan:
    """What it takes to run one handler, query or input.

    Args:
        spec: what is registered.
        maps: the state holds maps.
        older: forms of its arguments that older versions send, and which are taken as well.
    """

    __slots__ = (
        "apart", "call", "check_result", "decode_arguments", "encode_arguments", "encode_result", "keys", "of_streams",
        "older", "ours", "scalar", "spec",
    )  # fmt: skip

    def __init__(self, spec: HandlerSpec, *, maps: bool = False, older: OlderForms | None = None) -> None:
        self.spec = spec
        self.older = older
        self.apart = maps or bool(spec.keys)  # more than one state to decode and encode: it runs beside the flat loop
        self.call = adapter(spec)
        self.of_streams = spec.kind == INPUT  # it takes rows of streams, and nothing from anybody else
        if self.of_streams:
            self.decode_arguments = row_decoder(spec.args_type)
        else:
            decode: Callable[[bytes], msgspec.Struct] = msgspec.msgpack.Decoder(spec.args_type).decode
            decode = shallow_decoder(spec.args_type, decode)
            self.decode_arguments = decode if older is None else lambda data: older.decode(data, decode)
        # Equal arguments give equal bytes: sets and maps are sorted.
        self.encode_arguments: Encode = ordered_encoder(sorts_itself=sorts_itself(spec.args_type))
        self.encode_result = encoder(spec.result_type)
        self.check_result: Decode = msgspec.msgpack.Decoder(spec.result_type).decode
        hint = type(None) if spec.result_type is None else spec.result_type
        # A result of just this class needs no second look; None of them: every result is checked.
        self.scalar: object = _SCALARS.get(hint) if isinstance(hint, type) else None
        self.keys = spec.keys
        self.ours = "." in spec.name  # built in: it works on state of ours (see probe)

    def meaning_of(self, arguments: msgspec.Struct, data: bytes) -> bytes:
        """Give bytes that are equal for arguments that mean the same; `arguments` is what `data` was decoded to.

        Those in an older form mean what they meant to the handler of then, so that a call which that one has answered
        is known again. Raises: what types of the author raise.
        """
        older = self.older.meaning(data) if self.older is not None else None
        return self.encode_arguments(arguments) if older is None else older

    def renewed(self, data: bytes) -> bytes:
        """Give arguments in the present form, as they are kept while they wait.

        Those that can't be brought into it stay as they are: they fail in their turn.
        """
        if self.older is None:
            return data
        try:
            return self.older.renewed(data)
        except BaseException as error:
            if is_fatal(error):
                raise
            return data

    def keys_of(self, arguments: msgspec.Struct, key_bytes_max: int) -> dict[str, bytes]:
        """Give the keys a handler of several keys works on, in the order of its `keys`, each once.

        Raises: InvalidArgument, TooLarge naming the argument.
        """
        keys: dict[str, bytes] = {}
        for field in self.keys:
            key = getattr(arguments, field)
            keys[key] = check_key(key.encode(), key_bytes_max, f"$.{field}")
        return keys


class StatePlan:
    """How the state of a service becomes bytes and back."""

    __slots__ = ("decode", "default", "encode", "maps")

    def __init__(self, service: Service) -> None:
        self.maps = [map_field(name, kind, value) for name, (kind, value) in map_types(service.state).items()]
        if self.maps:
            self.decode: Decode = msgspec.msgpack.Decoder(service.state, dec_hook=decode_map).decode
            self.encode = encoder(service.state, encode_map)
        else:
            self.decode = msgspec.msgpack.Decoder(service.state).decode
            self.encode = encoder(service.state)
        # State of a key that was never used. Decoded for each like any other, so a default shares nothing.
        self.default = self.encode(service.state())


def check_key(key: bytes, key_bytes_max: int, where: str) -> bytes:
    """Give `key` back if it may name an entity.

    Raises: InvalidArgument, TooLarge naming `where`.
    """
    if not key:
        raise InvalidArgument(f"the key must not be empty - at `{where}`")
    if key[0] == 0:
        raise InvalidArgument(f"a key that begins with a zero byte is not for users - at `{where}`")
    if len(key) > key_bytes_max:
        raise TooLarge(f"the key has {len(key)} bytes, at most {key_bytes_max} - at `{where}`")
    try:
        key.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the key is not UTF-8: {error} - at `{where}`") from None
    return key
