"""JSON that comes in from strangers: what is ambiguous or too deep is refused before it is decoded to types.

JSON leaves open what an object means whose key comes twice; most decoders take the last one, some the first. A proxy
that checks an amount and a service that uses another one would disagree, so such an object is refused. So are values
that are nested deeper than any argument may be, and `NaN` and `Infinity`, which are no JSON.

Guarantees: the refusal names the place. Does not: decode to types. Imports codec and base.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from deathless.base.errors import InvalidArgument
from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_json_too_deep

TOO_DEEP: Final = f"nested more than {NESTING_MAX} levels"


class _Repeated(Exception):
    """A key came twice."""


class _Pairs(list[tuple[str, object]]):
    """An object whose keys may come twice."""


def check_body(body: bytes) -> None:
    """Refuse a JSON text whose meaning is open.

    Raises: InvalidArgument for a key that comes twice, a value that is nested too deep, bytes that are not UTF-8,
    and numbers that are none. What is no JSON for another reason is left to the decoder.
    """
    if is_json_too_deep(body):
        raise InvalidArgument(f"the body is {TOO_DEEP}")
    if body.count(b":") < 2 and b"N" not in body and b"I" not in body:
        return
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the body is not UTF-8: byte {error.start} can't be read") from None
    try:
        _scan(text, _checked)
    except _Repeated:
        path = _path_of_repeated(_scan(text, _Pairs))
        raise InvalidArgument(f"an object has the same key twice - at `{path}`") from None
    except ValueError:
        return  # no JSON: the decoder says where


def _scan(text: str, pairs: Callable[[list[tuple[str, object]]], object]) -> object:
    return json.loads(text, object_pairs_hook=pairs, parse_int=str, parse_float=str, parse_constant=_no_number)


def _checked(pairs: list[tuple[str, object]]) -> object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Repeated
    return None  # of what is inside, all was seen already


def _no_number(text: str) -> object:
    raise InvalidArgument(f"{text} is not JSON: give a number, or null where the type allows it")


def _path_of_repeated(value: object) -> str:
    """Give where a key comes twice, `$.amount`."""
    open_: list[tuple[str, object]] = [("$", value)]
    while open_:
        path, value = open_.pop()
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, inside in value:
                if key in seen:
                    return f"{path}.{key}"
                seen.add(key)
                open_.append((f"{path}.{key}", inside))
        elif isinstance(value, list):
            open_ += [(f"{path}[{index}]", inside) for index, inside in enumerate(value)]
    return "$"
