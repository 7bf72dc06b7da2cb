"""Can values of one type be read as another: what is said, and that what is not said can be read."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.execution.declared.unknown_fields import Found, unknown_fields
from deathless.execution.interface.reading import reads
from deathless.execution.interface.shapes import Shapes, show


class Two(Enum):
    A = "a"
    B = "b"


class One(Enum):
    A = "a"


class Pair(NamedTuple):
    a: int
    b: int = 0


class Short(NamedTuple):
    a: int


class Holds(msgspec.Struct):
    at: Holds | None = None
    n: int = 0


class Itself(msgspec.Struct):
    at: Itself | None = None
    n: str = ""


def words(reader: object, writer: object, *, lenient: bool = False) -> set[str]:
    """What is in the way."""
    ours, theirs = Shapes(), Shapes()
    new, old = ours.of(reader), theirs.of(writer)
    found = reads(new, ours.classes, old, theirs.classes, subject="x", lenient=lenient).mismatches
    return {f"{each.word}:{each.subject}" for each in found}


READ = [
    (int, int), (float, int), (int | None, int), (Two, One), (str, Literal["a", "b"]), (list[int], tuple[int, ...]),
    (list[int], set[int]), (object, int), (dict[str, float], dict[str, int]), (bytes, bytearray),
    (Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=5)]), (str, One), (Holds, Holds),
    (int | str | None, int | None), (Pair, Pair), (Literal["a", "b"], One),
]  # fmt: skip
NOT = [
    (int, float), (int, int | None), (One, Two), (Literal["a"], str), (set[int], list[int]),
    (tuple[int], tuple[int, int]),
    (str, int), (Annotated[int, msgspec.Meta(ge=0)], int), (dict[str, int], dict[int, int]), (list[int], list[str]),
    (Holds, Itself), (Annotated[str, msgspec.Meta(max_length=3)], str), (int, object), (Short, Pair),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READ)
def test_what_is_wider_reads(reader: object, writer: object) -> None:
    assert words(reader, writer) == set()


@pytest.mark.parametrize(("reader", "writer"), NOT)
def test_what_is_narrower_does_not(reader: object, writer: object) -> None:
    assert words(reader, writer) != set()


def test_fields_are_named_by_the_class_that_wrote_them() -> None:
    class Old(msgspec.Struct):
        a: int = 0
        gone: str = ""
        strict: int = 0

    class New(msgspec.Struct, kw_only=True):
        a: str = ""
        strict: int
        more: int
        less: int = 0

    assert words(New, Old) == {
        "FieldTypeChanged:Old.a", "FieldDropped:Old.gone", "FieldRequired:Old.strict", "FieldRequired:New.more",
    }  # fmt: skip
    assert words(list[New], dict[str, Old]) == {"FieldTypeChanged:x"}


def test_a_reader_of_results_may_pass_over_what_it_does_not_know() -> None:
    class Old(msgspec.Struct):
        a: int = 0

    class New(msgspec.Struct):
        a: int = 0
        b: int = 0

    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        a: int = 0

    assert words(Old, New) == {"FieldDropped:New.b"}
    assert words(Old, New, lenient=True) == set()
    assert words(Strict, New, lenient=True) == {"FieldDropped:New.b"}


def test_fields_of_lists_are_known_by_their_places() -> None:
    class Old(msgspec.Struct, array_like=True):
        a: int = 0
        b: int = 0

    class New(msgspec.Struct, array_like=True):
        b: int = 0
        a: int = 0

    assert words(New, Old) == {"FieldTypeChanged:Old.a", "FieldTypeChanged:Old.b"}


def test_types_are_shown_as_people_write_them() -> None:
    shapes = Shapes()
    stated = dict[str, list[Two | Holds | None]] | tuple[int, ...] | None
    assert show(shapes.of(stated), shapes.classes) == "dict[str, list[Two | Holds | None]] | tuple[int, ...] | None"


SCALARS: list[Any] = [int, str, bool, float, bytes, type(None), Two, One]
types = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(list.__class_getitem__),
        inner.map(lambda each: dict.__class_getitem__((str, each))),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: tuple[tuple(each)]),  # type: ignore[misc]  # made here
        st.dictionaries(st.sampled_from("abc"), st.tuples(inner, st.booleans()), max_size=3).map(
            lambda fields: msgspec.defstruct("Made", [(name, kind) for name, (kind, _) in fields.items()], kw_only=True)
        ),
    ),
    max_leaves=5,
)
PLAIN = msgspec.msgpack.Decoder()


def value_of(info: msgspec.inspect.Type, data: st.DataObject) -> object:
    """Draw a value of a described type, as builtins."""
    inspect = msgspec.inspect
    match info:
        case inspect.ListType(item_type=item):
            return [value_of(item, data) for _ in range(data.draw(st.integers(0, 2)))]
        case inspect.DictType(value_type=item):
            return {name: value_of(item, data) for name in data.draw(st.sets(st.sampled_from("xy")))}
        case inspect.TupleType(item_types=items):
            return [value_of(item, data) for item in items]
        case inspect.StructType(fields=fields):
            return {each.encode_name: value_of(each.type, data) for each in fields}
        case inspect.EnumType(cls=cls):
            return data.draw(st.sampled_from([each.value for each in cls]))
        case inspect.BoolType():
            return data.draw(st.booleans())
        case inspect.IntType():
            return data.draw(st.integers(-5, 5))
        case inspect.FloatType():
            return data.draw(st.floats(allow_nan=False, width=16))
        case inspect.StrType():
            return data.draw(st.sampled_from(["", "a", "zz"]))
        case inspect.BytesType():
            return data.draw(st.binary(max_size=2))
        case _:
            return None


@given(types, types, st.data())
def test_where_nothing_is_said_every_value_is_read_and_nothing_is_lost(
    reader: object, writer: object, data: st.DataObject
) -> None:
    if words(reader, writer):
        reader = writer
        assert words(reader, writer) == set()
    encoded = msgspec.msgpack.encode(value_of(msgspec.inspect.type_info(writer), data))
    msgspec.msgpack.decode(encoded, type=cast("type[object]", writer))
    msgspec.msgpack.decode(encoded, type=cast("type[object]", reader))
    found: Found = []
    if (find := unknown_fields(reader)) is not None:
        find(PLAIN.decode(encoded), found)
    assert found == []
