"""Finds everything that is wrong with a tree of plain values, where a decoder names the first thing only.

Why: who edits a manifest wants all mistakes at once, each with its place, its value and what to write instead.

Guarantees: no problem found means that `msgspec.convert` takes the value; a problem names the path of the value it is
about, or of the mapping that lacks one. Does not: know lines and columns (shell.manifest joins them by path), check
relations between fields. Imports nothing of ours.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

import msgspec
from msgspec import inspect

Path = tuple[str | int, ...]
_AT = re.compile(r" - at `(?P<key>key in )?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


class Problem(NamedTuple):
    """One mistake."""

    path: Path  # of the value, or of the mapping that lacks a field
    value: object  # what stands there; None: nothing worth showing
    what: str  # what is wrong with it
    remedy: str  # what to write instead


def show_path(path: Path) -> str:
    """Give a path as people write it: spec.lock.etcd.endpoints[0]."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def find_problems(value: object, kind: type[msgspec.Struct]) -> list[Problem]:
    """Give everything in `value` (dicts with text keys, lists, plain values) that does not fit `kind`."""
    found: list[Problem] = []
    _check(value, inspect.type_info(kind), (), found)
    return found


def _check(value: object, info: inspect.Type, path: Path, found: list[Problem]) -> None:
    struct = _struct_in(info)
    if struct is None:
        _check_leaf(value, info, path, found)
    elif value is None and struct is not info:
        return
    elif isinstance(value, dict):
        _check_fields(value, struct, path, found)
    else:
        found.append(Problem(path, value, f"is {_kind_of(value)}", f"write {expected(struct)}"))


def _check_fields(value: dict[str, object], struct: inspect.StructType, path: Path, found: list[Problem]) -> None:
    fields = {field.encode_name: field for field in struct.fields}
    for name, inner in value.items():
        if name in fields:
            _check(inner, fields[name].type, (*path, name), found)
        else:
            found.append(Problem((*path, name), None, "is not a field here", _suggest(name, list(fields))))
    for name, field in fields.items():
        if field.required and name not in value:
            found.append(Problem(path, None, f"{name} is missing", f"add {name}: {expected(field.type)}"))


def _check_leaf(value: object, info: inspect.Type, path: Path, found: list[Problem]) -> None:
    try:
        msgspec.convert(value, _annotation(info))
    except msgspec.ValidationError as error:
        text = str(error)
        steps: Path = ()
        if match := _AT.search(text):
            text = text[: match.start()]
            steps = tuple(int(index) if index else name for name, index in _STEP.findall(match["path"]) if name or index)
        at, inner = value, _Missing
        for step in steps:
            at = at[step] if isinstance(at, dict | list) else inner  # type: ignore[index]  # the path is of this value
        found.append(Problem((*path, *steps), at, _plain(text, at), f"write {expected(info)}"))


class _Missing:
    """Stands where a path leads out of the value."""


_BUILT = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.StrType: str,
}


def _annotation(info: inspect.Type) -> object:
    """Give back an annotation that `convert` understands."""
    match info:
        case inspect.UnionType(types=types):
            union: object = None
            for part in types:
                here = _annotation(part)
                union = here if union is None else union | here  # type: ignore[operator]  # annotations join by |
            return union
        case inspect.Metadata(type=inner):
            return _annotation(inner)
        case inspect.LiteralType(values=values):
            from typing import Literal

            return Literal[values]
        case inspect.NoneType():
            return type(None)
        case inspect.AnyType():
            return object
        case inspect.DictType(key_type=key, value_type=item):
            return dict[_annotation(key), _annotation(item)]  # type: ignore[misc]  # built at run time
        case inspect.ListType(item_type=item):
            return list[_annotation(item)]  # type: ignore[misc]  # built at run time
        case _:
            raise AssertionError(info)
