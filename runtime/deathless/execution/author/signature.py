"""From a handler's signature to the type of its arguments.

Arguments travel by name, so each handler gets a msgspec Struct with one field for each parameter after state and
context: unknown names are refused, missing ones and wrong types named with their path. Everything that can't work is
refused when the service is imported, not when the first call comes.

Guarantees: every parameter has a type that can be encoded and decoded; defaults are never shared between turns.
Does not: call anything of the author's. Imports base only.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from enum import Enum
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Final, Protocol, get_args, get_origin, get_type_hints

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.declared.declared_types import check_type
from deathless.execution.declared.type_shapes import has_no_order, walk
from deathless.execution.maps.map import Map, decode_map, encode_map
from deathless.execution.turn.context import Context, QueryContext
from deathless.execution.values.function import Function, place


class Hint(Protocol):
    """Resolves the annotation of a parameter."""

    def __call__(self, annotation: object, name: str, *, optional: bool = False) -> object:
        """Give it, or None with `optional`."""
        ...


__all__ = ["MAPPING", "Function", "Signature", "check_fields", "check_state",
           "check_type", "has_no_order", "hint_of", "map_types", "place", "read_activity",
           "read_signature", "walk"]  # fmt: skip
CONTEXT_NAMES: Final = ("ctx", "context")
_MAP_KEYS: Final = (str, int, bytes)
_SHAREABLE: Final = (bool, int, float, str, bytes, Enum, type(None))
_EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a handler takes and gives."""

    arguments: type[msgspec.Struct]  # one field per argument, in the order of the parameters
    result: object  # annotation of what it returns
    takes_context: bool  # False: a query that takes its state alone, or an activity
    keywords: tuple[str, ...]  # arguments to be passed by keyword; Invariant: the last fields of `arguments`
    waits: bool = False  # True: an `async def`


def read_signature(function: Function, *, kind: str, scope: Mapping[str, object], shape: object) -> Signature:
    """Take the signature of a handler or query apart.

    Args:
        function: the author's.
        kind: "handler", "query", "input" or "birth".
        scope: names visible where the function is registered; annotations of local classes are found there.
        shape: type its first parameter is annotated with, if it is: the state's, or a mapping's.

    Raises: InvalidService naming function, file and line.
    """
    where = place(function)
    waits = inspect.iscoroutinefunction(inspect.unwrap(function))
    if waits and kind not in ("handler", "input"):
        raise InvalidService(f"{where}: a {kind} is a plain `def`: it can't await")
    parameters = _parameters(function, kind, where)
    hint = partial(hint_of, function, where, scope)
    if not parameters:
        raise InvalidService(f"{where}: the first parameter must be the state")
    stated = hint(parameters[0].annotation, parameters[0].name, optional=True)
    if isinstance(stated, type) and isinstance(shape, type) and not issubclass(shape, stated):
        raise InvalidService(f"{where}: `{parameters[0].name}` is a {shape.__name__}, not a {stated.__name__}")
    takes_context = len(parameters) > 1 and _is_context(parameters[1], hint)
    if not takes_context and kind != "query":
        raise InvalidService(f"{where}: the second parameter must be the context (`ctx: Context`)")
    return _read_rest(function, kind, where, parameters[1 + takes_context :], hint, takes_context=takes_context)


def read_activity(function: Function, scope: Mapping[str, object]) -> Signature:
    """Take the signature of an activity apart: it has arguments alone, each of which can be given by name.

    Raises: InvalidService naming function, file and line.
    """
    where = place(function)
    parameters = _parameters(function, "activity", where)
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidService(f"{where}: `{parameter.name}` can't be given by name; arguments of activities are")
    return _read_rest(
        function, "activity", where, parameters, partial(hint_of, function, where, scope), takes_context=False
    )


def _parameters(function: Function, kind: str, where: str) -> list[inspect.Parameter]:
    code = inspect.unwrap(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidService(f"{where}: a {kind} returns what it gives: it can't yield")
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidService(f"{where}: `*{parameter.name}`: arguments must be named one by one")
    return parameters


def _read_rest(
    function: Function, kind: str, where: str, rest: list[inspect.Parameter], hint: Hint, *, takes_context: bool
) -> Signature:
    """Take the arguments and the result apart."""
    rest.sort(key=lambda parameter: parameter.kind is parameter.KEYWORD_ONLY)
    fields = [
        _field(parameter, hint(parameter.annotation, parameter.name), where, as_json=kind != "activity")
        for parameter in rest
    ]
    result = hint(inspect.signature(function).return_annotation, "return")
    as_json = kind != "activity"
    check_type(result, f"{where}: result", as_json=as_json)
    keywords = tuple(parameter.name for parameter in rest if parameter.kind is parameter.KEYWORD_ONLY)
    # Without the garbage collector: no handler gets to see this object, so nothing can make it part of a cycle.
    name = f"{getattr(function, '__name__', kind)}_arguments"
    arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True, frozen=True, gc=False)
    waits = inspect.iscoroutinefunction(inspect.unwrap(function))
    return Signature(arguments=arguments, result=result, takes_context=takes_context, keywords=keywords, waits=waits)


