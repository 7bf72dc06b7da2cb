"""The OpenAPI document: a validator of others finds it valid, and it is enough to call a service by."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
import pytest
from bank_fake import bank
from http_wire import Answer, Wire, get, post
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from tests.unit.deathless.shell.ingress.test_ingress import Site, site

from deathless.base import errors
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.shell.ingress.openapi import codes_of, document, encode_document

Json = dict[str, Any]
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Error(msgspec.Struct):
    """Called as a part of ours."""

    why: str
    more: list[Error] = []


class Accepted(msgspec.Struct):
    on: datetime


class Größe(msgspec.Struct):  # noqa: PLC2401  what authors may call theirs
    of: Annotated[int, msgspec.Meta(ge=0)] = 0


class Error2(msgspec.Struct):
    """In the way of another name."""


class State(msgspec.Struct):
    count: int = 0


shop = Service("shop", state=State)


@shop.handler
async def order(
    state: State, ctx: Context, colour: Colour, boxes: list[Box[int]], *, more: Größe | None = None
) -> Error:
    """Order something.

    It may take long.
    """
    return Error(colour.name)


@shop.handler(keys=("source", "target"))
def move(states: Mapping[str, State], ctx: Context, source: str, target: str, by: int = 1) -> dict[str, Accepted]:
    return {source: Accepted(ctx.now)}


@shop.handler
def anything(state: State, ctx: Context, value: object) -> Error2:
    return Error2()


@shop.query
def find(state: State, ctx: Context, text: str, only: list[int] = [], stale: bool = False) -> Größe:  # noqa: B006
    return Größe(len(text))


single = Service("one", state=State, single=True)


@single.handler
def nothing(state: State, ctx: Context) -> None:
    state.count += 1


def resolved(of: Json, part: Json) -> Json:
    """Follow a reference."""
    if "$ref" not in part:
        return part
    found: Any = of
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return cast("Json", found)


def operation(of: Json, name: str) -> tuple[str, str, Json]:
    """Give path, method and description of an operation."""
    for path, methods in of["paths"].items():
        for method, told in methods.items():
            if told["operationId"] == name:
                return path, method, told
    raise AssertionError(name)


@pytest.mark.parametrize("service", [bank, shop, single, Service("empty", state=State)])
def test_it_is_valid(service: Service) -> None:
    validate(cast("Any", json.loads(encode_document(service))))


def test_it_is_the_same_each_time() -> None:
    assert encode_document(shop) == encode_document(shop)


def test_each_handler_and_query_stands_in_it_with_what_it_takes_and_gives() -> None:
    of = cast("Json", document(shop))
    path, method, told = operation(of, "order")
    assert (path, method, told["summary"]) == ("/shop/{key}/order", "post", "Order something.")
    assert "take long" in told["description"]
    taken = told["requestBody"]["content"]["application/json"]["schema"]
    assert told["requestBody"]["required"] is True
    assert set(taken["properties"]) == {"colour", "boxes", "more"}
    assert taken["required"] == ["colour", "boxes"]
    given = told["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(resolved(of, given)["properties"]) == {"why", "more"}
    assert {resolved(of, each)["name"] for each in told["parameters"]} == {"key", "Idempotency-Key", "Prefer"}
    assert "Location" in told["responses"]["202"]["headers"]
    path, method, told = operation(of, "find")
    assert (path, method) == ("/shop/{key}/find", "get")
    named = {each["name"]: each for each in (resolved(of, each) for each in told["parameters"])}
    assert list(named) == ["key", "stale", "text", "only"]
    assert (named["text"]["required"], named["only"]["required"]) == (True, False)


def test_the_key_of_the_address_is_no_argument() -> None:
    told = operation(cast("Json", document(shop)), "move")[2]
    taken = told["requestBody"]["content"]["application/json"]["schema"]
    assert (list(taken["properties"]), taken["required"]) == (["target", "by"], ["target"])
    assert "source" in told["parameters"][0]["description"]
    told = operation(cast("Json", document(single)), "nothing")[2]
    assert "one object" in told["parameters"][0]["description"]


def test_types_that_are_called_as_ours_or_with_odd_letters_get_other_names() -> None:
    schemas = cast("Json", document(shop))["components"]["schemas"]
    assert schemas["Error"]["required"] == ["code", "error", "remedy", "docs"]
    assert list(schemas["Error3"]["properties"]) == ["why", "more"]
    assert schemas["Error3"]["properties"]["more"]["items"] == {"$ref": "#/components/schemas/Error3"}
    assert schemas["Error2"]["properties"] == {}
    assert "Accepted2" in schemas
    assert "Gr__e" in schemas
    assert "Box_int_" in schemas


def test_each_status_says_which_codes_it_may_carry() -> None:
    known = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.DeathlessError)
    ]
    for each in known:
        if "code" in vars(each) and each is not errors.DeathlessError:
            assert codes_of(each.http_status)[each.code] == each.__name__
    told = cast("Json", document(bank))["components"]["responses"]
    for response in told.values():
        assert response["content"]["application/json"]["schema"]["allOf"][1]["properties"]["code"]["enum"]
    assert "Retry-After" in told["TooManyRequests"]["headers"]


# ---- a caller that knows the document and nothing else ---------------------------------------------------------------


class Caller:
    """Calls what a document describes, and holds every answer against it."""

    def __init__(self, of: Json, wire: Wire) -> None:
        self.of = of
        self.wire = wire

    async def call(self, name: str, values: Json, **headers: str) -> Answer:
        """Call an operation by its name; each value goes where the document says."""
        path, method, told = operation(self.of, name)
        named: dict[str, Any] = {}
        lines = [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
        values = dict(values)
        for each in (resolved(self.of, part) for part in told["parameters"]):
            if each["name"] in values:
                value = values.pop(each["name"])
                if each["in"] == "path":
                    path = path.replace(f"{{{each['name']}}}", quote(str(value), safe=""))
                elif each["in"] == "query":
                    named[each["name"]] = value
        if named:
            path += "?" + urlencode(named, doseq=True)
        if method == "get":
            answer = await self.wire.ask(get(path, *lines))
        else:
            answer = await self.wire.ask(post(path, json.dumps(values).encode(), *lines))
        self.check(told, answer)
        return answer

    def check(self, told: Json, answer: Answer) -> None:
        """Hold an answer against what is described."""
        assert str(answer.status) in told["responses"], f"{answer.status} is not described"
        response = resolved(self.of, told["responses"][str(answer.status)])
        schema = response["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": self.of["components"]}).validate(answer.json)
        for header in response.get("headers", {}):
            assert header.lower() in answer.headers


def run(look: Any, **options: Any) -> None:
    """Have `look` look at an ingress of the bank, by its document."""

    async def main() -> None:
        async with site(**options) as found:
            of = await found.ask(get("/bank/-/openapi.json"))
            assert (of.status, of.headers["content-type"]) == (200, "application/json")
            validate(of.json)
            await look(found, Caller(of.json, found.wire))

    asyncio.run(main())


def test_calls_are_made_from_the_document_alone() -> None:
    async def look(found: Site, caller: Caller) -> None:
        answer = await caller.call("deposit", {"key": "alice/1", "amount": 5}, Idempotency_Key="k1")
        assert (answer.status, answer.json) == (200, 5)
        assert (await caller.call("deposit", {"key": "alice/1", "amount": 5}, Idempotency_Key="k1")).json == 5
        assert (await caller.call("balance", {"key": "alice/1"})).json == 5
        assert (await caller.call("transfer", {"key": "a", "target": "b", "amount": 2})).json == {"a": -2, "b": 2}
        answer = await caller.call("history", {"key": "a", "only": ["x", "y"], "first": 3, "stale": "true"})
        assert answer.json == {"first": 3, "only": ["x", "y"], "exact": False, "since": None}

    run(look)


def test_errors_are_as_the_document_says() -> None:
    async def look(found: Site, caller: Caller) -> None:
        assert (await caller.call("withdraw", {"key": "alice", "amount": 5})).status == 409
        assert (await caller.call("deposit", {"key": "alice", "amount": "five"})).status == 400
        assert (await caller.call("deposit", {"key": "x" * 2000, "amount": 5})).status == 413
        await caller.call("deposit", {"key": "alice", "amount": 5}, Idempotency_Key="k1")
        reused = await caller.call("deposit", {"key": "alice", "amount": 6}, Idempotency_Key="k1")
        assert (reused.status, reused.json["code"]) == (422, errors.KeyReused.code)

    run(look)


def test_the_document_is_for_callers_with_a_token_and_takes_no_other_method() -> None:
    async def main() -> None:
        async with site(token="0123456789abcdef") as found:
            assert (await found.ask(get("/bank/-/openapi.json"))).status == 401
            shown = "Authorization: Bearer 0123456789abcdef"
            assert (await found.ask(get("/bank/-/openapi.json", shown))).status == 200
            answer = await found.ask(post("/bank/-/openapi.json", b"{}", shown))
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")

    asyncio.run(main())
