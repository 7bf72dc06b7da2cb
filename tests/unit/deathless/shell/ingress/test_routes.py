"""Addresses and bodies become typed arguments; what does not fit names its field."""

from __future__ import annotations

import msgspec
import pytest
from bank_fake import bank
from hypothesis import given
from hypothesis import strategies as st

from deathless import Context, Service
from deathless.base.errors import HandlerFailed, InvalidArgument, TooLarge
from deathless.shell.ingress.routes import Route, field_of, parse_query, unescape


def route(name: str) -> Route:
    return Route(bank.specs[name])


def test_body_becomes_the_handlers_arguments() -> None:
    arguments = route("deposit").from_json(b'{"amount": 5}', "alice")
    assert msgspec.to_builtins(arguments) == {"amount": 5}
    with pytest.raises(InvalidArgument):
        route("deposit").from_json(b"", "alice")


def test_argument_that_is_not_given_is_left_out_so_a_key_stays_good_when_one_is_added() -> None:
    deposit = route("deposit")
    omitted, named, other = (
        msgspec.msgpack.encode(deposit.from_json(body, "alice"))
        for body in (b'{"amount": 5}', b'{"note": "", "amount": 5}', b'{"amount": 5, "note": "x"}')
    )
    assert omitted == msgspec.msgpack.encode({"amount": 5})
    # Another version may have another default: what was given is not the same as what was left out.
    assert named == msgspec.msgpack.encode({"amount": 5, "note": ""})
    assert other == msgspec.msgpack.encode({"amount": 5, "note": "x"})


def test_first_key_comes_from_the_address() -> None:
    transfer = route("transfer")
    for body in (b'{"target": "bob", "amount": 1}', b'{"source": "alice", "target": "bob", "amount": 1}'):
        assert msgspec.to_builtins(transfer.from_json(body, "alice")) == {
            "source": "alice",
            "target": "bob",
            "amount": 1,
        }
    with pytest.raises(InvalidArgument) as caught:
        transfer.from_json(b'{"source": "carol", "target": "bob", "amount": 1}', "alice")
    assert field_of(caught.value) == "$.source"


def test_key_with_quotes_and_escapes_stays_itself() -> None:
    key = 'a"\\\u00e9\n'
    arguments = route("transfer").from_json(b'{"target": "bob", "amount": 1}', key)
    assert msgspec.to_builtins(arguments)["source"] == key


def test_texts_become_what_the_types_say() -> None:
    history = route("history")
    arguments = history.from_query(parse_query(b"first=7&exact=1&only=x"), "alice")
    assert msgspec.to_builtins(arguments) == {"first": 7, "only": ["x"], "exact": True, "since": None}
    arguments = history.from_query(parse_query(b"only=x&only=y"), "alice")
    assert msgspec.to_builtins(arguments)["only"] == ["x", "y"]
    for query in (b"first=x", b"first=1&first=2", b"colour=1", b"since=yesterday"):
        with pytest.raises(InvalidArgument):
            history.from_query(parse_query(query), "alice")


def test_result_is_told_as_json_even_when_another_version_wrote_it() -> None:
    balance = route("balance")
    assert balance.result_to_json(msgspec.msgpack.encode(5)) == b"5"
    assert balance.result_to_json(msgspec.msgpack.encode({"old": [1]})) == b'{"old":[1]}'


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Expected `int`, got `str` - at `$.amount`", "$.amount"),
        ("Object missing required field `amount`", "$.amount"),
        ("Object contains unknown field `x` - at `$.inner[0]`", "$.inner[0].x"),
        ("JSON is malformed: invalid character (byte 3)", ""),
    ],
)
def test_field_is_read_from_the_text(text: str, field: str) -> None:
    assert field_of(InvalidArgument(text)) == field
    assert field_of(TooLarge(text)) == field
    assert field_of(HandlerFailed(text)) == "", "a handler's own text names nothing of ours"


def test_percent_encoding_must_be_whole() -> None:
    assert unescape(b"plain", "key") == "plain"
    assert unescape(b"%41%2f", "key") == "A/"
    for broken in (b"%4", b"%", b"%g0", b"%ff", b"\xff"):
        with pytest.raises(InvalidArgument, match="key"):
            unescape(broken, "key")


def test_query_string_keeps_order_and_repetition() -> None:
    assert parse_query(b"a=1&b=x+y&a=2&c&=e&d=1=2") == {
        "a": ["1", "2"],
        "b": ["x y"],
        "c": [""],
        "": ["e"],
        "d": ["1=2"],
    }
    assert parse_query(b"") == {}


@given(st.text(), st.text())
def test_query_string_gives_back_what_was_quoted(name: str, value: str) -> None:
    def quote(text: str) -> bytes:
        return b"".join(b"%%%02X" % byte for byte in text.encode())

    assert parse_query(quote(name) + b"=" + quote(value)) == {name: [value]}


class Paid(msgspec.Struct):
    """Arguments of an older version."""

    money: dict[str, float]
    note: str = ""


class Drawn(msgspec.Struct):
    """Arguments of a version before that."""

    amount: str


def test_arguments_of_older_versions_go_on_as_they_came() -> None:
    """Whoever runs the message makes the present ones of them."""
    deposit = Route(bank.specs["deposit"], older=[Paid, Drawn])
    bodies = (b'{"amount": 5}', b'{"money": {"chf": 1}}', b'{"amount": "five"}')
    encoded = [msgspec.msgpack.encode(deposit.from_json(body, "alice")) for body in bodies]
    assert [msgspec.msgpack.decode(each) for each in encoded] == [
        {"amount": 5},
        {"money": {"chf": 1.0}},
        {"amount": "five"},
    ]
    with pytest.raises(InvalidArgument) as caught:
        deposit.from_json(b'{"amount": null}', "alice")
    assert field_of(caught.value) == "$.amount", "by the present types"


class OldLine(msgspec.Struct):
    """A part of arguments, as it was."""

    amount: float


class Line(msgspec.Struct):
    """The same as it is, which passes over `amount`."""

    cents: int = 0


def test_field_inside_that_the_present_type_passes_over_tells_the_older_form() -> None:
    service = Service("shop", state=Line, version=2)

    @service.handler
    def sell(state: Line, ctx: Context, line: Line) -> None:
        state.cents += line.cents

    older = msgspec.defstruct("SellV1", [("line", OldLine)])
    sold = Route(service.specs["sell"], older=[older]).from_json(b'{"line": {"amount": 1.5}}', "")
    assert msgspec.to_builtins(sold) == {"line": {"amount": 1.5}}
    newer = Route(service.specs["sell"], older=[older]).from_json(b'{"line": {"cents": 5, "vat": 1}}', "")
    assert msgspec.to_builtins(newer) == {"line": {"cents": 5}}, "of no older form: as without any"


def test_query_takes_older_arguments_from_the_address() -> None:
    older = msgspec.defstruct("HistoryV1", [("since_line", int)])
    history = Route(bank.specs["history"], older=[older])
    assert msgspec.to_builtins(history.from_query({"since_line": ["7"]}, "alice")) == {"since_line": 7}


def test_name_that_no_form_knows_is_refused_and_never_passed_over() -> None:
    """Though each argument of the older form may be left out."""
    older = msgspec.defstruct("HistoryV1", [("since_line", int, 0)])
    history = Route(bank.specs["history"], older=[older])
    with pytest.raises(InvalidArgument, match="frist"):
        history.from_query({"frist": ["7"]}, "alice")
    deposit = Route(bank.specs["deposit"], older=[older])
    with pytest.raises(InvalidArgument, match="ammount"):
        deposit.from_json(b'{"ammount": 7}', "alice")
