"""What a process says of an author's code counts, and how it ends does not; nobody waits for ever for an import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from replica_set import children_of

from deathless.base.errors import CodeEndedProcess, DeathlessError, ImportNotEnded, InvalidArgument
from deathless.shell.service_code import separate_process
from deathless.shell.service_code.separate_process import ask

PROGRAM = """
import os, sys, time
from deathless.base.errors import InvalidArgument
from deathless.shell.service_code.separate_process import answer

def work(order, reports):
    {body}

answer(work, "trying")
"""


@pytest.fixture(autouse=True)
def _path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", found)
    yield
    assert not children_of(os.getpid(), "asked_program")


def asked(tmp_path: Path, body: str, **more: object) -> bytes:
    (tmp_path / "asked_program.py").write_text(PROGRAM.format(body=body))
    return ask("asked_program", b"order", os.environ, code="bank.py:bank", **more)  # type: ignore[arg-type]


def test_process_that_answers_gives_its_answer_and_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[str] = []
    body = 'reports.imported(); reports.tell("half"); return order + b"!"'
    assert asked(tmp_path, body, told=told.append) == b"order!"
    assert told == ["half"]


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "reports.imported(); os._exit(0)", "os._exit(7)"])
def test_process_that_ends_without_an_answer_has_no_verdict(tmp_path: Path, end: str) -> None:
    with pytest.raises(CodeEndedProcess, match=r"that ran bank\.py:bank ended with status [07], and said nothing"):
        asked(tmp_path, end)


def test_signal_that_ended_a_process_is_named(tmp_path: Path) -> None:
    with pytest.raises(CodeEndedProcess, match="ended by signal 9"):
        asked(tmp_path, "os.kill(os.getpid(), 9)")


def test_process_is_gone_although_its_own_child_holds_the_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    body = f"""
    pid = os.fork()
    if pid:
        os._exit(0)
    sys.stdout.flush()
    open("/proc/{os.getpid()}/fd/{reader}", "rb").read()
    os._exit(0)
"""
    try:
        with pytest.raises(CodeEndedProcess):
            asked(tmp_path, body.strip())
    finally:
        os.close(writer)
        os.close(reader)


def test_error_that_a_process_raised_is_raised_here_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no") as caught:
        asked(tmp_path, 'raise InvalidArgument("no", remedy="yes")')
    assert caught.value.advice == "yes"
    with pytest.raises(DeathlessError, match="trying: ValueError: broken"):
        asked(tmp_path, 'raise ValueError("broken")')


def test_import_that_never_ends_is_told_of_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.1)
    with pytest.raises(ImportNotEnded, match=r"the import of bank\.py:bank has not ended after 0\.1 s"):
        asked(tmp_path, "time.sleep(3600)")
    assert "waiting for the import of bank.py:bank" in capsys.readouterr().err


def test_what_follows_an_import_may_take_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.0)
    assert asked(tmp_path, 'return b"late"', bounded=False) == b"late"


def test_interpreter_that_runs_the_code_is_this_one(tmp_path: Path) -> None:
    assert asked(tmp_path, "return sys.executable.encode()") == sys.executable.encode()
