"""Schemas of what a service takes and gives."""

from dataclasses import replace
from typing import Annotated

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.author.schema import json_schemas
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class Account(msgspec.Struct):
    balance: int = 0


class Receipt(msgspec.Struct):
    cents: int


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: Annotated[int, msgspec.Meta(gt=0)], note: str = "") -> Receipt:
    account.balance += amount
    return Receipt(amount)


@bank.query
def balance(account: Account) -> int:
    return account.balance


def test_arguments_and_results_are_described_by_handler() -> None:
    schemas = json_schemas(bank)
    assert schemas.results["balance"] == {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1}
    assert schemas.results["deposit"] == {"$ref": "#/components/schemas/Receipt"}
    assert schemas.components["Receipt"]["required"] == ["cents"]
    assert set(schemas.arguments) == {"deposit", "balance"}


def test_arguments_name_bounds_defaults_and_what_is_required() -> None:
    schema = json_schemas(bank).components["deposit_arguments"]
    assert schema["required"] == ["amount"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "amount": {"type": "integer", "exclusiveMinimum": 0, "maximum": 2**64 - 1, "format": "uint64"},
        "note": {"type": "string", "default": ""},
    }


def test_schemas_are_the_same_each_time() -> None:
    assert msgspec.json.encode(json_schemas(bank)) == msgspec.json.encode(json_schemas(bank))


def test_what_may_be_anything_is_described_as_anything() -> None:
    service = Service("any", state=Account)

    @service.handler
    def keep(account: Account, ctx: Context, what: object) -> dict[str, object]:
        return {"what": what}

    schemas = json_schemas(service)
    anything = {"description": "Any value."}
    assert schemas.components["keep_arguments"]["properties"] == {"what": anything}
    assert schemas.results["keep"] == {"type": "object", "additionalProperties": anything}


def test_what_json_has_no_word_for_is_refused_by_name() -> None:
    service = Service("odd", state=Account)

    @service.handler
    def keep(account: Account, ctx: Context) -> None:
        return None

    spec = service.specs["keep"]
    service._specs["keep"] = replace(spec, result_type=msgspec.msgpack.Ext)  # no declaration lets it through
    with pytest.raises(InvalidService, match="odd"):
        json_schemas(service)
