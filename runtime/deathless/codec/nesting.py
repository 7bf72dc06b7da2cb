"""How deep a msgpack or JSON value is nested: a bound that depends on the bytes alone.

Why: encoders and decoders recurse once per level, and the level at which they give up depends on the interpreter and
on where they are called from. A value that one process can just encode is one that the next can't decode. So values
are refused at `NESTING_MAX`, far below any of those levels, by everybody who lets a value in: a decoder of arguments,
a turn that leaves a state or a result.

Guarantees: the same verdict for the same bytes in every process and version of Python; never recurses deeper than
the decoder does. What is surely flat costs two passes in C over the bytes. Does not: tell whether bytes are well
formed. Imports base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from deathless.base.limits import NESTING_MAX

_CONTAINERS: Final = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
"""First bytes of maps and arrays. They also occur inside of texts and numbers, so counting them gives a bound."""
_decode: Final = msgspec.msgpack.Decoder().decode
_decode_json: Final = msgspec.json.Decoder().decode
_BRACKETS: Final = b"[{"
_HOLDS: Final = frozenset((dict, list, tuple))
"""What a decoder without a type makes of containers: of just these classes."""


def is_too_deep(data: bytes, levels_max: int = NESTING_MAX) -> bool:
    """True when the value in `data` has more than `levels_max` containers inside each other.

    Bytes that are no value give False, unless what comes before the fault is too deep for the decoder already.
    """
    return _may_be_too_deep(data, _CONTAINERS, levels_max) and _is_decoded_too_deep(data, _decode, levels_max)


def is_json_too_deep(text: bytes, levels_max: int = NESTING_MAX) -> bool:
    """True when the JSON value in `text` has more than `levels_max` arrays and objects inside each other.

    Bytes that are no JSON give False, unless what comes before the fault is too deep for the decoder already.
    """
    return _may_be_too_deep(text, _BRACKETS, levels_max) and _is_decoded_too_deep(text, _decode_json, levels_max)


def _may_be_too_deep(data: bytes, firsts: bytes, levels_max: int) -> bool:
    """Are there enough bytes of those that begin a container?"""
    return len(data) > levels_max and len(data) - len(data.translate(None, firsts)) > levels_max


def _is_decoded_too_deep(data: bytes, decode: Callable[[bytes], object], levels_max: int) -> bool:
    try:
        level = [decode(data)]
    except RecursionError:
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError, OverflowError):
        return False
    return _has_more_levels(level, levels_max)


def _has_more_levels(level: list[object], levels_max: int) -> bool:
    for _ in range(levels_max):
        inside: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inside += value
                inside += value.values()
            elif isinstance(value, (list, tuple)):  # a union would be made anew for each value
                inside += value
        level = [value for value in inside if type(value) in _HOLDS]
        if not level:
            return False
    return True
