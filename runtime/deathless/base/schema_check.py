"""Finds everything that is wrong with a tree of plain values, where a decoder names the first thing only.

Why: who edits a manifest wants all mistakes at once, each with its place, its value and what to write instead.

Guarantees: no problem found means that `msgspec.convert` takes the value; a problem names the path of the value it is
about, or of the mapping that lacks one. Does not: know lines and columns (shell.operate.manifest_file joins them by
path), check relations between fields. Imports nothing of ours.
"""

from __future__ import annotations

import difflib
import functools
import typing
from typing import NamedTuple

import msgspec
from msgspec import inspect

Path = tuple[str | int, ...]
_type_info = functools.cache(inspect.type_info)  # of our models' types alone, which are few


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
    _check(value, kind, (), found)
    return found


def _check(value: object, annotation: object, path: Path, found: list[Problem]) -> None:
    bare = _bare(annotation)
    info = _type_info(bare)
    before = len(found)
    if isinstance(info, inspect.UnionType):
        if value is None and any(isinstance(part, inspect.NoneType) for part in info.types):
            return
        rest = [part for part in typing.get_args(bare) if part is not type(None)]
        if len(rest) == 1:
            _check(value, rest[0], path, found)
            return
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        _check_fields(value, info, path, found)
    elif isinstance(info, inspect.DictType) and isinstance(value, dict):
        for key, inner in value.items():
            _check(inner, typing.get_args(bare)[1], (*path, key), found)
    elif isinstance(info, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        for index, inner in enumerate(value):
            _check(inner, typing.get_args(bare)[0], (*path, index), found)
    else:
        _check_leaf(value, annotation, path, found)
        return
    if len(found) == before and bare is not annotation:  # its parts fit; what is left is its length
        _check_leaf(value, annotation, path, found)


def _bare(annotation: object) -> object:
    """Give the type without what is said about it."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


def _check_fields(value: dict[str, object], info: inspect.StructType, path: Path, found: list[Problem]) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(info.cls)}
    for name, inner in value.items():
        if name in fields:
            _check(inner, fields[name].type, (*path, name), found)
        else:
            found.append(Problem((*path, name), None, "is no field here", _suggest(name, list(fields))))
    for name, field in fields.items():
        if field.required and name not in value:
            found.append(Problem(path, None, f"{name} is missing", f"add {name}: {expected(field.type)}"))


def _check_leaf(value: object, annotation: object, path: Path, found: list[Problem]) -> None:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        found.append(Problem(path, value, f"is {kind_of(value)}", f"write {expected(annotation)}"))


def kind_of(value: object) -> str:
    """Name what a value is, in words of the file, not of Python."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r}" if len(value) <= 60 else f"a text of {len(value)} characters"
        case list():
            return "a list"
        case _:
            return "a mapping"


def expected(annotation: object) -> str:
    """Say what fits an annotation."""
    info = _type_info(annotation)
    if isinstance(info, inspect.Metadata):
        described = (info.extra_json_schema or {}).get("description")
        if isinstance(described, str):
            return described
        info = info.type
    match info:
        case inspect.ListType(max_length=most) | inspect.VarTupleType(max_length=most) if most is not None:
            return f"a list of at most {most}"
        case inspect.DictType(max_length=most) if most is not None:
            return f"a mapping of at most {most}"
        case inspect.IntType() | inspect.FloatType():
            return _number(info)
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
        case inspect.StrType():
            return "a text"
        case inspect.ListType() | inspect.VarTupleType():
            return "a list"
        case inspect.UnionType():
            rest = [part for part in typing.get_args(_bare(annotation)) if part is not type(None)]
            return " or ".join(expected(part) for part in rest)
        case _:
            return "a mapping"


def _number(info: inspect.IntType | inspect.FloatType) -> str:
    words = "a whole number" if isinstance(info, inspect.IntType) else "a number"
    if info.ge is not None and info.le is not None:
        return f"{info.ge}" if info.ge == info.le else f"{words} from {info.ge} to {info.le}"
    if info.ge is not None:
        return f"{words} of at least {info.ge}"
    return words if info.gt is None else f"{words} above {info.gt}"


def _suggest(name: str, names: list[str]) -> str:
    lowered = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower().replace("_", ""), list(lowered), n=1, cutoff=0.6)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    return f"take it out; known here: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
