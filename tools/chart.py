#!/usr/bin/env python3
"""Writes the charts' derived files: values.schema.json, the README's table of values, and the CRDs of their own chart.

Why: a value has one place where it is explained, values.yaml. Its comment becomes the description in the schema and
the row in the table, its default becomes the type, and the schema refuses every name that is not there. The CRDs of
`charts/deathless-crds` are those of `crds/`, which are made from the typed models.

    # Words that describe it, as many lines as it takes.
    # @schema {"minimum": 1}          adds to the schema; {"open": true}: an object of Kubernetes, any keys
    replicas: 2

Guarantees: `--check` fails where a file is not as it would be written. Does not: read helm templates.

    python tools/chart.py            write
    python tools/chart.py --check    exit 1 and name the files that differ
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "deathless"
CRD_CHART = ROOT / "charts" / "deathless-crds"
BEGIN, END = "<!-- values:begin -->", "<!-- values:end -->"
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):(.*)$")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

Schema = dict[str, object]


@dataclass(slots=True)
class Value:
    """One key of values.yaml."""

    path: tuple[str, ...]
    default: object
    words: str
    extra: Schema
    children: list[Value] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """True for an object that is handed on as it is, or whose keys are names of the user's."""
        return "open" in self.extra or "additionalProperties" in self.extra

    @property
    def is_leaf(self) -> bool:
        """True when it is set as a whole."""
        return self.is_open or not isinstance(self.default, dict) or not self.children


class Undescribed(Exception):
    """A value has no words, or its annotation can't be read."""


def read_values(text: str) -> list[Value]:
    """Read keys with their comments, in order; those below an open object belong to its default.

    Raises: Undescribed.
    """
    defaults = yaml.safe_load(text)
    top: list[Value] = []
    stack: list[Value] = []
    words: list[str] = []
    extra: Schema = {}
    closed_at: int | None = None  # indentation of the open object that is being passed over
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            words, extra = _comment(stripped, words, extra)
            continue
        match = _KEY.match(line)
        if match is None:
            if not stripped:
                words, extra = [], {}
            continue
        indent = len(match[1])
        if closed_at is not None and indent > closed_at:
            continue
        stack = stack[: indent // 2]
        path = (*(stack[-1].path if stack else ()), match[2])
        value = Value(path, _at(defaults, path), " ".join(words), extra)
        (stack[-1].children if stack else top).append(value)
        stack.append(value)
        closed_at = indent if value.is_open else None
        words, extra = [], {}
    for each in leaves(top):
        if not each.words:
            raise Undescribed(f"values.yaml: {'.'.join(each.path)} has no comment")
    return top


def _comment(line: str, words: list[str], extra: Schema) -> tuple[list[str], Schema]:
    body = line.lstrip("#").strip()
    if not body.startswith("@schema"):
        return [*words, body], extra
    try:
        return words, extra | json.loads(body.removeprefix("@schema"))
    except json.JSONDecodeError as error:
        raise Undescribed(f"values.yaml: {body}: {error}") from error


def _at(values: object, path: tuple[str, ...]) -> object:
    for key in path:
        assert isinstance(values, dict)
        values = values[key]
    return values


def leaves(values: list[Value]) -> list[Value]:
    """Give the values that are set as a whole, in order."""
    found: list[Value] = []
    for value in values:
        found += [value] if value.is_leaf else leaves(value.children)
    return found


def schema_of(value: Value) -> Schema:
    """Give the JSON schema of one value."""
    made: Schema = {"type": _TYPES[type(value.default)]}
    if value.words:
        made["description"] = value.words
    if value.is_leaf:
        made["default"] = value.default
    else:
        made |= _object(value.children)
    return made | {key: part for key, part in value.extra.items() if key != "open"}


def _object(children: list[Value]) -> Schema:
    properties = {child.path[-1]: schema_of(child) for child in children}
    return {"properties": properties, "additionalProperties": False}


def render_schema(values: list[Value]) -> str:
    """Give values.schema.json."""
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"} | _object(values)
    # Helm hands `global` to every chart that is part of another.
    properties = whole["properties"]
    assert isinstance(properties, dict)
    properties["global"] = {"type": "object", "description": "Of the chart that this one is part of; not used."}
    return json.dumps(whole, indent=2) + "\n"


def render_table(values: list[Value]) -> str:
    """Give the table of the README."""
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    for value in leaves(values):
        default = json.dumps(value.default).replace("|", "\\|")
        words = value.words.replace("|", "\\|")
        rows.append(f"| `{'.'.join(value.path)}` | `{default}` | {words} |")
    return "\n".join(rows)


def with_table(readme: str, table: str) -> str:
    """Put the table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def render_crd(text: str) -> str:
    """Make a template of a CRD: kept at uninstall, labelled, and nothing in it taken for a template."""
    body = re.sub(r"^#.*\n", "", text, count=1)
    assert body.startswith("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name:")
    body = body.replace("{{", "{{ `{{` }}")
    metadata = '  {{- include "deathless-crds.metadata" . | nindent 2 }}\n'
    return "{{/* Made by tools/chart.py from crds/. */}}\n" + body.replace("metadata:\n", "metadata:\n" + metadata, 1)


def derived() -> dict[Path, str]:
    """Give every derived file with its text."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    readme = CHART / "README.md"
    files = {
        CHART / "values.schema.json": render_schema(values),
        readme: with_table(readme.read_text(encoding="utf-8"), render_table(values)),
    }
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        files[CRD_CHART / "templates" / crd.name] = render_crd(crd.read_text(encoding="utf-8"))
    return files


def differing() -> list[str]:
    """Name what is not as it would be written; CRDs of no model included."""
    wanted = derived()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    extra = [path for path in (CRD_CHART / "templates").glob("*.yaml") if path not in wanted]
    return sorted(str(path.relative_to(ROOT)) for path in [*stale, *extra])


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments == ["--check"]:
        for name in differing():
            print(f"{name} is not up to date: run python tools/chart.py")
        return 1 if differing() else 0
    for path, text in derived().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
