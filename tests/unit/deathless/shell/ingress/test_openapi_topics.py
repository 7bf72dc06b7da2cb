"""A service's OpenAPI document describes its topics, where it has some."""

from __future__ import annotations

import re
from typing import Any, cast

from bank_fake import bank
from openapi_spec_validator import validate

from deathless import Service, Struct
from deathless.base.topics.state import ARROW, TopicState
from deathless.shell.ingress.openapi import codes_of, document
from deathless.shell.ingress.openapi_topics import TOPIC_PHRASES


class Sold(Struct):
    item: str


class Till(Struct):
    sum: int = 0


shop = Service("shop", state=Till)
shop.topic("sales", Sold)


def test_topics_are_described() -> None:
    made = cast("Any", document(shop))
    validate(made)
    rows = made["paths"]["/topics/{topic}/{shard}/rows"]["get"]
    assert rows["parameters"][0]["schema"] == {"enum": ["sales"]}
    assert ARROW in rows["responses"]["200"]["content"]
    assert {"403", "409", "410", "501"} <= set(rows["responses"])
    assert set(made["paths"]["/topics/{topic}/{shard}/holds/{hold}"]) == {"put", "delete"}
    state = made["paths"]["/topics/{topic}/{shard}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert list(state["properties"]) == [
        re.sub("_(.)", lambda found: found[1].upper(), name) for name in TopicState.__struct_fields__
    ]
    assert codes_of(501) == {"DL3001": "InvalidConfig"}


def test_a_service_without_topics_says_nothing_of_them() -> None:
    made = cast("Any", document(bank))
    assert not any(path.startswith("/topics") for path in made["paths"])
    assert not set(TOPIC_PHRASES.values()) & set(made["components"]["responses"])
