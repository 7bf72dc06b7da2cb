"""What fields of a manifest are made of: values that fit are taken, and others are told what would."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.manifest_fields import Address, Endpoint, Host, Module, Name, Part, Quantity, told
from deathless.base.schema_check import find_problems


class Values(Part, frozen=True):
    """One field of each type that has a pattern."""

    name: Name = "a"
    module: Module = "m:a"
    host: Host = "h"
    endpoint: Endpoint = "http://h"
    address: Address = "h:1"
    quantity: Quantity = "1"
    in_camel_case: int = 0


@pytest.mark.parametrize(
    ("field", "value", "fits"),
    [
        ("name", "bank-2", True),
        ("name", "Bank", False),
        ("name", "b" * 41, False),
        ("module", "bank.py:service", True),
        ("module", "bank", False),
        ("host", "[::1]", True),
        ("host", "h:1", False),
        ("endpoint", "https://h:2379", True),
        ("endpoint", "https://[fd00::1]:443", True),
        ("endpoint", "h:2379", False),
        ("endpoint", "http://h:65535", True),
        ("endpoint", "http://h:65536", False),
        ("endpoint", "http://h:99999", False),
        ("endpoint", "http://h:0", False),
        ("endpoint", "http://h:http", False),
        ("endpoint", "http://h:", False),
        ("endpoint", "http://[fd00::1", False),
        ("endpoint", "http://h/topics", False),
        ("endpoint", "http://h?a=b", False),
        ("endpoint", "http://user:secret@h:80", False),
        ("address", "[::1]:80", True),
        ("address", "h", False),
        ("address", "h:7401", True),
        ("address", "h:65536", False),
        ("address", "h:0", False),
        ("address", "http://h:80", False),
        ("address", "user@h:80", False),
        ("quantity", "500m", True),
        ("quantity", "half", False),
        ("inCamelCase", 1, True),
        ("in_camel_case", 1, False),
    ],
)
def test_value_fits_or_is_told(field: str, value: object, fits: bool) -> None:
    assert (find_problems({field: value}, Values) == []) == fits


def test_what_a_field_means_is_said_in_the_schema_and_nowhere_else() -> None:
    assert told("Which one.") == msgspec.Meta(extra_json_schema={"explain": "Which one."})
