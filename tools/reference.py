#!/usr/bin/env python3
"""Writes docs/kubernetes/reference.md: every field of every kind, from crds/*.yaml.

Why: a page written by hand lags behind. What `kubectl explain` says and what this page says come from one sentence in
the models. Guarantees: `--check` fails where the page is not as it would be written; a field without words fails.
Does not: show what is handed on to Kubernetes as it is (affinity and the like).

    python tools/reference.py            write
    python tools/reference.py --check    exit 1 when the page differs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
PAGE = ROOT / "docs" / "kubernetes" / "reference.md"
HEAD = """\
# Fields of every kind

Made by `tools/reference.py` from the kinds themselves; `kubectl explain deathlessservice.spec` says the same.
**Bold** fields must be given.
"""

Schema = dict[str, object]


class Unexplained(Exception):
    """A field has no description."""


def mapping(value: object) -> Schema:
    """Give a mapping; empty where it is none."""
    return value if isinstance(value, dict) else {}


def fields(schema: Schema, path: str = "", *, required: bool = False) -> Iterator[tuple[str, Schema, bool]]:
    """Yield (path, schema, must be given) of every field below a schema, outer ones first."""
    if path:
        yield path, schema, required
    items = mapping(schema.get("items"))
    inner, prefix = (items, f"{path}[]") if items else (schema, path)
    needed = inner.get("required")
    for name, part in mapping(inner.get("properties")).items():
        must = isinstance(needed, list) and name in needed
        yield from fields(mapping(part), f"{prefix}.{name}" if prefix else name, required=must)


def type_of(schema: Schema) -> str:
    """Say what a field takes, in a word or two."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or text"
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {type_of(mapping(schema.get('items')))}"
    if kind == "object" and schema.get("additionalProperties"):
        return f"map to {type_of(mapping(schema['additionalProperties']))}"
    return {"string": "text", "boolean": "yes or no"}.get(kind, kind)


def bounds_of(schema: Schema) -> str:
    """Say which values are taken."""
    said = []
    choices = schema.get("enum")
    if isinstance(choices, list):
        said.append("one of " + ", ".join(f"`{json.dumps(choice)}`" for choice in choices))
    low, high = schema.get("minimum"), schema.get("maximum")
    span = [f"{'above' if schema.get('exclusiveMinimum') else 'from'} {low}"] if low is not None else []
    span += [f"{'below' if schema.get('exclusiveMaximum') else 'to'} {high}"] if high is not None else []
    said += [" ".join(span)] if span else []
    if schema.get("maxItems") is not None:
        said.append(f"at most {schema['maxItems']} entries")
    if "default" in schema and schema["default"] not in ("", [], {}):
        said.append(f"default `{json.dumps(schema['default'])}`")
    return "; ".join(said)


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (where, message) of every rule that the API server checks."""
    found = schema.get("x-kubernetes-validations")
    for rule in found if isinstance(found, list) else []:
        yield path or "the whole", str(rule.get("message", rule["rule"]))
    items = mapping(schema.get("items"))
    inner, prefix = (items, f"{path}[]") if items else (schema, path)
    for name, part in mapping(inner.get("properties")).items():
        yield from rules(mapping(part), f"{prefix}.{name}" if prefix else name)


def cell(text: str) -> str:
    """Make text fit for a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(schema: Schema, kind: str) -> str:
    """Give the table of fields.

    Raises: Unexplained.
    """
    rows = ["| field | takes | meaning |", "| --- | --- | --- |"]
    for path, part, required in fields(schema):
        words = str(part.get("description", ""))
        if not words:
            raise Unexplained(f"{kind}: {path} has no description")
        takes = ", ".join(filter(None, (type_of(part), bounds_of(part))))
        name = f"**`{path}`**" if required else f"`{path}`"
        rows.append(f"| {name} | {cell(takes)} | {cell(words)} |")
    return "\n".join(rows)


def section(crd: Schema) -> str:
    """Give the part of the page about one kind."""
    spec = mapping(crd["spec"])
    names = mapping(spec["names"])
    versions = spec["versions"]
    assert isinstance(versions, list)
    version = versions[0]
    schema = mapping(mapping(version["schema"])["openAPIV3Schema"])
    parts = mapping(schema["properties"])
    kind = str(names["kind"])
    shorts = names.get("shortNames")
    short = ", ".join(f"`{name}`" for name in shorts) if isinstance(shorts, list) else ""
    said = [
        f"## {kind}",
        f"`{spec['group']}/{version['name']}`, short {short}. {schema.get('description', '')}",
        f"### {kind}: spec",
        table(mapping(parts["spec"]), kind),
        f"### {kind}: rules",
        "Checked by the API server when the object is written.",
        "\n".join(f"- `{where}`: {cell(message)}" for where, message in rules(schema)),
        f"### {kind}: status",
        "Written by the operator alone.",
        table(mapping(parts["status"]), kind),
    ]
    return "\n\n".join(said)


def render(folder: Path = CRDS) -> str:
    """Give the page."""
    crds = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    return "\n".join([HEAD, *(section(crd) + "\n" for crd in crds)])


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == render():
            return 0
        print(f"{PAGE.relative_to(ROOT)} is not up to date: run python tools/reference.py")
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
