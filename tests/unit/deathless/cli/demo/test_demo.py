"""The demo's terminal side: keys come one by one, and the terminal is as it was afterwards."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import termios
from pathlib import Path

import pytest

from deathless.cli.demo import demo
from deathless.cli.demo import service as demo_service
from deathless.cli.demo.demo import HELP, KEYS, SCRIPT, Screen, keys
from deathless.cli.demo.faults import WORDS


def test_every_key_and_step_is_something_that_can_be_done() -> None:
    assert {kind for kind, _ in (*KEYS.values(), *SCRIPT)} == set(WORDS)
    for key in KEYS:
        assert f"{key} " in HELP


def test_script_breaks_each_role_and_freezes_the_primary() -> None:
    assert [SCRIPT[index][1] for index in range(3)] == ["primary", "checkpointer", "standby"]
    assert ("freeze", "primary") in SCRIPT


def test_keys_come_without_return_and_ctrl_c_quits(monkeypatch: pytest.MonkeyPatch) -> None:
    user, terminal = pty.openpty()

    async def work() -> list[str]:
        with keys() as pressed:
            os.write(user, b"k")
            first = await pressed.get()
            signal.raise_signal(signal.SIGINT)
            return [first, await pressed.get()]

    try:
        with os.fdopen(terminal, "r") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            before = termios.tcgetattr(terminal)
            assert asyncio.run(work()) == ["k", "q"]
            assert termios.tcgetattr(terminal) == before
    finally:
        os.close(user)


def test_screen_tells_lines_with_the_time_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(quiet=False, live=False).say("hello")
    Screen(quiet=True, live=False).say("hidden")
    told = capsys.readouterr().out
    assert told.endswith("s  hello\n")
    assert "hidden" not in told


def test_bank_of_the_demo_lies_in_the_package() -> None:
    assert Path(demo_service.__file__).parent == Path(demo.__file__).parent
