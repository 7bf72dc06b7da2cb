"""From the signature of a function about a change to the types that it takes and gives.

Guarantees: each annotation is one whose values can be decoded and encoded, or InvalidService names function, file and
line. Does not: know versions (see changes). Imports base.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Final

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.author.carry import Continue, Suspended
from deathless.execution.author.migration import Migration
from deathless.execution.author.signature import Hint, check_fields, hint_of
from deathless.execution.declared.declared_types import check_type
from deathless.execution.values.function import Function, place

_EMPTY: Final = inspect.Parameter.empty
_ITEM_PARAMETERS: Final = 3


def scope_of() -> dict[str, object]:
    """Give the names visible where a decorator is called: annotations of local classes are found there."""
    return dict(sys._getframe(2).f_locals)  # noqa: SLF001  as in `service`


def _parameters(function: Function, count: int, what: str) -> list[inspect.Parameter]:
    if not callable(function):
        raise InvalidService(f"{what} must be a function, not {function!r}")
    where = place(function)
    code = inspect.unwrap(function)
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidService(f"{where}: {what} is a plain `def` that returns: it can neither await nor yield")
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != count or any(each.kind not in positional for each in parameters):
        raise InvalidService(f"{where}: {what} takes {count} argument{'s' if count > 1 else ''}, by position")
    return parameters


def _hints(function: Function, scope: Mapping[str, object]) -> Hint:
    return partial(hint_of, function, place(function), scope)


def read_state_step(function: Function, scope: Mapping[str, object]) -> tuple[type, type]:
    """Give the types of the state before and behind a migration `(old, m: Migration) -> new`.

    Raises: InvalidService.
    """
    old, second = _parameters(function, 2, "a migration of (old, m: Migration)")
    hint, where = _hints(function, scope), place(function)
    if hint(second.annotation, second.name) is not Migration:
        raise InvalidService(f"{where}: its second parameter must be `{second.name}: Migration`")
    return (
        _state(hint(old.annotation, old.name), f"{where}: parameter `{old.name}`"),
        _state(hint(inspect.signature(function).return_annotation, "return"), f"{where}: result"),
    )


def _state(stated: object, where: str) -> type:
    if not isinstance(stated, type) or not (issubclass(stated, msgspec.Struct) or is_dataclass(stated)):
        raise InvalidService(f"{where} must be a Struct or a dataclass, the state of a version, not {stated!r}")
    check_fields(stated, where)
    return stated


def read_item_step(function: Function, scope: Mapping[str, object]) -> tuple[object, object]:
    """Give the annotations of the item before and behind a migration `(key: str, item, old) -> new`.

    Raises: InvalidService.
    """
    key, item, old = _parameters(function, _ITEM_PARAMETERS, "a migration of an item, (key: str, item, old),")
    hint, where = _hints(function, scope), place(function)
    if hint(key.annotation, key.name) is not str:
        raise InvalidService(f"{where}: its first parameter is the key of the state, `{key.name}: str`")
    if hint(item.annotation, item.name) not in (str, int, bytes):
        raise InvalidService(f"{where}: its second parameter is the key of the item, of type str, int or bytes")
    before = hint(old.annotation, old.name)
    after = hint(inspect.signature(function).return_annotation, "return")
    check_type(before, f"{where}: parameter `{old.name}`", kept=True)
    check_type(after, f"{where}: result")
    return before, after


def read_key_step(function: Function, scope: Mapping[str, object]) -> None:
    """Check a migration of keys, `(old: str) -> str`.

    Raises: InvalidService.
    """
    (old,) = _parameters(function, 1, "a migration of keys, (old: str) -> str,")
    hint = _hints(function, scope)
    if hint(old.annotation, old.name) is not str or hint(_returned(function), "return") is not str:
        raise InvalidService(f"{place(function)}: a migration of keys takes a str and gives one")


def read_carry(function: Function, state: type, scope: Mapping[str, object]) -> None:
    """Check what carries a suspended handler, `(old: Suspended, state) -> Continue`.

    Raises: InvalidService.
    """
    old, held = _parameters(function, 2, "what `carry` registers, (old: Suspended, state) -> Continue,")
    hint, where = _hints(function, scope), place(function)
    if hint(old.annotation, old.name) is not Suspended:
        raise InvalidService(f"{where}: its first parameter must be `{old.name}: Suspended`")
    if hint(held.annotation, held.name) is not state:
        raise InvalidService(f"{where}: its second parameter is the state, `{held.name}: {state.__name__}`")
    if hint(_returned(function), "return") is not Continue:
        raise InvalidService(f"{where}: it gives `Continue`, and its annotation says so")


def _returned(function: Function) -> object:
    return inspect.signature(function).return_annotation


def read_accepted(
    function: Function, args: object, result: object, scope: Mapping[str, object]
) -> type[msgspec.Struct]:
    """Check what makes arguments of an older version those of a handler; gives the type of the older ones.

    Raises: InvalidService.
    """
    (old,) = _parameters(function, 1, "what `accepts` registers, (old) -> dict,")
    where = place(function)
    if not isinstance(args, type) or not issubclass(args, msgspec.Struct):
        raise InvalidService(f"{where}: args must be a Struct with the older arguments as fields, not {args!r}")
    if args.__struct_config__.array_like or args.__struct_config__.tag is not None:
        raise InvalidService(f"{where}: {args.__name__} must be a plain Struct: arguments are a map by name")
    if old.annotation is not _EMPTY and _hints(function, scope)(old.annotation, old.name) is not args:
        raise InvalidService(f"{where}: `{old.name}` is not {args.__name__}, which args= names")
    check_type(args, f"{where}: args", as_json=True)
    if result is not ...:
        check_type(result, f"{where}: result", as_json=True)
    return args
