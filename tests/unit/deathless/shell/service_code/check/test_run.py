"""The whole check: planted leaks are read, a clean service gives no finding."""

from pathlib import Path

import pytest

from deathless.base.errors import InvalidService
from deathless.shell.service_code.check.calls import Call
from deathless.shell.service_code.check.run import check_service, check_static
from deathless.shell.service_code.loading import load_service

ROOT = Path(__file__).parents[6]
LEAKS = ROOT / "tests" / "leaks"
# The rule each planted leak is found by when its code is read. What a C extension does can't be read.
RULES = {
    "address": {"identity"},
    "c_extension": set(),
    "chance": {"random"},
    "clock": {"clock"},
    "document": {"file"},
    "environ": {"environment"},
    "float_sum": {"float-sum"},
    "hashing": {"hash"},
    "language": {"locale"},
    "memory": {"global"},
    "set_order": {"set-order"},
    "thread_identity": {"thread"},
}


@pytest.mark.parametrize("leak", sorted(RULES))
def test_leak_is_read_and_file_line_and_handler_are_named(leak: str) -> None:
    findings = check_static(load_service(f"{leak}.py:service", LEAKS))
    assert {finding.rule for finding in findings} == RULES[leak]
    for finding in findings:
        assert finding.handlers == ("leak",)
        assert finding.path == str(LEAKS / f"{leak}.py")
        assert finding.line > 14


def test_clean_service_gives_no_finding() -> None:
    report = check_service("examples/bank/service.py:bank", folder=ROOT)
    assert report.clean
    assert report.notes == []
    assert report.calls > 100


def test_leak_is_found_by_drawn_calls() -> None:
    report = check_service("c_extension.py:service", folder=LEAKS)
    assert [(one.handler, one.factor) for one in report.differences] == [("leak", "hash seed")]
    assert not report.clean


def test_reading_alone_runs_nothing() -> None:
    report = check_service("clock.py:service", folder=LEAKS, run=False)
    assert report.findings
    assert (report.differences, report.calls) == ([], 0)


TEXT = """
import time
from deathless import Context, Service, Struct
class State(Struct):
    n: int = 0
    def late(self): return time.time()
odd = Service("odd", state=State)
@odd.birth
def born(state: State, ctx: Context) -> None:
    time.time()
{handlers}
"""
REFUSING = """
import msgspec
from typing import Annotated
@odd.handler
def refuse(state: State, ctx: Context) -> None:
    raise ValueError("never")
@odd.handler
def odd_text(state: State, ctx: Context, text: Annotated[str, msgspec.Meta(pattern="^q{9}$")]) -> None: ...
"""


def write(folder: Path, name: str, handlers: str) -> str:
    (folder / f"{name}.py").write_text(TEXT.format(handlers=handlers))
    return f"{name}.py:odd"


def test_what_could_not_be_looked_at_is_noted(tmp_path: Path) -> None:
    target = write(tmp_path, "odd_of_notes", REFUSING)
    report = check_service(target, folder=tmp_path, factors=())
    assert report.notes == [
        "odd_text: no calls could be drawn from its types; check it with a recorded log",
        "refuse: all its calls failed, the last with DL3014 ValueError: never",
    ]


def test_birth_and_methods_of_the_state_are_read(tmp_path: Path) -> None:
    target = write(tmp_path, "odd_of_roots", "@odd.handler\ndef add(state: State, ctx: Context) -> None: ...\n")
    findings = check_static(load_service(target, tmp_path))
    assert [(finding.line, finding.rule, finding.handlers) for finding in findings] == [
        (6, "clock", ("add",)),
        (10, "clock", ("add",)),
    ]


def test_handler_without_source_is_passed_over(tmp_path: Path) -> None:
    handlers = "class Add:\n    def __call__(self, state: State, ctx: Context) -> None: ...\n"
    target = write(tmp_path, "odd_of_callable", handlers + "odd.handler(name='add')(Add())\n")
    assert [finding.line for finding in check_static(load_service(target, tmp_path))] == [6, 10]


def test_service_without_handlers_has_nothing_to_run(tmp_path: Path) -> None:
    report = check_service(write(tmp_path, "odd_of_nothing", ""), folder=tmp_path)
    assert report.notes == ["there was nothing to run"]


def test_recorded_calls_are_used_as_they_are(tmp_path: Path) -> None:
    target = write(tmp_path, "odd_of_record", "@odd.handler\ndef add(state: State, ctx: Context) -> None: ...\n")
    calls: list[Call] = []
    assert check_service(target, folder=tmp_path, calls=calls).calls == 0


def test_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    target = write(tmp_path, "odd_of_bytes", "@odd.handler\ndef add(state: State, ctx: Context) -> None: ...\n")
    service = load_service(target, tmp_path)
    (tmp_path / "odd_of_bytes.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n")
    with pytest.raises(InvalidService, match="odd_of_bytes"):
        check_static(service)


ACTIVITIES = """
import time
from deathless import Context, Service, Struct
class State(Struct):
    n: int = 0
shop = Service("shop", state=State)
@shop.activity
def charge(cents: int) -> float:
    return time.time()
@shop.handler
async def pay(state: State, ctx: Context) -> float:
    return await ctx.run(charge, 5)
@shop.handler
async def cheat(state: State, ctx: Context) -> float:
    return charge(5)
"""


def test_activity_may_do_anything_but_be_called_by_a_handler(tmp_path: Path) -> None:
    (tmp_path / "shop_of_check.py").write_text(ACTIVITIES)
    findings = check_static(load_service("shop_of_check.py", tmp_path))
    assert [(finding.line, finding.rule, finding.handlers) for finding in findings] == [(15, "activity", ("cheat",))]
