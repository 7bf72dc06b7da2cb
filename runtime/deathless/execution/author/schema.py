"""JSON Schema of what a service takes and gives, for descriptions of its HTTP interface.

Guarantees: JSON Schema 2020-12, the dialect of OpenAPI 3.1; the same document for the same code. Does not: describe
addresses and status codes; the ingress does. Imports base only.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.author.foreign_methods import ForeignSpec
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.declared.formats import add_formats

REFERENCE = "#/components/schemas/{name}"


class Schemas(NamedTuple):
    """Schemas of a service."""

    arguments: dict[str, dict[str, object]]  # by handler, and by name of each method whose bytes are JSON
    results: dict[str, dict[str, object]]  # likewise
    components: dict[str, dict[str, object]]  # what the others refer to, under `REFERENCE`


def _anything(_of: type) -> dict[str, object]:
    """Describe `object`, the one type that is let through although nobody knows what is in it."""
    return {"description": "Any value."}


def json_schemas(service: Service) -> Schemas:
    """Give the JSON Schemas of all handlers and queries of a service.

    Raises: InvalidService for a type that JSON has no word for.
    """
    specs: list[HandlerSpec | ForeignSpec] = list(service.specs.values())
    specs += [spec for spec in service.methods.values() if spec.codec == "json"]
    types = [spec.args_type for spec in specs] + [spec.result_type for spec in specs]
    try:
        schemas, components = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=REFERENCE)
    except TypeError as error:
        raise InvalidService(f"service {service.name} can't be described: {error}") from None
    add_formats(types, schemas, components, REFERENCE)
    names = [spec.name for spec in specs]
    return Schemas(
        dict(zip(names, schemas[: len(names)], strict=True)),
        dict(zip(names, schemas[len(names) :], strict=True)),
        components,
    )
