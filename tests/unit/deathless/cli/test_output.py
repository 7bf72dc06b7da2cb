"""Tables, sizes, times and error blocks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from deathless.base.errors import HandlerFailed, Internal, InvalidConfig, NotPrimary, PermissionRefused
from deathless.cli.main import main
from deathless.cli.output import (
    count,
    describe_error,
    json_of,
    print_json,
    print_table,
    show_error,
)


def test_table_is_aligned_and_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "lsn", "note"), [("r0", 1234567, None), ("replica", 5, "x"), ("r2", None, "")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME           LSN  NOTE",
        "r0       1,234,567  -",
        "replica          5  x",
        "r2               -  -",
    ]


def test_empty_table_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [])
    assert capsys.readouterr().out == "A  B\n"


def test_one_thing_is_not_several() -> None:
    assert (count(1, "key"), count(0, "key"), count(1200, "key")) == ("1 key", "0 keys", "1,200 keys")


def test_json_shows_bytes_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": 1, "b": {"c": object}})
    assert json.loads(capsys.readouterr().out)["a"] == 1


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (NotPrimary("x"), "DL1001", "NotPrimary"),
        (PermissionError(13, "Permission denied", "/x"), "DL3012", "PermissionRefused"),
        (FileNotFoundError(2, "No such file", "/x"), "DL3001", "InvalidConfig"),
        (ValueError("a\nb"), "DL9001", "Internal"),
    ],
)
def test_error_of_any_kind_becomes_one_of_ours(error: BaseException, code: str, kind: str) -> None:
    told = describe_error(error)
    assert (told.code, told.kind) == (code, kind)
    assert told.page == f"docs/errors/{code}.md"
    assert told.exit_code in {
        NotPrimary.exit_code,
        PermissionRefused.exit_code,
        InvalidConfig.exit_code,
        Internal.exit_code,
    }


def test_failed_handler_is_told_with_the_type_that_it_raised() -> None:
    error = HandlerFailed("amount must be above 0")
    error.kind = "ValueError"
    assert describe_error(error).what == "ValueError: amount must be above 0"


def test_own_code_of_a_service_has_no_page_of_ours() -> None:
    class NotEnough(HandlerFailed):
        code = "BANK01"

    assert describe_error(NotEnough("x")).page == ""


def test_text_is_one_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(NotPrimary("word " * 40))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["error DL1001 NotPrimary", f"  what    {'word ' * 40}"]


def test_long_text_is_wrapped_behind_its_name_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show_error(NotPrimary("word " * 40))
    lines = capsys.readouterr().err.splitlines()
    assert "error DL1001 NotPrimary" in lines[0]
    assert lines[1].startswith("  what    word")
    assert lines[2].startswith(" " * 10 + "word")
    assert max(map(len, lines)) <= 110


def test_what_json_has_no_form_for_is_shown_as_text() -> None:
    value = {
        "nan": [math.nan, math.inf],
        "keys": {(1, (2, "a")): 1, True: 2, None: 3, 4: 5, "4": 6, b"\xff": 7},
        "set": frozenset([1]),
        "bytes": b"\x00",
    }
    assert json.loads(json_of(value)) == {
        "nan": ["nan", "inf"],
        "keys": {'[1,[2,"a"]]': 1, "true": 2, "null": 3, "4": 5, '"4"': 6, "/w==": 7},
        "set": [1],
        "bytes": "AA==",
    }


PRINTS = """
import sys
from deathless import Service, Struct
class State(Struct):
    n: int = 0
print("imported")
sys.stdout.write("once more")
told = Service("told", state=State)
"""


@pytest.mark.parametrize("command", [("fingerprint",), ("openapi",), ("check", "--no-run")])
def test_what_code_prints_at_its_import_is_no_part_of_a_document(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{command[0]}_prints.py"  # a name that no module has yet, so that it is imported
    path.write_text(PRINTS)
    assert main([*command, "--json", f"{path}:told"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err == "imported\nonce more"
