"""An OpenAPI 3.1 document of a service's HTTP interface, made from the types of its handlers.

It says what the ingress does (see ingress): addresses, arguments, results, headers, and of each status which codes an
error can carry. So a program that knows nothing of Deathless can call the service, and tools can make clients.

Guarantees: the same document for the same code; valid OpenAPI 3.1, whatever handlers and types are called. Does not:
describe what operators may do. How callers prove who they are is the replica's, not the code's: it is told. Imports
execution and errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import metadata
from itertools import count
from typing import Final, cast

import msgspec

from deathless.base import errors
from deathless.base.errors import DeathlessError
from deathless.execution.author.foreign_methods import ForeignSpec
from deathless.execution.author.schema import REFERENCE, Schemas, json_schemas
from deathless.execution.author.service import HandlerSpec, Service
from deathless.shell.ingress.openapi_methods import method_paths
from deathless.shell.ingress.openapi_topics import TOPIC_PHRASES, topic_paths

OPENAPI: Final = "3.1.0"
Json = dict[str, object]

_JSON: Final = "application/json"
_OF_QUERIES: Final = (400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504)
_OF_HANDLERS: Final = (*_OF_QUERIES, 415, 507)
_OF_RESULTS: Final = (400, 401, 403, 404, 409, 422, 429, 500, 503)
_PHRASES: Final = {  # ours: the standard library's differ between its versions
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    413: "TooLarge",
    415: "UnsupportedMediaType",
    422: "Unprocessable",
    429: "TooManyRequests",
    500: "InternalError",
    503: "Unavailable",
    504: "Timeout",
    507: "NoSpace",
}
_SCHEMAS: Final = REFERENCE.format(name="")
_OURS: Final = ("Error", "Accepted")

_ERROR: Final[Json] = {
    "type": "object",
    "description": "What went wrong; the code has a page of its own.",
    "properties": {
        "code": {"type": "string", "description": "Which error, `DL` and four digits.", "examples": ["DL3005"]},
        "error": {"type": "string", "description": "What happened."},
        "remedy": {"type": "string", "description": "What to do about it; empty for none."},
        "docs": {"type": "string", "description": "Path of the code's page."},
        "field": {"type": "string", "description": "The argument it is about, `$.amount`."},
        "type": {"type": "string", "description": "Of the exception that a handler raised."},
    },
    "required": ["code", "error", "remedy", "docs"],
}
_INVOCATION: Final[Json] = {
    "description": "Its id: a number, or SHARD-NUMBER where the service has several shards.",
    "oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]{1,3}-[1-9][0-9]{0,18}$"}],
}
_ACCEPTED: Final[Json] = {
    "type": "object",
    "description": "The handler waits for something; the call is confirmed and goes on by itself.",
    "properties": {
        "invocation": _INVOCATION,
        "location": {"type": "string", "description": "Where to ask for its result."},
    },
    "required": ["invocation", "location"],
}
_PARAMETERS: Final[Json] = {
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Names the call: however often it is sent with the same key, it is done once. One is made"
        " where it is missing; the answer tells it.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    },
    "Prefer": {
        "name": "Prefer",
        "in": "header",
        "description": "`wait=N`: answer 202 when the handler still waits after N seconds (at most 600; 30 without"
        " this header). `respond-async`: at once.",
        "schema": {"type": "string", "examples": ["wait=5"]},
    },
    "Stale": {
        "name": "stale",
        "in": "query",
        "description": "`true`: any replica may answer, from a state that may be some moments old.",
        "schema": {"type": "boolean", "default": False},
    },
}
_HEADERS: Final[Json] = {
    "IdempotencyKey": {"description": "The key the call was done under.", "schema": {"type": "string"}},
    "Location": {"description": "Where to ask for the result.", "schema": {"type": "string"}},
    "RetryAfter": {"description": "Seconds after which to send the same again.", "schema": {"type": "integer"}},
}

_TOKEN: Final[Json] = {"type": "http", "scheme": "bearer"}
_SCHEMES: Final[dict[str, tuple[str, Json]]] = {
    "Token": ("token", {**_TOKEN, "description": "The caller's own token."}),
    "OIDC": ("oidc", {**_TOKEN, "bearerFormat": "JWT", "description": "A token of the issuer that the service names."}),
    "MTLS": ("certificate", {"type": "mutualTLS", "description": "A client certificate of the service's authority."}),
}


def encode_document(service: Service, authentication: str = "") -> bytes:
    """Give the document of a service as JSON; arguments as of `document`."""
    return msgspec.json.encode(document(service, authentication))


def document(service: Service, authentication: str = "") -> Json:
    """Give the document of a service, as JSON values.

    Args:
        service: its code.
        authentication: `ingress.authentication.type` where callers prove who they are; empty: a token may be asked for.
    """
    scheme, how = _SCHEMES.get(authentication, ("token", _TOKEN))
    schemas = json_schemas(service)
    names = _other_names(schemas.components)
    components = {names.get(name, name): _renamed(schema, names) for name, schema in schemas.components.items()}
    paths: Json = {}
    inlined: set[str] = set()  # components that stand in the paths
    for name, spec in service.specs.items():
        arguments, result = (_renamed(of[name], names) for of in (schemas.arguments, schemas.results))
        inlined.add(str(arguments["$ref"]).removeprefix(_SCHEMAS))
        arguments = components[str(arguments["$ref"]).removeprefix(_SCHEMAS)]
        arguments = _without(arguments, spec.keys[0]) if spec.keys else arguments
        describe = _query if spec.kind == "query" else _handler
        paths[f"/{service.name}/{{key}}/{name}"] = describe(service, spec, arguments, result)
    paths |= _methods(service, schemas, names, components, inlined)
    components = {name: schema for name, schema in components.items() if name not in inlined}
    paths[f"/{service.name}/-/invocations/{{invocation}}"] = _result()
    phrases = _PHRASES | (TOPIC_PHRASES if service.topics else {})
    if service.topics:
        paths |= topic_paths(service.topics, {status: _to("responses", phrase) for status, phrase in phrases.items()})
    return {
        "openapi": OPENAPI,
        "info": {
            "title": service.name,
            "version": _version(),
            "description": "The version is that of Deathless, which serves it.",
        },
        "servers": [{"url": "/"}],
        "security": [{scheme: []}] if authentication else [{}, {scheme: []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR, "Accepted": _ACCEPTED},
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "responses": {phrase: _refused(status) for status, phrase in phrases.items()},
            "securitySchemes": {scheme: how},
        },
    }


def _methods(
    service: Service, schemas: Schemas, names: Mapping[str, str], components: Mapping[str, Json], inlined: set[str]
) -> Json:
    """Give the paths of methods that are called by their numbers."""

    def of(spec: ForeignSpec) -> tuple[Json, Json]:
        arguments, result = (_renamed(of[spec.name], names) for of in (schemas.arguments, schemas.results))
        inlined.add(str(arguments["$ref"]).removeprefix(_SCHEMAS))
        arguments = components[str(arguments["$ref"]).removeprefix(_SCHEMAS)]
        (taken,) = cast("dict[str, Json]", arguments["properties"]).values()
        return taken, result

    keyed: Json = {"Idempotency-Key": _to("headers", "IdempotencyKey")}
    common = {"key": _to("parameters", "IdempotencyKey"), "keyed": keyed, "202": _accepted(keyed)}
    common |= cast("dict[str, Json]", _errors(_OF_HANDLERS))
    return method_paths(service, _key(service, ()), of, common)


def _version() -> str:
    try:
        return metadata.version("deathless")
    except metadata.PackageNotFoundError:  # run from its sources
        return "0"


def _handler(service: Service, spec: HandlerSpec, arguments: Json, result: Json) -> Json:
    body: Json = {"content": {_JSON: {"schema": arguments}}}
    if arguments.get("required"):
        body["required"] = True
    keyed: Json = {"Idempotency-Key": _to("headers", "IdempotencyKey")}
    return {
        "post": {
            **_told(spec, "handlers"),
            "parameters": [_key(service, spec.keys), _to("parameters", "IdempotencyKey"), _to("parameters", "Prefer")],
            "requestBody": body,
            "responses": {
                "200": {"description": "The result.", "headers": keyed, "content": {_JSON: {"schema": result}}},
                "202": _accepted(keyed),
                **_errors(_OF_HANDLERS),
            },
        }
    }


def _query(service: Service, spec: HandlerSpec, arguments: Json, result: Json) -> Json:
    required = cast("list[str]", arguments.get("required", []))
    properties = cast("dict[str, Json]", arguments.get("properties", {}))
    named: list[Json] = [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in properties.items()
        if name != "stale"  # whoever calls an argument so can't be given it over HTTP
    ]
    return {
        "get": {
            **_told(spec, "queries"),
            "parameters": [_key(service, spec.keys), _to("parameters", "Stale"), *named],
            "responses": {
                "200": {"description": "The answer.", "content": {_JSON: {"schema": result}}},
                **_errors(_OF_QUERIES),
            },
        }
    }


def _result() -> Json:
    responses: Json = {
        "200": {"description": "The result, as the handler's.", "content": {_JSON: {"schema": {}}}},
        "202": _accepted({}),
        **_errors(_OF_RESULTS),
    }
    return {
        "get": {
            "operationId": "-invocations",
            "tags": ["results"],
            "summary": "Wait for the result of a call that was answered 202; as often as you like.",
            "parameters": [
                {"name": "invocation", "in": "path", "required": True, "schema": _INVOCATION},
                _to("parameters", "Prefer"),
            ],
            "responses": responses,
        }
    }


def _told(spec: HandlerSpec, tag: str) -> Json:
    first, _, rest = spec.doc.partition("\n")
    told: Json = {"operationId": spec.name, "tags": [tag]}
    if first:
        told["summary"] = first
    if rest.strip():
        told["description"] = rest.strip()
    return told


def _key(service: Service, keys: Sequence[str]) -> Json:
    text = "Which object. A key that is `-` is written `%2D`."
    if service.single:
        text = "Any text: the service is one object."
    elif keys:
        text = f"The argument `{keys[0]}`."
    schema: Json = {"type": "string", "minLength": 1}
    return {"name": "key", "in": "path", "required": True, "description": text, "schema": schema}


def _accepted(headers: Json) -> Json:
    return {
        "description": "The handler still waits; ask for its result later.",
        "headers": {**headers, "Location": _to("headers", "Location")},
        "content": {_JSON: {"schema": _to("schemas", "Accepted")}},
    }


def _errors(statuses: Iterable[int]) -> Json:
    return {str(status): _to("responses", _PHRASES[status]) for status in sorted(statuses)}


def _refused(status: int) -> Json:
    codes = codes_of(status)
    known = ", ".join(f"`{code}` {name}" for code, name in codes.items())
    coded: Json = {"properties": {"code": {"enum": list(codes)}}}
    refused: Json = {
        "description": f"An error: {known}.",
        "content": {_JSON: {"schema": {"allOf": [_to("schemas", "Error"), coded]}}},
    }
    if status in (429, 503, 507):
        refused["headers"] = {"Retry-After": _to("headers", "RetryAfter")}
    return refused


def codes_of(status: int) -> dict[str, str]:
    """Give the codes of all errors that are answered with a status, and their names; ascending."""
    known = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DeathlessError)]
    coded = [each for each in known if "code" in vars(each) and each is not DeathlessError]
    found = {each.code: each.__name__ for each in coded if each.http_status == status}
    if status == 415:
        found = {errors.InvalidArgument.code: errors.InvalidArgument.__name__}
    if status == 501:
        found = {errors.InvalidConfig.code: errors.InvalidConfig.__name__}
    return dict(sorted(found.items()))


# ---- schemas --------------------------------------------------------------------------------------------------------


def _to(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _without(arguments: Json, key: str) -> Json:
    """Leave an argument out that stands in the address."""
    properties = {name: schema for name, schema in cast("Json", arguments["properties"]).items() if name != key}
    required = [name for name in cast("list[str]", arguments.get("required", [])) if name != key]
    return {**arguments, "properties": properties, "required": required}


def _other_names(names: Collection[str]) -> dict[str, str]:
    """Give other names for components of a service that are called as ours."""
    taken = {*_OURS, *names}
    found: dict[str, str] = {}
    for name in _OURS:
        if name in names:
            found[name] = next(other for number in count(2) if (other := f"{name}{number}") not in taken)
    return found


def _renamed(schema: Json, names: Mapping[str, str]) -> Json:
    """Give a schema that refers to other names."""

    def renamed(value: object) -> object:
        if isinstance(value, list):
            return [renamed(part) for part in value]
        if not isinstance(value, dict):
            return value
        found = {name: renamed(part) for name, part in value.items()}
        if isinstance(reference := found.get("$ref"), str):
            name = reference.removeprefix(_SCHEMAS)
            found["$ref"] = _SCHEMAS + names.get(name, name)
        return found

    return cast("Json", renamed(schema))
