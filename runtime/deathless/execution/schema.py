"""JSON Schema of what a service takes and gives, for descriptions of its HTTP interface.

Guarantees: JSON Schema 2020-12, the dialect of OpenAPI 3.1; the same document for the same code. Does not: describe
addresses and status codes; the ingress does. Imports base only.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deathless.execution.service import Service

REFERENCE = "#/components/schemas/{name}"


class Schemas(NamedTuple):
    """Schemas of a service."""

    arguments: dict[str, dict[str, object]]  # by handler
    results: dict[str, dict[str, object]]  # by handler
    components: dict[str, dict[str, object]]  # what the others refer to, under `REFERENCE`


def json_schemas(service: Service) -> Schemas:
    """Give the JSON Schemas of all handlers and queries of a service."""
    specs = list(service.specs.values())
    types = [spec.args_type for spec in specs] + [spec.result_type for spec in specs]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    names = [spec.name for spec in specs]
    return Schemas(
        dict(zip(names, schemas[: len(names)], strict=True)),
        dict(zip(names, schemas[len(names) :], strict=True)),
        components,
    )
