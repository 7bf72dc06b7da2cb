"""Results on their way out as JSON: what JSON can't carry is refused with its place, never changed in silence.

A result is recorded as msgpack, which has more values than JSON. Most have an exact form there: bytes are base64 text,
dates and durations are ISO 8601 text, keys of maps that are numbers are their decimal text. These have none: `NaN` and
the infinities (an encoder would write null), keys that are neither text nor number nor anything with a text form,
and values that are nested too deep for the encoder.

Guarantees: a JSON text, or ResultUnreadable with the path. The recorded result is what it was. Does not: decide what a
caller may see. Imports base.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from deathless.base.errors import ResultUnreadable

_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
"""A msgpack float whose exponent is all ones; the bytes may stand in a text too, so a hit is looked into."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def result_as_json(result: bytes, decode: Callable[[bytes], object] = _decode) -> bytes:
    """Give the JSON of a recorded result.

    Args:
        result: msgpack.
        decode: to the handler's type, so that what has several JSON forms gets the one that the type says.

    Raises: ResultUnreadable.
    """
    try:
        value = _decoded(result, decode)
        found = first_misfit(value) if _NOT_FINITE.search(result) is not None else ""
        encoded = b"" if found else _encode(value)
    except RecursionError:
        raise ResultUnreadable("the result is nested too deeply to be written as JSON") from None
    except Exception as error:
        found = _place_of_misfit(result, decode)
        raise ResultUnreadable(found or f"the result can't be written as JSON: {_told(error)}") from error
    if found:
        raise ResultUnreadable(found)
    return encoded


def _decoded(result: bytes, decode: Callable[[bytes], object]) -> object:
    try:
        return decode(result)
    except msgspec.ValidationError:
        return _decode(result)  # another version of the code wrote it; its plain values are the recorded answer


def _place_of_misfit(result: bytes, decode: Callable[[bytes], object]) -> str:
    try:
        return first_misfit(_decoded(result, decode))
    except Exception:  # noqa: BLE001  as above; the error that was met first says more
        return ""


def _told(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  the text is the author's code
        return type(error).__name__


def became_null(data: bytes, value: object, what: str) -> str:
    """Give what of a value an encoder has written as null, though it is none; empty: nothing.

    Args:
        data: the value's JSON, or that of something which holds it.
        value: what was encoded.
        what: it is, for people.
    """
    return first_misfit(value, what) if b"null" in data else ""


def first_misfit(value: object, what: str = "the result") -> str:
    """Give what in a value has no JSON form, with its place; empty: nothing was found.

    Args:
        value: that was to be JSON.
        what: it is, for people.
    """
    open_: list[tuple[str, object]] = [("$", value)]
    while open_:
        path, value = open_.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return f"{what} holds {value}, which JSON can't carry - at `{path}`"
        if isinstance(value, Mapping):
            for key in value:
                if why := _key_misfit(key):
                    return f"{what} has a map with {why} as a key, which JSON can't carry - at `{path}`"
        open_ += _inside(path, value)
    return ""


def _key_misfit(key: object) -> str:
    if isinstance(key, float) and not math.isfinite(key):
        return str(key)
    try:
        _encode({key: None})
    except Exception:  # noqa: BLE001  as above
        return f"{type(key).__name__} {str(key)[:40]}"
    return ""


def _inside(path: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"{path}.{key}", inside) for key, inside in value.items()]
    if isinstance(value, msgspec.Struct):
        return [(f"{path}.{name}", getattr(value, name, None)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{path}[{index}]", inside) for index, inside in enumerate(value)]
    fields = getattr(type(value), "__dataclass_fields__", ())
    return [(f"{path}.{name}", getattr(value, name, None)) for name in fields]