def hint_of(
    function: Function,
    where: str,
    scope: Mapping[str, object],
    annotation: object,
    name: str,
    *,
    optional: bool = False,
) -> object:
    """Resolve one annotation; with `optional` give None where there is none or it can't be resolved.

    Raises: InvalidService.
    """
    if annotation is _EMPTY:
        if optional:
            return None
        what = "what it returns has no type; write `-> None` if it is nothing"
        raise InvalidService(f"{where}: " + (what if name == "return" else f"parameter `{name}` has no type"))
    holder = SimpleNamespace(__annotations__={name: annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, globalns=dict(names), localns=dict(scope), include_extras=True)[name]
    except Exception as error:  # noqa: BLE001  an annotation is the author's code and may raise anything
        if optional:
            return None
        raise InvalidService(f"{where}: type of `{name}` can't be resolved: {error}") from None


def _is_context(parameter: inspect.Parameter, hint: Hint) -> bool:
    if parameter.kind is parameter.KEYWORD_ONLY:
        return False
    stated = hint(parameter.annotation, parameter.name, optional=True)
    if stated is None:
        return parameter.name in CONTEXT_NAMES
    return stated in (Context, QueryContext)


def _field(
    parameter: inspect.Parameter, hint: object, where: str, *, as_json: bool
) -> tuple[str, type] | tuple[str, type, object]:
    check_type(hint, f"{where}: parameter `{parameter.name}`", as_json=as_json)
    # A type is what the library calls every annotation here, unions and Annotated included.
    stated: type = hint  # type: ignore[assignment]  # no type stands for "any annotation" before PEP 747
    if parameter.default is _EMPTY:
        return parameter.name, stated
    default = parameter.default
    if isinstance(default, _SHAREABLE):
        return parameter.name, stated, default
    return parameter.name, stated, msgspec.field(default_factory=lambda: copy.deepcopy(default))


def map_types(state: type) -> dict[str, tuple[type, object]]:
    """Give the types of key and value of each field of a state that is a Map, by name."""
    return {
        name: (_bare(get_args(stated)[0]), get_args(stated)[1])
        for name, stated in _fields(state).items()
        if get_origin(stated) is Map
    }


def _fields(state: type) -> dict[str, object]:
    """Give the annotations of a state's fields."""
    if issubclass(state, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(state)}
    assert is_dataclass(state), "a state is one or the other"
    hints = get_type_hints(state, include_extras=True)
    return {field.name: hints[field.name] for field in dataclass_fields(state)}


def _bare(kind: object) -> type:
    """Give the class that a NewType stands for."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    return kind  # type: ignore[return-value]  # whatever else it is, is refused by `_check_maps`


def _check_maps(state: type, where: str) -> None:
    """Refuse maps that can't be kept, and what the other fields can't hold."""
    check_fields(state, where)
    maps = map_types(state)
    first, second = state(), state()
    for name in maps:
        if getattr(first, name) is getattr(second, name):
            raise InvalidService(
                f"{where}: map `{name}` would be one object for all keys; write `= field(default_factory=Map)`"
            )


def check_fields(state: type, where: str) -> None:
    """Refuse fields of a state, of this version or an older one, that can't be kept.

    Raises: InvalidService naming `where` and the field.
    """
    maps = map_types(state)
    if not maps:
        check_type(state, where, kept=True)
        return
    for name, stated in _fields(state).items():
        if name not in maps:
            check_type(stated, f"{where}: field `{name}`", kept=True)
            continue
        kind, value = maps[name]
        if kind not in _MAP_KEYS:
            raise InvalidService(f"{where}: keys of map `{name}` must be str, int or bytes, not {kind}")
        check_type(value, f"{where}: items of map `{name}`", kept=True)


def check_state(state: object, where: str) -> None:
    """Refuse a state type that can't hold the state of a key.

    Raises: InvalidService naming `where` and the reason.
    """
    if not isinstance(state, type) or not (issubclass(state, msgspec.Struct) or is_dataclass(state)):
        raise InvalidService(f"{where}: state must be a Struct or a dataclass, not {state!r}")
    parameters = getattr(state, "__dataclass_params__", None)
    config = getattr(state, "__struct_config__", parameters)
    if config is not None and config.frozen:
        raise InvalidService(f"{where}: {state.__name__} is frozen, but handlers change the state in place")
    where_state = f"{where}: state {state.__name__}"
    try:
        has_maps = bool(map_types(state))
    except Exception:  # noqa: BLE001  an annotation is the author's code; `check_type` tells what is wrong with it
        has_maps = False
    try:
        if has_maps:
            _check_maps(state, where_state)
        else:
            check_type(state, where_state, kept=True)
        encoded = msgspec.msgpack.encode(state(), enc_hook=encode_map)
        msgspec.msgpack.decode(encoded, type=state, dec_hook=decode_map)
    except InvalidService:
        raise
    except Exception as error:  # noqa: BLE001  the constructor is the author's code and may raise anything
        raise InvalidService(
            f"{where}: {state.__name__}() must give the state of a key that was never used: {error}"
        ) from None


MAPPING: Final = MappingProxyType
"""What the first parameter of a handler of several keys is: states by key, read-only itself."""
