"""What an API server refuses is made into what it takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from deathless.base.manifest_parts import told
from deathless_operator.model.rules import Rule
from deathless_operator.model.schema import SchemaError, structural, with_rules


class Inner(msgspec.Struct, frozen=True):
    x: Annotated[int, Meta(gt=0), told("X.")] = 3


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inner: Annotated[Inner | None, told("Said at the field.")] = None
    kind: Annotated[Literal["A", "B"] | None, told("Kind.")] = None
    ratio: Annotated[Annotated[float, Meta(lt=1)], told("Ratio.")] = 0.5
    free: Annotated[dict[str, object], told("Free.")] = {}
    texts: Annotated[Annotated[dict[str, str], Meta(max_length=3)], told("Texts.")] = {}
    size: Annotated[int | Annotated[str, Meta(pattern="^x$")] | None, told("Size.")] = None
    items: Annotated[tuple[Inner, ...], Meta(max_length=2), told("Items.")] = ()
    conditions: Annotated[tuple[Inner, ...], told("Conditions.")] = ()
    name: Annotated[str, told("Name.")] = ""
    flag: Annotated[bool, told("Flag.")] = False
    quoted: Annotated[str, Meta(description="From the type.")] = "x"


def properties() -> Any:
    """The converted properties."""
    return structural(Outer)["properties"]


def test_part_stands_in_place_with_the_words_of_the_field() -> None:
    inner = properties()["inner"]
    assert (inner["type"], inner["nullable"], inner["description"]) == ("object", True, "Said at the field.")
    assert inner["properties"]["x"] == {
        "description": "X.",
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "format": "int64",
        "default": 3,
    }


def test_choices_may_be_null() -> None:
    assert properties()["kind"] == {"description": "Kind.", "enum": ["A", "B"], "nullable": True, "type": "string"}


def test_bounds_lists_and_mappings_are_as_openapi_has_them() -> None:
    found = properties()
    assert (found["ratio"]["maximum"], found["ratio"]["exclusiveMaximum"]) == (1, True)
    assert found["free"] == {"description": "Free.", "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert (found["texts"]["maxProperties"], found["texts"]["additionalProperties"]) == (3, {"type": "string"})
    assert (found["items"]["maxItems"], found["items"]["x-kubernetes-list-type"]) == (2, "atomic")
    assert found["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_number_or_text_is_named_as_such() -> None:
    assert properties()["size"] == {
        "description": "Size.",
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": "^x$",
        "nullable": True,
    }


def test_only_plain_defaults_are_kept() -> None:
    found = properties()
    assert [name for name in found if "default" in found[name]] == ["ratio", "flag", "quoted"]
    assert "additionalProperties" not in structural(Outer)
    assert found["quoted"]["description"] == "From the type."


def test_field_that_says_nothing_is_a_mistake() -> None:
    class Silent(msgspec.Struct):
        x: int = 0

    with pytest.raises(SchemaError, match=r"Silent\.x: says nothing"):
        structural(Silent)


def test_types_that_have_no_schema_are_a_mistake() -> None:
    class Odd(msgspec.Struct):
        x: Annotated[int | list[int], told("Odd.")] = 0

    class Strange(msgspec.Struct):
        x: Annotated[complex, told("Strange.")] = 0j

    class Bare(msgspec.Struct):
        x: Annotated[dict, told("Bare.")] = {}  # type: ignore[type-arg]

    with pytest.raises(SchemaError, match="several types"):
        structural(Odd)
    with pytest.raises(SchemaError, match="has no schema"):
        structural(Strange)
    with pytest.raises(SchemaError, match="would be emptied"):
        structural(Bare)


def rule(where: str) -> Rule:
    """A rule about a place."""
    return Rule(name="r", where=where, rule="self.x > 0", message="m")


def test_rules_are_written_where_they_are_about() -> None:
    schema: Any = {"properties": {"spec": structural(Outer)}}
    with_rules(schema, [rule("spec"), rule("spec.items[]"), rule("spec")])
    written = {"rule": "self.x > 0", "message": "m"}
    assert schema["properties"]["spec"]["x-kubernetes-validations"] == [written, written]
    assert schema["properties"]["spec"]["properties"]["items"]["items"]["x-kubernetes-validations"] == [written]
    with pytest.raises(SchemaError, match=r"there is no spec\.gone"):
        with_rules(schema, [rule("spec.gone.x")])


def test_text_or_number_needs_no_pattern_and_no_words() -> None:
    class Bare(msgspec.Struct):
        x: Annotated[dict[str, int | str], told("Bare.")] = {}

    found: Any = structural(Bare)["properties"]
    assert found["x"]["additionalProperties"] == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
