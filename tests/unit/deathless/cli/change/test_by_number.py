"""A method is called by its number from the command line: what is typed, what is refused, what is printed."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.cli.change.by_number import Typed, method_of, show_bytes
from deathless.cli.main import main
from deathless.shell.client.shard_client import Client
from deathless.shell.operate import down

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec: {binding: {command: [./bank]}}
"""


@pytest.mark.parametrize(
    ("handler", "method"),
    [("7", 7), ("-2", -2), ("007", 7), ("2147483647", 2**31 - 1), ("deposit", None), ("7a", None)],
)
def test_number_in_the_place_of_a_name_is_a_method(handler: str, method: int | None) -> None:
    assert method_of(handler) == method


@pytest.mark.parametrize("handler", ["2147483648", "-2147483649", "9" * 18])
def test_number_of_more_than_32_bits_is_refused(handler: str) -> None:
    with pytest.raises(InvalidArgument, match="32 bits"):
        method_of(handler)


def test_bytes_are_a_text_digits_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "order").write_bytes(b"\0\xff")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))
    assert Typed().read() == b""
    assert Typed(text="ü").read() == "ü".encode()
    assert Typed(hexadecimal="00 FF").read() == b"\0\xff"
    assert Typed(path=str(tmp_path / "order")).read() == b"\0\xff"
    assert Typed(path="-").read() == b"piped\n"


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (Typed(text="a", hexadecimal="00"), "--bytes and --hex"),
        (Typed(hexadecimal="0"), "--hex '0'"),
        (Typed(path="/nowhere/at/all"), "--bytes-from /nowhere/at/all: No such file"),
    ],
)
def test_what_gives_no_bytes_is_refused_by_its_option(typed: Typed, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        typed.read()


def test_argument_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.cli.change.by_number.ARGUMENT_BYTES_MAX", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(11))))
    with pytest.raises(InvalidArgument, match="more than 10 bytes"):
        Typed(path="-").read()


def test_file_that_can_not_be_written_says_that_the_call_was_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="the call was made") as refused:
        show_bytes(b"x", str(tmp_path / "no" / "file"), as_json=False, idempotency_key="k 1")
    assert "--idempotency-key 'k 1'" in refused.value.advice


@pytest.fixture(name="called")
def service_that_gives_back_what_it_is_called_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was called: method, bytes, and more. Method 8 gives nothing."""
    calls: list[object] = []

    async def nothing_is_down(_found: object) -> None:
        return None

    async def foreign(_client: object, method: int, args: bytes = b"", **more: object) -> bytes | None:
        calls.append((method, args, more["key"], more["fork"], more["idempotency_key"]))
        return None if method == 8 else args

    (tmp_path / "service.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(down, "why_down", nothing_is_down)
    monkeypatch.setattr(Client, "foreign", foreign)
    return calls


def test_what_a_method_gives_is_printed_or_written(
    called: list[object], capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["call", "7", "--bytes", "hi", "-k", "alice", "--idempotency-key", "one"]) == 0
    assert capsysbinary.readouterr().out == b"6869\n"
    assert main(["call", "8", "--hex", "00", "--fork"]) == 0
    assert capsysbinary.readouterr().out == b""
    assert main(["call", "--hex", "00ff", "--output", "-", "--", "-2"]) == 0
    assert capsysbinary.readouterr().out == b"\0\xff"
    assert main(["call", "7", "--hex", "00ff", "--output", "answer"]) == 0
    assert (tmp_path / "answer").read_bytes() == b"\0\xff"
    assert called[0] == (7, b"hi", "alice", False, "one")
    assert called[1][:4] == (8, b"\0", "", True)  # type: ignore[index]


def test_programs_get_base64_and_digits_and_the_key(called: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "7", "--bytes", "hi", "--idempotency-key", "one", "--json"]) == 0
    told = {"result": base64.b64encode(b"hi").decode(), "hex": "6869", "idempotencyKey": "one"}
    assert json.loads(capsys.readouterr().out) == told
    assert main(["call", "8", "--idempotency-key", "two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"result": None, "hex": None, "idempotencyKey": "two"}
    assert len(called) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["7", "--arg", "a=1"], "--arg is given, and 7 is a method's number"),
        (["deposit", "--bytes", "a"], "--bytes is for methods"),
        (["deposit", "--fork"], "--fork is for methods"),
        (["7", "--output", "-", "--json"], "--output - and --json"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_sent(
    called: list[object], words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", *words]) == InvalidArgument.exit_code
    assert told in " ".join(capsys.readouterr().err.replace('"message": ', "").split())
    assert called == []
