"""Makes the structural schema of a CRD from a msgspec struct.

What an API server refuses or does not know in plain JSON Schema, and what becomes of it:

    $ref                     the part itself, in place
    X or null                X with nullable
    exclusiveMinimum: 0      minimum: 0 with exclusiveMinimum: true (OpenAPI 3.0)
    additionalProperties: false, title, default of objects and empty texts      left out
    int or text              x-kubernetes-int-or-string
    any object               x-kubernetes-preserve-unknown-fields
    explain                  description

Guarantees: every property has a description, or `structural` raises. Does not: talk to an API server (the cluster's
tests do). Imports model only.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deathless_operator.model.rules import Rule
from deathless_operator.model.values import Json, JsonObject, text

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
# Lists whose entries are told apart by a key, so that several writers may share them.
LIST_KEYS = {"conditions": "type", "members": "name", "shards": "shard"}
_DROPPED = (
    "title",
    "additionalProperties",
    "propertyNames",
    "explain",
    "description",
    "default",
    "anyOf",
    "$ref",
)


class SchemaError(Exception):
    """A model that no structural schema can be made from: a mistake in the model."""


def structural(kind: type[msgspec.Struct]) -> JsonObject:
    """Give the structural schema of a struct.

    Raises: SchemaError naming the field; mend the model.
    """
    raw: JsonObject = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(kind, schema_hook=_any)))
    parts = raw.pop("$defs", {})
    assert isinstance(parts, dict)
    return _convert(raw, parts, kind.__name__)


def _any(kind: type) -> JsonObject:
    if kind is not object:
        raise SchemaError(f"{kind} has no schema")
    return {PRESERVE: True}


def _convert(node: JsonObject, parts: JsonObject, at: str) -> JsonObject:
    ref = node.get("$ref")
    if isinstance(ref, str):
        part = parts[ref.rpartition("/")[2]]
        assert isinstance(part, dict)
        # What the field says of itself is said of the part there.
        node = part | {key: value for key, value in node.items() if key != "$ref"}
    choices = node.get("anyOf")
    if isinstance(choices, list):
        return _either(node, choices, parts, at)
    result: JsonObject = {}
    if said := text(node, "explain") or text(node, "description"):
        result["description"] = said
    result |= {key: value for key, value in node.items() if key not in _DROPPED}
    if "enum" in result:
        result["type"] = "string"
    if result.get("type") == "object":
        _convert_object(node, result, parts, at)
    if isinstance(items := node.get("items"), dict):
        result["items"] = _convert(items, parts, f"{at}[]")
        result["x-kubernetes-list-type"] = "atomic"
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if flag in result:
            result[bound], result[flag] = result[flag], True
    if result.get("type") == "integer":
        result["format"] = "int64"
    _keep_default(node, result)
    return result


def _keep_default(node: JsonObject, result: JsonObject) -> None:
    default = node.get("default")
    if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
        result["default"] = default


def _either(node: JsonObject, choices: list[Json], parts: JsonObject, at: str) -> JsonObject:
    shown = {key: value for key, value in node.items() if key != "anyOf"}
    real = [choice for choice in choices if isinstance(choice, dict) and choice.get("type") != "null"]
    nullable: JsonObject = {"nullable": True} if len(real) < len(choices) else {}
    if len(real) == 1:
        return _convert(real[0] | shown, parts, at) | nullable
    kinds = {text(choice, "type"): choice for choice in real}
    if set(kinds) == {"integer", "string"}:
        pattern: JsonObject = {"pattern": kinds["string"]["pattern"]} if "pattern" in kinds["string"] else {}
        described: JsonObject = {"description": text(shown, "explain")} if text(shown, "explain") else {}
        options: list[Json] = [{"type": "integer"}, {"type": "string"}]
        return described | {"anyOf": options, INT_OR_STRING: True} | pattern | nullable
    raise SchemaError(f"{at}: a value of several types: {sorted(kinds)}")


def _convert_object(node: JsonObject, result: JsonObject, parts: JsonObject, at: str) -> None:
    properties = node.get("properties")
    values = node.get("additionalProperties")
    if isinstance(properties, dict):
        converted: JsonObject = {}
        for name, inner in properties.items():
            assert isinstance(inner, dict)
            found = _convert(inner, parts, f"{at}.{name}")
            if not found.get("description"):
                raise SchemaError(f"{at}.{name}: says nothing about itself")
            # A key tells objects apart; a list of texts by one of these names stays atomic.
            if name in LIST_KEYS and text(found, "items", "type") == "object":
                found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [LIST_KEYS[name]]}
            converted[name] = found
        result["properties"] = converted
        if not result.get("required"):
            result.pop("required", None)
    elif isinstance(values, dict) and PRESERVE in values:
        result[PRESERVE] = True
        result.pop("maxProperties", None)
    elif isinstance(values, dict):
        result["additionalProperties"] = _convert(values, parts, f"{at}.*")
    else:
        raise SchemaError(f"{at}: an object without fields would be emptied by the API server")


def with_rules(schema: JsonObject, rules: Iterable[Rule]) -> None:
    """Write rules into the schema of a whole resource.

    Raises: SchemaError where a rule is about a place that is not there.
    """
    for rule in rules:
        node = schema
        for step in rule.where.split("."):
            found = node.get("properties")
            inner = found.get(step.removesuffix("[]")) if isinstance(found, dict) else None
            if step.endswith("[]") and isinstance(inner, dict):
                inner = inner.get("items")
            if not isinstance(inner, dict):
                raise SchemaError(f"rule {rule.name}: there is no {rule.where}")
            node = inner
        written = node.setdefault("x-kubernetes-validations", [])
        assert isinstance(written, list)
        written.append({"rule": rule.rule, "message": rule.message})
