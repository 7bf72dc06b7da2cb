"""An interface: its bytes, its hash, and bytes of strangers."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidConfig
from deathless.base.limits import Limits
from deathless.execution.interface.interface import (
    FORMAT,
    FORMAT_WITH_INPUTS,
    FORMAT_WITH_TOPICS,
    Interface,
    TopicShape,
    decode_interface,
    encode_interface,
    interface_as_json,
    interface_from_json,
    interface_hash,
    interface_of,
)


def service(*, name: str = "Account", version: int = 1, reverse: bool = False, more: bool = False) -> Service:
    """A service whose class has this name."""
    state = msgspec.defstruct(name, [("n", int, 0), ("tags", set[str], msgspec.field(default_factory=set))])
    made = Service("bank", state=state, version=version)

    def put(account: Struct, ctx: Context, a: int, b: str = "") -> int:
        return a

    def take(account: Struct, ctx: Context) -> None: ...

    for function in (take, put) if reverse else (put, take):
        made.handler(function)
    if more:
        made.handler(name="third")(take)
    return made


def of(made: Service) -> Interface:
    return interface_of(made, Limits())


def test_the_order_of_handlers_means_nothing() -> None:
    assert encode_interface(of(service())) == encode_interface(of(service(reverse=True)))


def test_the_hash_is_of_what_bytes_depend_on() -> None:
    plain = interface_hash(of(service()))
    assert len(plain) == 16
    assert interface_hash(of(service(name="Customer"))) == plain
    assert interface_hash(of(service(more=True))) != plain
    assert interface_hash(of(service(version=2))) != plain
    assert interface_hash(interface_of(service(), Limits(key_bytes_max=100))) != plain


def test_bytes_are_the_same_in_a_process_with_another_hash_seed() -> None:
    code = (
        "from tests.unit.deathless.execution.interface.test_interface import encode_interface, of, service\n"
        "import sys; sys.stdout.buffer.write(encode_interface(of(service())))"
    )
    given_ = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert given_ == {encode_interface(of(service()))}


def test_a_later_format_is_refused() -> None:
    later = msgspec.structs.replace(of(service()), format=FORMAT_WITH_INPUTS + 1)
    with pytest.raises(InvalidConfig, match="has format 4, and 1 to 3 are known here"):
        decode_interface(encode_interface(later))


@given(st.binary(max_size=40), st.integers(min_value=0))
def test_bytes_of_strangers_are_read_or_refused(data: bytes, place: int) -> None:
    good = encode_interface(of(service()))
    at = place % len(good)
    for hostile in (data, good[:at], good[:at] + data + good[at + len(data) :]):
        try:
            found = decode_interface(hostile)
        except InvalidConfig:
            continue
        assert decode_interface(encode_interface(found)) == found


def test_a_class_that_is_not_there_is_refused() -> None:
    broken = msgspec.structs.replace(of(service()), classes=())
    with pytest.raises(InvalidConfig, match="broken"):
        interface_from_json(msgspec.json.encode(broken))


def with_topic() -> Service:
    made = service()
    made.topic("sales", msgspec.defstruct("Sold", [("article", str), ("cents", int | None, None)]))
    return made


def test_columns_of_topics_stand_in_the_interface() -> None:
    found = of(with_topic())
    assert found.format == FORMAT_WITH_TOPICS
    assert {name: schema.text for name, schema in found.schemas.items()} == {"sales": "article:utf8,cents:int64?"}
    assert decode_interface(encode_interface(found)) == found
    assert interface_from_json(interface_as_json(found)) == found
    assert interface_hash(found) != interface_hash(of(service()))


def test_a_code_without_topics_has_the_bytes_that_it_ever_had() -> None:
    found = of(service())
    assert (found.format, found.schemas) == (FORMAT, {})
    assert len(encode_interface(found)) == 807
    assert interface_hash(found).hex() == "75221b8cf72876000d79da3aca2ccba3"
    assert b"topics" not in encode_interface(found) + interface_as_json(found)


def test_a_schema_that_is_none_is_refused() -> None:
    broken = msgspec.structs.replace(of(with_topic()), topics=(TopicShape("sales", "article:text"),))
    with pytest.raises(InvalidConfig, match="broken: expected a type"):
        decode_interface(encode_interface(broken))
