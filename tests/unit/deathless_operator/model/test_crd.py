"""The CRDs are those of the models, and what an API server takes; tests/apiserver asks a real one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from tools import crds

from deathless_operator.model.crd import DEFINITIONS, Definition, make_crd

# Fields of tolerations, which pods get whole.
HANDED_ON = {"operator", "toleration_seconds"}
EXACT_MAX = 2**53 - 1


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word], f"{path}[]")


def schema_of(definition: Definition) -> Any:
    """The schema of the whole resource."""
    crd: Any = make_crd(definition)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_files_are_as_the_models_have_them() -> None:
    assert crds.differing() == []


def test_file_that_differs_or_is_of_no_model_is_found(tmp_path: Path) -> None:
    (tmp_path / "deathless.dev_gone.yaml").write_text("x")
    assert crds.differing(tmp_path) == [
        "deathless.dev_deathlessservices.yaml",
        "deathless.dev_failoverdrills.yaml",
        "deathless.dev_gone.yaml",
        "deathless.dev_liveupgrades.yaml",
        "deathless.dev_rehearsals.yaml",
        "deathless.dev_replays.yaml",
        "deathless.dev_sparkpipelines.yaml",
    ]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_schema_is_structural_and_bounded(definition: Definition) -> None:
    for path, node in nodes(schema_of(definition)):
        preserved = node.get("x-kubernetes-preserve-unknown-fields")
        assert preserved or node.get("type") or node.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "title", "const", "anyOf"} & set(node) or node.get("x-kubernetes-int-or-string"), path
        assert "default" not in node or node["default"] is not None, path
        if path.startswith(".spec") and node.get("type") == "array":
            assert "maxItems" in node, path
        if path.startswith(".spec") and node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path
        if isinstance(node.get("additionalProperties"), dict):
            assert "maxProperties" in node, path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_bounds_are_numbers_that_an_api_server_reads_exactly(definition: Definition) -> None:
    """It reads bounds as floating-point numbers: above 2^53 - 1 another number would be the bound."""
    for path, node in nodes(schema_of(definition)):
        for word in ("minimum", "maximum"):
            assert abs(node.get(word, 0)) <= EXACT_MAX, path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_every_field_is_explained(definition: Definition) -> None:
    for path, node in nodes(schema_of(definition)):
        if not path.endswith("[]") and not path.startswith(".metadata"):
            assert node.get("description"), path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_columns_show_fields_that_there_are(definition: Definition) -> None:
    paths = {path for path, _ in nodes(schema_of(definition))}
    for column in definition.columns:
        path = column.path.partition("[")[0]
        assert path in paths or path == ".metadata.creationTimestamp", column.name


def test_service_can_be_scaled_and_drill_cannot() -> None:
    found = {definition.kind: make_crd(definition) for definition in DEFINITIONS}
    subresources: Any = {
        kind: crd["spec"]["versions"][0]["subresources"]  # type: ignore[index,call-overload]
        for kind, crd in found.items()
    }
    assert set(subresources["DeathlessService"]) == {"status", "scale"}
    assert set(subresources["FailoverDrill"]) == {"status"}


def test_names_are_short_and_in_our_own_category() -> None:
    for definition in DEFINITIONS:
        names: Any = make_crd(definition)["spec"]["names"]  # type: ignore[index,call-overload]
        [short] = names["shortNames"]
        assert (names["categories"], len(short) in (2, 3)) == (["deathless"], True)


def test_conditions_are_told_apart_by_type() -> None:
    for definition in DEFINITIONS:
        conditions = schema_of(definition)["properties"]["status"]["properties"]["conditions"]
        assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
        assert set(conditions["items"]["required"]) == {"type", "status", "reason"}


def fields(struct: type[msgspec.Struct]) -> set[str]:
    """Names of a struct's fields and of all below it, as Python has them."""
    found, todo = set(), [struct]
    while todo:
        for field in msgspec.structs.fields(todo.pop()):
            found.add(field.name)
            todo += list(structs_in(field.type))
    return found


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Structs that an annotation names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from structs_in(inner)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)
def test_every_field_of_a_spec_is_read_by_somebody(definition: Definition) -> None:
    sources = [*Path("operator").rglob("*.py"), *Path("runtime").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    unread = {name for name in fields(definition.spec) if not re.search(rf"\.{name}\b", text)}
    assert unread <= HANDED_ON, "a field that nobody reads promises something"


def test_writing_and_checking_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(crds, "FOLDER", tmp_path)
    assert crds.main([]) == 0
    assert crds.differing(tmp_path) == []
    for path in tmp_path.glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["kind"] == "CustomResourceDefinition"
