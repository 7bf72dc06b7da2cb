"""What an OpenAPI document says of the topics of a service (see topic_pages).

Guarantees: the same for the same topics. Does not: describe who may read. Imports base.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deathless.base.topics.state import ARROW, NDJSON, WAIT_MAX_S

Json = dict[str, object]
TOPIC_PHRASES: Final = {410: "Gone", 501: "NotHere"}
"""Of statuses that only requests for topics are answered with."""
_REFUSED: Final = (400, 401, 403, 429, 503)
_OF_ONE: Final = (*_REFUSED, 404, 409)

_STATE: Final[Json] = {
    "type": "object",
    "description": "Which rows of a topic there are, of one shard.",
    "properties": {
        "topic": {"type": "string"},
        "shard": {"type": "integer"},
        "source": {"type": "string", "description": "Whose positions: service ID and incarnation; empty: no rows yet."},
        "floor": {"type": "integer", "description": "Rows below may be gone."},
        "first": {"type": "integer", "description": "From here on all rows are there."},
        "next": {"type": "integer", "description": "Up to here, without it."},
        "columns": {"type": "string", "description": "The schema of the newest rows."},
        "files": {"type": "integer"},
        "bytes": {"type": "integer"},
        "timeUs": {"type": "integer", "description": "Newest logical time of a row, microseconds since 1970."},
    },
    "required": ["topic", "shard", "source", "floor", "first", "next"],
}
_HOLD: Final[Json] = {"type": "object", "properties": {"hold": {"type": "string"}}, "required": ["hold"]}
_POSITION: Final[Json] = {"type": "integer", "minimum": 1}


def topic_paths(topics: Iterable[str], errors: dict[int, Json]) -> Json:
    """Give the paths of topics.

    Args:
        topics: that the service declares.
        errors: what is answered with each status.
    """
    place: list[Json] = [
        {"name": "topic", "in": "path", "required": True, "schema": {"enum": sorted(topics)}},
        {"name": "shard", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}},
    ]
    hold: list[Json] = [
        *place,
        {"name": "hold", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 63}},
    ]
    source = _query("source", {"type": "string"}, "Whose positions; where that is not the present source, it is a 409.")
    owner = _query("owner", {"type": "string", "maxLength": 256}, "Whose hold, where callers have no names.")
    above = _query("above", {"type": "integer"}, "With `wait`: answer when `next` is above it.")
    wait = _query("wait", {"type": "integer", "maximum": WAIT_MAX_S}, "Seconds after which to answer at the latest.")
    listed: Json = {
        "type": "object",
        "properties": {"topics": {"type": "array", "items": _STATE}},
        "required": ["topics"],
    }
    position: Json = {**_query("position", _POSITION, "Rows from here on are kept."), "required": True}

    def told(name: str, summary: str, parameters: list[Json], content: Json, statuses: Iterable[int]) -> Json:
        return {
            "operationId": f"-{name}",
            "tags": ["topics"],
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "As asked for.", "content": content},
                **{str(status): errors[status] for status in sorted(statuses)},
            },
        }

    at = "/topics/{topic}/{shard}"
    return {
        "/topics": {"get": told("topics", "Topics that the caller may read.", [], _json(listed), _REFUSED)},
        at: {"get": told("topic", "Which rows there are.", [*place, source, above, wait], _json(_STATE), _OF_ONE)},
        f"{at}/rows": {
            "get": told("rows", "Rows, exactly those asked for.", [*place, *_of_rows(), source], _ROWS, _OF_ROWS)
        },
        f"{at}/holds/{{hold}}": {
            "put": told("hold", "Keep rows.", [*hold, position, source, owner], _json(_HOLD), (*_OF_ONE, 410)),
            "delete": told("drop-hold", "Let go of a hold.", [*hold, source, owner], _json(_HOLD), _OF_ONE),
        },
    }


_OF_ROWS: Final = (*_OF_ONE, 410, 501)
_ROWS: Final[Json] = {ARROW: {}, NDJSON: {}}


def _of_rows() -> list[Json]:
    return [
        _query("from", _POSITION, "The first position; else the first that is there."),
        _query("to", _POSITION, "The position to stop before; else the one behind the last."),
        _query("columns", {"type": "string"}, "Only these, divided by commas."),
        _query("schema", {"type": "string"}, "Text of the row schema to give rows in; else that of the newest rows."),
        _query("format", {"enum": ["arrow", "ndjson"]}, "Else as the header Accept says."),
    ]


def _query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
