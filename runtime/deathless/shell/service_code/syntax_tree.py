"""What a source file means to the interpreter, as a hash: its syntax tree without what changes nothing that runs.

Comments, formatting, line numbers, docstrings and other strings that stand alone, type comments and the prefix `u` are
left out. All else counts, also names of local variables and the order of statements; annotations count, since types of
state and arguments are read from them.

The tree is walked here and not printed by `ast.dump`, whose text differs between versions of Python: a field counts by
its name, and one that is empty, absent or zero is left out, so that fields which a newer Python adds with such a
default change nothing. How a Python splits the text in an f-string is evened out.

Guarantees: the same hash under each supported Python; two files of one hash run alike. Does not: read files, nor look
at what a file imports. May import the standard library alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

LEFT_OUT: Final = frozenset({"ctx", "type_comment", "type_ignores", "kind"})
"""Fields that follow from the rest (whether a name is read or written), or that the interpreter does not look at."""

_OPEN, _CLOSE, _FIELD, _LIST, _WORD, _VALUE = b"(", b")", b".", b"[", b"'", b"="


def source_hash(source: bytes) -> str:
    """Give 32 hexadecimal digits for what a source means; for its bytes where it does not parse as Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return bytes_hash(source)
    return tree_hash(tree)


def bytes_hash(data: bytes) -> str:
    """Give 32 hexadecimal digits for bytes as they are."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def tree_hash(tree: ast.AST) -> str:
    """Give 32 hexadecimal digits for what a syntax tree means."""
    total = hashlib.blake2b(digest_size=16, person=b"syntax tree 1")
    # A stack of our own: a long chain of operators is a deeper tree than functions may call each other.
    waiting: list[object] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Token):
            total.update(item)
        elif isinstance(item, ast.AST):
            waiting.extend(reversed(list(_of_node(item))))
        elif isinstance(item, list):
            waiting.append(_Token(_CLOSE))
            waiting.extend(reversed(item))
            waiting.append(_Token(_LIST))
        else:
            total.update(_scalar(item))
    return total.hexdigest()


class _Token(bytes):
    """Bytes that are part of the hash as they stand."""

    __slots__ = ()


def _of_node(node: ast.AST) -> Iterator[object]:
    yield _Token(_OPEN + _sized(type(node).__name__.encode()))
    if isinstance(node, ast.Constant):
        yield node.value
    else:
        for name in sorted(node._fields):
            value = _meant(node, name)
            if name not in LEFT_OUT and _says_something(value):
                yield _Token(_FIELD + _sized(name.encode()))
                yield value
    yield _Token(_CLOSE)


def _meant(node: ast.AST, name: str) -> object:
    """Give a field's value without what means nothing."""
    value = getattr(node, name, None)
    if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
        return [each for each in value if not _is_lone_string(each)]
    if isinstance(node, ast.JoinedStr) and name == "values":
        return list(_joined(value if isinstance(value, list) else []))
    if name == "format_spec" and isinstance(value, ast.JoinedStr) and not list(_joined(value.values)):
        return None  # as no format at all
    return value


def _is_lone_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _joined(values: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Give the parts of an f-string, with neighbouring texts made one and empty ones left out."""
    text = ""
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text += value.value
            continue
        if text:
            yield ast.Constant(text)
            text = ""
        yield value
    if text:
        yield ast.Constant(text)


def _says_something(value: object) -> bool:
    """Is a field more than what an absent one would be? A pattern's False is: None stands in the same place."""
    return not (value is None or value == [] or (type(value) is int and value == 0))


def _scalar(value: object) -> bytes:
    """Encode what stands in the tree beside nodes and lists: names, numbers, and values of constants.

    The type is part of it: 1, 1.0 and True are equal, and not the same.
    """
    match value:
        case str():
            text = value.encode("utf-8", "surrogatepass")
        case bytes():
            text = value
        case bool() | None:
            text = repr(value).encode()
        case int():
            text = hex(value).encode()
        case tuple() | frozenset():  # no parser makes these; a tree that was made by hand may hold them
            text = b"".join(sorted(map(_scalar, value)) if isinstance(value, frozenset) else map(_scalar, value))
        case _:  # float, complex, ...
            text = repr(value).encode()
    return _WORD + _sized(type(value).__name__.encode()) + _VALUE + _sized(text)


def _sized(text: bytes) -> bytes:
    return b"%d:" % len(text) + text
