"""What an OpenAPI document says of methods that are called by their numbers (see by_number).

A service with methods of its own has a path for each; one that takes any number, such as a program in another language,
has one path for all. Guarantees: the same for the same code. Does not: know what is in the bytes, but for methods whose
bytes are JSON. Imports execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from deathless.execution.author.foreign_methods import METHOD_MAX, METHOD_MIN, ForeignSpec
from deathless.execution.author.service import Service
from deathless.execution.turn.method_address import CALL
from deathless.shell.ingress.by_number import takes_numbers

Json = dict[str, object]
_BYTES: Final = "application/octet-stream"
_RAW: Final[Json] = {_BYTES: {"schema": {"type": "string", "contentMediaType": _BYTES}}}
_ANY: Final[Json] = {"*/*": {"schema": {"type": "string", "contentMediaType": _BYTES}}}
_METHOD: Final[Json] = {
    "name": "method",
    "in": "path",
    "required": True,
    "description": "Its number.",
    "schema": {"type": "integer", "minimum": METHOD_MIN, "maximum": METHOD_MAX},
}
_PREFER: Final[Json] = {
    "name": "Prefer",
    "in": "header",
    "description": "`return=minimal`: send it and want no result; the answer is 204 once it is logged. `wait=N`: answer"
    " 202 when the method still waits after N seconds. `respond-async`: at once.",
    "schema": {"type": "string", "examples": ["return=minimal"]},
}


def method_paths(
    service: Service, key: Json, schemas: Callable[[ForeignSpec], tuple[Json, Json]], common: Mapping[str, Json]
) -> Json:
    """Give the paths of methods; none where the service is not called by numbers.

    Args:
        service: its code.
        key: the parameter that says which object.
        schemas: of what a method takes and gives, for those whose bytes are JSON.
        common: what all calls have: the answers beside 200 and 204 by their status, `key` for the parameter of
            idempotency, `keyed` for the headers of an answer.
    """
    spec = service.specs.get(CALL)
    if spec is None or not takes_numbers(spec):
        return {}
    if not service.methods:
        told: Json = {"operationId": "-method", "summary": "Call a method by its number."}
        path = f"/{service.name}/{{key}}/{{method}}"
        return {path: {"post": _method(told, [key, _METHOD], (_ANY, _RAW), common)}}
    return {
        f"/{service.name}/{{key}}/{number}": {
            "post": _method(_told(each), [key], _contents(each, schemas), common),
        }
        for number, each in sorted(service.methods.items())
    }


def _told(spec: ForeignSpec) -> Json:
    first, _, rest = spec.doc.partition("\n")
    told: Json = {"operationId": f"-method{spec.method}"}
    return told | ({"summary": first} if first else {}) | ({"description": rest.strip()} if rest.strip() else {})


def _contents(spec: ForeignSpec, schemas: Callable[[ForeignSpec], tuple[Json, Json]]) -> tuple[Json, Json]:
    if spec.codec == "json":
        taken, given = schemas(spec)
        return {spec.content_type: {"schema": taken}}, {spec.content_type: {"schema": given}}
    return _ANY, {spec.content_type: {"schema": {"type": "string", "contentMediaType": spec.content_type}}}


def _method(told: Json, parameters: list[Json], contents: tuple[Json, Json], common: Mapping[str, Json]) -> Json:
    taken, given = contents
    others = {status: answer for status, answer in common.items() if status.isdigit()}
    keyed = common["keyed"]
    return {
        **told,
        "tags": ["methods"],
        "parameters": [*parameters, common["key"], _PREFER],
        "requestBody": {"content": taken},
        "responses": {
            "200": {"description": "Its bytes.", "headers": keyed, "content": given},
            "204": {"description": "It returned nothing, or nothing was wanted.", "headers": keyed},
            **others,
        },
    }
