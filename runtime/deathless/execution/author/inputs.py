"""Inputs of a service: what a function that takes rows from outside must look like, and how a row becomes its argument.

A row arrives as the bytes that stood outside. It is decoded in its turn, strictly, as the class that the input
declares: so the same row has the same outcome on every replica, and one that does not fit is refused as an exception
of the handler is, by what its source says about refused inputs.

Guarantees: an input that is registered can be run; what is refused says which place of the row does not fit. Does not:
know sources (the manifest names them). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec

from deathless.base.errors import InputUnreadable, InvalidService
from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_json_too_deep
from deathless.codec.peer_messages import is_service_name
from deathless.codec.streams.rows import decode_row
from deathless.execution.author.signature import Function, Signature, place, read_signature

INPUT: Final = "input"
"""Kind of the spec of an input."""


def read_input(function: Function, name: str, scope: Mapping[str, object], state: type) -> Signature:
    """Take the signature of an input apart: state, context, and one row.

    Raises: InvalidService naming function, file and line.
    """
    where = place(function)
    if not is_service_name(name):
        raise InvalidService(
            f"{where}: input {name!r} must be named by lower-case letters, digits and inner dashes, at most 40"
        )
    signature = read_signature(function, kind=INPUT, scope=scope, shape=state)
    fields = msgspec.structs.fields(signature.arguments)
    if len(fields) != 1 or not fields[0].required:
        raise InvalidService(f"{where}: an input takes state, context and one row without a default")
    row = fields[0].type
    if not isinstance(row, type) or not issubclass(row, msgspec.Struct):
        raise InvalidService(f"{where}: `{fields[0].name}` of an input must be a Struct, not {row!r}")
    if signature.result not in (None, type(None)):
        raise InvalidService(f"{where}: what an input returns would reach nobody; write `-> None`")
    return signature


def row_decoder(arguments: type[msgspec.Struct]) -> Callable[[bytes], msgspec.Struct]:
    """Give what makes the arguments of an input of those that its FORK carries.

    It raises InputUnreadable for what is no such row.
    """
    (field,) = msgspec.structs.fields(arguments)
    decode = msgspec.json.Decoder(cast("type[msgspec.Struct]", field.type)).decode
    name = field.name

    def decoded(data: bytes) -> msgspec.Struct:
        try:
            taken = decode_row(data)
        except msgspec.MsgspecError as error:
            raise InputUnreadable(f"this is no row: {error}") from None
        if taken.why:
            raise InputUnreadable(taken.why)
        if is_json_too_deep(taken.row):
            raise InputUnreadable(f"the row is nested more than {NESTING_MAX} levels")
        try:
            row = decode(taken.row)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InputUnreadable(f"the row does not fit: {error}") from None
        return arguments(**{name: row})

    return decoded
