"""What the OpenAPI document says of methods by numbers: one path each, or one for all numbers; and it is valid."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from bank_fake import bank
from openapi_spec_validator import validate
from tests.unit.deathless.shell.ingress.test_openapi import resolved

from deathless import Context, Service, Struct
from deathless.foreign.service import application
from deathless.shell.ingress.openapi import document, encode_document

Json = dict[str, Any]


class Account(Struct):
    """State of one key."""


class Error(Struct):
    """Called as a part of the document's own."""

    cents: int


methods = Service("methods", state=Account)


@methods.foreign(method=7)
def add(account: Account, ctx: Context, args: bytes) -> bytes | None:
    """Add something.

    Or not.
    """


@methods.foreign(method=-2, codec="json")
def price(account: Account, ctx: Context, args: Error) -> list[Error]:
    """Give a price."""
    return [args]


@methods.foreign(method=8, codec="msgpack")
def told(account: Account, ctx: Context, args: set[int]) -> None: ...


@pytest.mark.parametrize("service", [methods, application])
def test_a_document_with_methods_is_valid(service: Service) -> None:
    validate(cast("Any", json.loads(encode_document(service))))


def test_each_method_has_its_path_with_what_it_takes_and_gives() -> None:
    of = cast("Json", document(methods))
    told = of["paths"]["/methods/{key}/7"]["post"]
    assert (told["summary"], told["description"], told["tags"]) == ("Add something.", "Or not.", ["methods"])
    assert set(told["responses"]) > {"200", "202", "204", "404", "413", "415"}
    assert list(told["responses"]["200"]["content"]) == ["application/octet-stream"]
    assert list(told["requestBody"]["content"]) == ["*/*"]
    names = [resolved(of, each)["name"] for each in told["parameters"]]
    assert names == ["key", "Idempotency-Key", "Prefer"]
    assert "content" in of["paths"]["/methods/{key}/8"]["post"]["responses"]["200"]


def test_a_method_with_json_has_the_schemas_of_its_types() -> None:
    of = cast("Json", document(methods))
    told = of["paths"]["/methods/{key}/-2"]["post"]
    taken = told["requestBody"]["content"]["application/json"]["schema"]
    given = told["responses"]["200"]["content"]["application/json"]["schema"]
    assert resolved(of, taken)["properties"].keys() == {"cents"}
    assert given["items"] == taken
    assert "price_arguments" not in of["components"]["schemas"]


def test_a_program_has_one_path_for_all_numbers() -> None:
    of = cast("Json", document(application))
    told = of["paths"]["/application/{key}/{method}"]["post"]
    assert told["parameters"][1]["schema"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}


def test_a_service_that_is_not_called_by_numbers_has_no_such_path() -> None:
    assert not [path for path in cast("Json", document(bank))["paths"] if "method" in path]
